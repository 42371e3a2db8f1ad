#pragma once

#include <chrono>
#include <condition_variable>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include <gradwire/error.hpp>

namespace gradwire::inproc {

class group;

//! What one rank brings to a collective. All ranks must bring the same operation and `signature` (sizes, dtype, …).
struct call {
  char const* operation = "";
  std::vector<std::size_t> signature{};
  std::byte const* in = nullptr;
  std::byte* out = nullptr;
  std::vector<std::size_t> send_bytes{};  //!< all_to_all
  std::vector<std::size_t> recv_bytes{};
  std::shared_ptr<group> child{};  //!< split: what the leader of a color made
};

//! What the ranks of one group share: a gate that all pass together, a table of their calls, and letter boxes.
//!
//! The gate can be aborted and has a timeout, which std::barrier lacks. The first failure is the failure of the whole
//! group and of the groups split from it; every waiting and every later call of every rank throws it.
class group {
 public:
  using clock = std::chrono::steady_clock;

  group(std::size_t size, std::chrono::milliseconds timeout);

  [[nodiscard]] std::size_t size() const noexcept { return calls_.size(); }
  [[nodiscard]] std::chrono::milliseconds timeout() const noexcept { return timeout_; }

  //! Whether a rank still touches the others' memory after the gate.
  enum class then : bool { done, touches_memory };

  //! Publishes `mine` and waits until all ranks have published theirs; they may be read until the next meet().
  void enter(std::size_t rank, call mine, then next = then::touches_memory);
  //! Waits until all ranks have come here.
  void meet(std::size_t rank, then next = then::done);
  [[nodiscard]] call& at(std::size_t rank) { return calls_[rank]; }

  //! Waits until `to` has taken the bytes.
  void send(std::size_t from, std::size_t to, std::span<std::byte const> bytes);
  void recv(std::size_t to, std::size_t from, std::span<std::byte> bytes);

  //! Fails the group and its children, unless it has failed already.
  void fail(error const& why) noexcept;
  //! `rank` will not call again: whoever waits for it, now or later, fails at once.
  void leave(std::size_t rank) noexcept;
  void adopt(std::shared_ptr<group> const& child);

 private:
  struct letter {
    std::span<std::byte const> bytes;
    bool taken = false;
  };

  void pass(std::unique_lock<std::mutex>& lock, std::size_t rank, then next);
  void wait_at_gate(std::unique_lock<std::mutex>& lock, std::size_t rank);
  void check_agreement() const;
  [[nodiscard]] std::string describe(std::size_t rank) const;
  [[nodiscard]] std::vector<std::size_t> absent() const;
  void wait_for_peer(std::unique_lock<std::mutex>& lock, char const* operation, std::size_t peer,
                     std::function<bool()> const& done);
  void fail_locked(error const& why) noexcept;
  [[noreturn]] void fail_and_throw(error const& why);
  void throw_if_failed() const;

  std::chrono::milliseconds timeout_;
  mutable std::mutex mutex_;
  std::condition_variable changed_;
  std::vector<call> calls_;
  std::vector<bool> arrived_;
  std::vector<bool> left_;
  std::vector<bool> touching_;                // between two gates: may read what the others published
  std::vector<clock::time_point> deadlines_;  // of the operation that each rank is in
  std::size_t arrivals_ = 0;
  std::size_t generation_ = 0;
  std::map<std::pair<std::size_t, std::size_t>, std::deque<letter*>> boxes_;  // (from, to)
  std::optional<error> failure_;
  std::vector<std::weak_ptr<group>> children_;
};

}  // namespace gradwire::inproc
