#include "comm/mpi/transfer.hpp"

#include <algorithm>
#include <chrono>
#include <stdexcept>
#include <string>
#include <thread>
#include <utility>

namespace gradwire::mpi {
namespace {

constexpr int ready_tag = transfer::most_tag + 1;

int as_int(std::size_t value) { return static_cast<int>(value); }

}  // namespace

template <class Call>
void transfer::begin(step what, Call call) {
  // Room first: once a request is made, nothing may throw before it is entered.
  requests_.reserve(requests_.size() + 1);
  steps_.push_back(std::move(what));
  MPI_Request request = MPI_REQUEST_NULL;
  int const code = call(steps_.back(), &request);
  requests_.push_back(request);
  if (request != MPI_REQUEST_NULL) ++open_;
  check(code, "MPI_Isend or MPI_Irecv");
}

void transfer::send(std::size_t peer, int tag, std::span<std::byte const> bytes) {
  if (bytes.size() <= limits_.copied_bytes) {
    begin({.what = kind::copied_send, .peer = peer, .tag = tag, .copy = {bytes.begin(), bytes.end()}},
          [&](step const& own, MPI_Request* request) {
            return MPI_Issend(own.copy.data(), as_int(own.copy.size()), MPI_BYTE, as_int(peer), tag, comm_, request);
          });
    return;
  }
  begin({.what = kind::hear_ready, .peer = peer, .tag = tag, .out = bytes}, [&](step const&, MPI_Request* request) {
    return MPI_Irecv(nullptr, 0, MPI_BYTE, as_int(peer), ready_tag + tag, comm_, request);
  });
}

void transfer::receive(std::size_t peer, int tag, std::span<std::byte> bytes) {
  bool const large = bytes.size() > limits_.copied_bytes;
  do {
    auto const piece = bytes.first(std::min(bytes.size(), large ? limits_.piece_bytes : bytes.size()));
    begin({.what = kind::receive, .peer = peer, .tag = tag, .bytes = piece.size()},
          [&](step const&, MPI_Request* request) {
            return MPI_Irecv(piece.data(), as_int(piece.size()), MPI_BYTE, as_int(peer), tag, comm_, request);
          });
    bytes = bytes.subspan(piece.size());
  } while (!bytes.empty());
  if (!large) return;
  begin({.what = kind::say_ready, .peer = peer, .tag = tag}, [&](step const&, MPI_Request* request) {
    return MPI_Isend(nullptr, 0, MPI_BYTE, as_int(peer), ready_tag + tag, comm_, request);
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
  auto const ended = steps_[index];  // what begins now moves them
  if (ended.what == kind::receive) {
    int came = 0;
    check(MPI_Get_count(&status, MPI_BYTE, &came), "MPI_Get_count");
    if (static_cast<std::size_t>(came) != ended.bytes) {
      throw std::runtime_error{"rank " + std::to_string(ended.peer) + " sent " + std::to_string(came) +
                               " bytes where this rank expects " + std::to_string(ended.bytes)};
    }
  }
  if (ended.what != kind::hear_ready) return;
  for (auto rest = ended.out; !rest.empty();) {
    auto const piece = rest.first(std::min(rest.size(), limits_.piece_bytes));
    begin({.what = kind::large_send, .peer = ended.peer, .tag = ended.tag, .bytes = piece.size()},
          [&](step const&, MPI_Request* request) {
            return MPI_Isend(piece.data(), as_int(piece.size()), MPI_BYTE, as_int(ended.peer), ended.tag, comm_,
                             request);
          });
    rest = rest.subspan(piece.size());
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
    if (steps_[i].what == kind::say_ready) MPI_Request_free(&requests_[i]);
    if (steps_[i].what == kind::copied_send) {
      keep_until_sent(std::exchange(requests_[i], MPI_REQUEST_NULL), std::move(steps_[i].copy));
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
