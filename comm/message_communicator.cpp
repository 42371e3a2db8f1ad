#include "comm/message_communicator.hpp"

#include <algorithm>
#include <array>
#include <cstring>
#include <numeric>
#include <utility>

namespace gradwire {
namespace {

// What is sent is never written to; one kind of message serves both ways.
std::byte* mutable_data(std::span<std::byte const> bytes) { return const_cast<std::byte*>(bytes.data()); }

std::vector<std::size_t> offsets_of(std::span<std::size_t const> sizes) {
  std::vector<std::size_t> offsets(sizes.size());
  std::exclusive_scan(sizes.begin(), sizes.end(), offsets.begin(), std::size_t{0});
  return offsets;
}

}  // namespace

message_communicator::message_communicator(std::shared_ptr<board> shared, std::string group,
                                           std::vector<std::size_t> members, std::size_t rank,
                                           std::chrono::milliseconds timeout)
    : host_communicator{rank, members.size(), timeout},
      board_{std::move(shared)},
      group_{std::move(group)},
      members_{std::move(members)},
      sent_to_(size(), 0),
      received_from_(size(), 0) {
  if (size() > 1) verdict_.emplace(board_, group_, members_, rank, timeout);
}

void message_communicator::watch_board() {
  if (size() == 1) return;
  auto const look = [this] {
    if (verdict_->spoiled()) spoil();
  };
  watch_.emplace(*board_, look);
  look();  // at what came before
}

void message_communicator::leave_group() noexcept {
  watch_.reset();  // waits until the board no longer calls in here
  if (verdict_) verdict_->report(ending::left, "");
}

void message_communicator::abort() noexcept {
  aborted_ = true;
  if (!verdict_) return;
  verdict_->report(ending::aborted, "");
  spoil();
}

void message_communicator::check_not_aborted() const {
  if (aborted_) throw error{errc::communicator, "rank " + std::to_string(rank()) + " aborted the group"};
}

void message_communicator::fail(bool timed_out, std::string const& operation, std::string const& detail) {
  spoil();
  throw verdict_->find(timed_out ? ending::timed_out : ending::broken, operation, detail);
}

std::string message_communicator::to_text(dtype type, reduce_op op, std::size_t count) {
  constexpr std::array names{"sum", "max", "min"};
  return std::string{names.at(static_cast<std::size_t>(op))} + " of " + std::to_string(count) + " " +
         std::string{gradwire::to_string(type)};
}

std::vector<std::size_t> message_communicator::others() const {
  std::vector<std::size_t> result;
  for (std::size_t step = 1; step < size(); ++step) result.push_back((rank() + step) % size());
  return result;
}

void message_communicator::gather_parts(std::span<std::byte const> in, std::span<std::byte> out, sizes bytes,
                                        operation_code code, std::uint64_t number, clock::time_point deadline) {
  auto const offsets = offsets_of(bytes);
  std::vector<message> sends;
  std::vector<message> receives;
  for (auto const peer : others()) {
    if (!in.empty()) sends.push_back({peer, mutable_data(in), in.size(), code, number});
    if (bytes[peer] != 0) receives.push_back({peer, out.data() + offsets[peer], bytes[peer], code, number});
  }
  exchange(sends, receives, deadline);
}

void message_communicator::exchange_parts(std::span<std::byte const> in, sizes send_bytes, std::span<std::byte> out,
                                          sizes recv_bytes, operation_code code, std::uint64_t number,
                                          clock::time_point deadline) {
  auto const from = offsets_of(send_bytes);
  auto const to = offsets_of(recv_bytes);
  std::vector<message> sends;
  std::vector<message> receives;
  for (auto const peer : others()) {
    if (send_bytes[peer] != 0) sends.push_back({peer, mutable_data(in) + from[peer], send_bytes[peer], code, number});
    if (recv_bytes[peer] != 0) receives.push_back({peer, out.data() + to[peer], recv_bytes[peer], code, number});
  }
  exchange(sends, receives, deadline);
}

void message_communicator::do_all_gather(std::span<std::byte const> in, std::span<std::byte> out, sizes bytes) {
  auto const number = next_number();
  auto* const own = out.data() + offsets_of(bytes)[rank()];
  if (!in.empty() && own != in.data()) std::memcpy(own, in.data(), in.size());
  attempt(
      "all_gather #" + std::to_string(number) + " of " + std::to_string(out.size()) + " bytes",
      [&](clock::time_point deadline) { gather_parts(in, out, bytes, operation_code::all_gather, number, deadline); });
}

void message_communicator::do_all_to_all(std::span<std::byte const> in, sizes send_bytes, std::span<std::byte> out,
                                         sizes recv_bytes) {
  auto const number = next_number();
  if (auto const own = send_bytes[rank()]; own != 0) {
    std::memcpy(out.data() + offsets_of(recv_bytes)[rank()], in.data() + offsets_of(send_bytes)[rank()], own);
  }
  attempt("all_to_all #" + std::to_string(number), [&](clock::time_point deadline) {
    exchange_parts(in, send_bytes, out, recv_bytes, operation_code::all_to_all, number, deadline);
  });
}

void message_communicator::do_broadcast(std::span<std::byte> inout, std::size_t root) {
  auto const number = next_number();
  if (inout.empty()) return;
  attempt("broadcast #" + std::to_string(number) + " of " + std::to_string(inout.size()) + " bytes from rank " +
              std::to_string(root),
          [&](clock::time_point deadline) {
            message const one{root, inout.data(), inout.size(), operation_code::broadcast, number};
            if (rank() != root) return exchange({}, {&one, 1}, deadline);
            std::vector<message> sends(size() - 1, one);
            auto const peers = others();
            for (std::size_t i = 0; i < peers.size(); ++i) sends[i].peer = peers[i];
            exchange(sends, {}, deadline);
          });
}

// Dissemination: in round k each rank hears from the one 2^k before it (Hensgen, Finkel and Manber 1988).
void message_communicator::do_barrier() {
  auto const number = next_number();
  attempt("barrier #" + std::to_string(number), [&](clock::time_point deadline) {
    std::byte out{};
    std::byte in{};
    for (std::size_t distance = 1; distance < size(); distance *= 2) {
      auto const to = (rank() + distance) % size();
      auto const from = (rank() + size() - distance) % size();
      message const send{to, &out, 1, operation_code::barrier, number};
      message const receive{from, &in, 1, operation_code::barrier, number};
      exchange({&send, 1}, {&receive, 1}, deadline);
    }
  });
}

void message_communicator::do_send(std::span<std::byte const> in, std::size_t peer) {
  auto const number = ++sent_to_[peer];
  if (in.empty()) return;
  attempt("send of " + std::to_string(in.size()) + " bytes to rank " + std::to_string(peer),
          [&](clock::time_point deadline) {
            message const one{peer, mutable_data(in), in.size(), operation_code::point_to_point, number};
            exchange({&one, 1}, {}, deadline);
          });
}

void message_communicator::do_recv(std::span<std::byte> out, std::size_t peer) {
  auto const number = ++received_from_[peer];
  if (out.empty()) return;
  attempt("recv of " + std::to_string(out.size()) + " bytes from rank " + std::to_string(peer),
          [&](clock::time_point deadline) {
            message const one{peer, out.data(), out.size(), operation_code::point_to_point, number};
            exchange({}, {&one, 1}, deadline);
          });
}

message_communicator::part message_communicator::agree_on_part(std::uint32_t color, std::uint32_t key) {
  using choice = std::array<std::uint32_t, 2>;
  std::vector<choice> choices(size());
  choices[rank()] = {color, key};
  auto const all = std::as_writable_bytes(std::span{choices});
  std::vector<std::size_t> const bytes(size(), sizeof(choice));
  do_all_gather(all.subspan(rank() * sizeof(choice), sizeof(choice)), all, bytes);
  std::vector<std::pair<std::uint32_t, std::size_t>> order;  // (key, rank here)
  for (std::size_t r = 0; r < size(); ++r) {
    if (choices[r][0] == color) order.emplace_back(choices[r][1], r);
  }
  std::sort(order.begin(), order.end());
  part result;
  result.group = group_ + "." + std::to_string(++splits_) + "c" + std::to_string(color);
  for (auto const& [their_key, r] : order) {
    if (r == rank()) result.place = result.ranks.size();
    result.ranks.push_back(r);
    result.members.push_back(members_[r]);
  }
  return result;
}

}  // namespace gradwire
