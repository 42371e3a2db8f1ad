#include "comm/inproc/group.hpp"

#include <algorithm>
#include <cstring>
#include <utility>

#include "comm/host_communicator.hpp"

namespace gradwire::inproc {

group::group(std::size_t size, std::chrono::milliseconds timeout)
    : timeout_{timeout}, calls_(size), arrived_(size), left_(size), touching_(size), deadlines_(size) {}

void group::enter(std::size_t rank, call mine, then next) {
  std::unique_lock lock{mutex_};
  throw_if_failed();
  calls_[rank] = std::move(mine);
  deadlines_[rank] = clock::now() + timeout_;
  if (arrivals_ + 1 == size()) {
    try {
      check_agreement();
    } catch (error const& why) {
      fail_and_throw(why);
    }
  }
  pass(lock, rank, next);
}

void group::meet(std::size_t rank, then next) {
  std::unique_lock lock{mutex_};
  touching_[rank] = false;
  try {
    pass(lock, rank, next);
  } catch (...) {
    // The caller may free its buffers now; nobody may still be reading them. Reading is short and never waits.
    changed_.notify_all();
    changed_.wait(lock, [&] { return std::find(touching_.begin(), touching_.end(), true) == touching_.end(); });
    throw;
  }
}

void group::pass(std::unique_lock<std::mutex>& lock, std::size_t rank, then next) {
  throw_if_failed();
  if (arrivals_ + 1 < size()) return wait_at_gate(lock, rank);
  arrivals_ = 0;
  std::fill(arrived_.begin(), arrived_.end(), false);
  std::fill(touching_.begin(), touching_.end(), next == then::touches_memory);
  ++generation_;
  changed_.notify_all();
}

void group::wait_at_gate(std::unique_lock<std::mutex>& lock, std::size_t rank) {
  auto const before = generation_;
  arrived_[rank] = true;
  ++arrivals_;
  // A gate that was passed counts even when the group failed just after.
  while (generation_ == before) {
    throw_if_failed();
    for (std::size_t r = 0; r < size(); ++r) {
      if (!left_[r] || arrived_[r]) continue;
      fail_and_throw(error{errc::communicator, "rank " + std::to_string(r) + " left the group while rank " +
                                                   std::to_string(rank) + " waits for it in " +
                                                   calls_[rank].operation});
    }
    if (changed_.wait_until(lock, deadlines_[rank]) == std::cv_status::timeout && generation_ == before) {
      throw_if_failed();
      fail_and_throw(error{errc::timeout, name_ranks(absent()) + " did not arrive at " + calls_[rank].operation +
                                              " within " + std::to_string(timeout_.count()) + " ms"});
    }
  }
}

void group::check_agreement() const {
  for (std::size_t r = 1; r < size(); ++r) {
    if (std::string_view{calls_[r].operation} != calls_[0].operation || calls_[r].signature != calls_[0].signature) {
      throw error{errc::mismatch, "ranks issued different collectives: rank 0 " + describe(0) + ", rank " +
                                      std::to_string(r) + " " + describe(r) +
                                      "; all ranks must issue the same ones in the same order"};
    }
  }
  if (calls_[0].send_bytes.empty()) return;
  for (std::size_t from = 0; from < size(); ++from) {
    for (std::size_t to = 0; to < size(); ++to) {
      auto const sent = calls_[from].send_bytes[to];
      auto const expected = calls_[to].recv_bytes[from];
      if (sent == expected) continue;
      throw error{errc::mismatch, "all_to_all: rank " + std::to_string(from) + " sends " + std::to_string(sent) +
                                      " bytes to rank " + std::to_string(to) + ", which expects " +
                                      std::to_string(expected)};
    }
  }
}

std::string group::describe(std::size_t rank) const {
  auto const& signature = calls_[rank].signature;
  constexpr std::size_t shown = 8;
  std::string text = std::string{calls_[rank].operation} + "(";
  for (std::size_t i = 0; i < std::min(shown, signature.size()); ++i) {
    text += (i == 0 ? "" : ", ") + std::to_string(signature[i]);
  }
  return text + (signature.size() > shown ? ", …)" : ")");
}

std::vector<std::size_t> group::absent() const {
  std::vector<std::size_t> result;
  for (std::size_t r = 0; r < size(); ++r) {
    if (!arrived_[r]) result.push_back(r);
  }
  return result;
}

void group::wait_for_peer(std::unique_lock<std::mutex>& lock, char const* operation, std::size_t peer,
                          std::function<bool()> const& done) {
  auto const deadline = clock::now() + timeout_;
  while (!done()) {
    throw_if_failed();
    if (left_[peer]) {
      fail_and_throw(error{errc::communicator,
                           "rank " + std::to_string(peer) + " left the group during " + operation + " with it"});
    }
    if (changed_.wait_until(lock, deadline) == std::cv_status::timeout && !done()) {
      throw_if_failed();
      fail_and_throw(error{errc::timeout, "rank " + std::to_string(peer) + " did not answer a " + operation +
                                              " within " + std::to_string(timeout_.count()) + " ms"});
    }
  }
}

void group::send(std::size_t from, std::size_t to, std::span<std::byte const> bytes) {
  std::unique_lock lock{mutex_};
  throw_if_failed();
  letter mine{bytes};
  auto& box = boxes_[{from, to}];
  box.push_back(&mine);
  changed_.notify_all();
  try {
    wait_for_peer(lock, "send", to, [&] { return mine.taken; });
  } catch (...) {
    std::erase(box, &mine);
    throw;
  }
}

void group::recv(std::size_t to, std::size_t from, std::span<std::byte> bytes) {
  std::unique_lock lock{mutex_};
  throw_if_failed();
  auto& box = boxes_[{from, to}];
  wait_for_peer(lock, "recv", from, [&] { return !box.empty(); });
  auto const sent = box.front()->bytes;
  if (sent.size() != bytes.size()) {
    fail_and_throw(error{errc::mismatch, "rank " + std::to_string(from) + " sent " + std::to_string(sent.size()) +
                                             " bytes where rank " + std::to_string(to) + " receives " +
                                             std::to_string(bytes.size())});
  }
  // Under the lock: the sender may not go on, or give up, before the bytes are taken.
  if (!sent.empty()) std::memcpy(bytes.data(), sent.data(), sent.size());
  box.front()->taken = true;
  box.pop_front();
  changed_.notify_all();
}

void group::fail(error const& why) noexcept {
  std::scoped_lock const lock{mutex_};
  fail_locked(why);
}

void group::leave(std::size_t rank) noexcept {
  std::scoped_lock const lock{mutex_};
  left_[rank] = true;
  changed_.notify_all();
}

void group::adopt(std::shared_ptr<group> const& child) {
  std::scoped_lock const lock{mutex_};
  throw_if_failed();
  std::erase_if(children_, [](auto const& old) { return old.expired(); });
  children_.push_back(child);
}

void group::fail_locked(error const& why) noexcept {
  if (failure_) return;
  failure_ = why;
  changed_.notify_all();
  for (auto const& child : children_) {
    if (auto const alive = child.lock()) alive->fail(why);
  }
}

void group::fail_and_throw(error const& why) {
  fail_locked(why);
  throw error{why};
}

void group::throw_if_failed() const {
  if (failure_) throw error{*failure_};
}

}  // namespace gradwire::inproc
