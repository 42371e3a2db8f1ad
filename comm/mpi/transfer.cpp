#include "comm/mpi/transfer.hpp"

#include <algorithm>
#include <chrono>
#include <cstdint>
#include <cstring>
#include <stdexcept>
#include <string>
#include <thread>
#include <utility>

namespace gradwire::mpi {
namespace {

int as_int(std::size_t value) { return static_cast<int>(value); }

}  // namespace

template <class Call>
void transfer::begin(step what, Call call) {
  // Room first: once a request is made, nothing may throw before it is entered.
  if (free_.empty()) {
    free_.reserve(steps_.size() + 1);
    requests_.reserve(steps_.size() + 1);
    steps_.emplace_back();
    requests_.push_back(MPI_REQUEST_NULL);
    free_.push_back(steps_.size() - 1);
  }
  auto const place = free_.back();
  free_.pop_back();
  steps_[place] = std::move(what);
  int const code = call(steps_[place], &requests_[place]);
  if (requests_[place] != MPI_REQUEST_NULL) ++open_;
  check(code, "MPI_Isend or MPI_Irecv");
}

void transfer::send(std::size_t peer, int tag, std::span<std::byte const> bytes) {
  if (bytes.size() > limits_.copied_bytes) return hear_ready(peer, tag, bytes);
  begin({.what = kind::copied_send, .peer = peer, .tag = tag, .letter = {bytes.begin(), bytes.end()}},
        [&](step& own, MPI_Request* request) {
          return MPI_Issend(own.letter.data(), as_int(own.letter.size()), MPI_BYTE, as_int(peer), tag, comm_, request);
        });
}

void transfer::receive(std::size_t peer, int tag, std::span<std::byte> bytes) {
  if (bytes.size() > limits_.copied_bytes) return receive_piece(peer, tag, bytes);
  expect(peer, tag, bytes, {});
}

void transfer::expect(std::size_t peer, int tag, std::span<std::byte> bytes, std::span<std::byte> later) {
  begin({.what = kind::receive, .peer = peer, .tag = tag, .bytes = bytes.size(), .in = later},
        [&](step&, MPI_Request* request) {
          return MPI_Irecv(bytes.data(), as_int(bytes.size()), MPI_BYTE, as_int(peer), tag, comm_, request);
        });
}

void transfer::receive_piece(std::size_t peer, int tag, std::span<std::byte> in) {
  auto const bytes = std::min(in.size(), limits_.piece_bytes);
  expect(peer, tag, in.first(bytes), in.subspan(bytes));
  std::uint64_t const left = in.size();
  auto const* const first = reinterpret_cast<std::byte const*>(&left);
  begin({.what = kind::say_ready, .peer = peer, .tag = tag, .letter = {first, first + sizeof left}},
        [&](step& own, MPI_Request* request) {
          return MPI_Isend(own.letter.data(), as_int(own.letter.size()), MPI_BYTE, as_int(peer), ready_tag | tag, comm_,
                           request);
        });
}

void transfer::hear_ready(std::size_t peer, int tag, std::span<std::byte const> out) {
  std::vector<std::byte> letter(sizeof(std::uint64_t));
  begin({.what = kind::hear_ready, .peer = peer, .tag = tag, .out = out, .letter = std::move(letter)},
        [&](step& own, MPI_Request* request) {
          return MPI_Irecv(own.letter.data(), as_int(own.letter.size()), MPI_BYTE, as_int(peer), ready_tag | tag, comm_,
                           request);
        });
}

void transfer::send_piece(step const& heard) {
  std::uint64_t expected = 0;
  std::memcpy(&expected, heard.letter.data(), sizeof expected);
  if (expected != heard.out.size()) {
    throw std::runtime_error{"rank " + std::to_string(heard.peer) + " expects " + std::to_string(expected) +
                             " bytes where this rank sends " + std::to_string(heard.out.size())};
  }
  auto const piece = heard.out.first(std::min(heard.out.size(), limits_.piece_bytes));
  begin({.what = kind::large_send,
         .peer = heard.peer,
         .tag = heard.tag,
         .bytes = piece.size(),
         .out = heard.out.subspan(piece.size())},
        [&](step&, MPI_Request* request) {
          return MPI_Isend(piece.data(), as_int(piece.size()), MPI_BYTE, as_int(heard.peer), heard.tag, comm_, request);
        });
}

bool transfer::advance() {
  indices_.resize(requests_.size());
  statuses_.resize(requests_.size());
  int count = 0;
  int const code = MPI_Testsome(as_int(requests_.size()), requests_.data(), &count, indices_.data(), statuses_.data());
  if (code != MPI_ERR_IN_STATUS) check(code, "MPI_Testsome");
  if (count == MPI_UNDEFINED || count == 0) return false;
  open_ -= static_cast<std::size_t>(count);
  for (std::size_t i = 0; i < static_cast<std::size_t>(count); ++i) {
    auto const index = static_cast<std::size_t>(indices_[i]);
    // MPI sets the errors only where it says that there is one.
    if (code == MPI_ERR_IN_STATUS && statuses_[i].MPI_ERROR != MPI_SUCCESS) {
      check(statuses_[i].MPI_ERROR, ("a message of rank " + std::to_string(steps_[index].peer)).c_str());
    }
    finish(index, statuses_[i]);
  }
  return true;
}

void transfer::finish(std::size_t index, MPI_Status const& status) {
  auto const ended = std::move(steps_[index]);  // what begins now takes its place
  free_.push_back(index);
  switch (ended.what) {
    case kind::receive: {
      int came = 0;
      check(MPI_Get_count(&status, MPI_BYTE, &came), "MPI_Get_count");
      if (static_cast<std::size_t>(came) != ended.bytes) {
        throw std::runtime_error{"rank " + std::to_string(ended.peer) + " sent " + std::to_string(came) +
                                 " bytes where this rank expects " + std::to_string(ended.bytes + ended.in.size())};
      }
      if (!ended.in.empty()) receive_piece(ended.peer, ended.tag, ended.in);
      return;
    }
    case kind::hear_ready: return send_piece(ended);
    case kind::large_send:
      if (!ended.out.empty()) hear_ready(ended.peer, ended.tag, ended.out);
      return;
    case kind::copied_send:
    case kind::say_ready: return;
  }
}

std::size_t transfer::moving_bytes() const {
  std::size_t bytes = 0;
  for (std::size_t i = 0; i < steps_.size(); ++i) {
    bool const large = steps_[i].what == kind::large_send || steps_[i].what == kind::receive;
    if (large && requests_[i] != MPI_REQUEST_NULL) bytes += steps_[i].bytes;
  }
  return bytes;
}

std::vector<std::size_t> transfer::waits_for() const {
  std::vector<std::size_t> peers;
  for (std::size_t i = 0; i < steps_.size(); ++i) {
    if (requests_[i] != MPI_REQUEST_NULL) peers.push_back(steps_[i].peer);
  }
  return peers;
}

void transfer::abandon(clock::time_point deadline) noexcept {
  for (std::size_t i = 0; i < requests_.size(); ++i) {
    if (requests_[i] == MPI_REQUEST_NULL) continue;
    if (steps_[i].what == kind::receive || steps_[i].what == kind::hear_ready) MPI_Cancel(&requests_[i]);
    if (!steps_[i].letter.empty()) {
      keep_until_done(std::exchange(requests_[i], MPI_REQUEST_NULL), std::move(steps_[i].letter));
    }
  }
  auto const under_way = [&](MPI_Request& request) {
    int done = 0;
    return MPI_Test(&request, &done, MPI_STATUS_IGNORE) == MPI_SUCCESS && done == 0;
  };
  // Each is tested every time: all of them need MPI to work.
  while (std::count_if(requests_.begin(), requests_.end(), under_way) != 0 && clock::now() < deadline) {
    std::this_thread::sleep_for(std::chrono::microseconds{50});
  }
  for (auto& request : requests_) {
    if (request != MPI_REQUEST_NULL) MPI_Request_free(&request);
  }
  open_ = 0;
}

}  // namespace gradwire::mpi
