#pragma once

#include <chrono>
#include <condition_variable>
#include <cstddef>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace gradwire {

//! A notice board that the ranks of a run share: what one publishes, all see. Ranks meet through it, and after a
//! failure it tells who is to blame. A rank that ends without leave() appears as "lost/<rank>".
//!
//! Each rank keeps a whole copy, so that reading never waits for a network. Keys and values are small (under 1 MiB).
class board {
 public:
  using clock = std::chrono::steady_clock;

  virtual ~board() = default;
  board(board const&) = delete;
  board& operator=(board const&) = delete;
  board(board&&) = delete;
  board& operator=(board&&) = delete;

  //! Values are never changed: the first one published under a key stays. Throws errc::communicator when the board is
  //! gone.
  virtual void publish(std::string const& key, std::string const& value) = 0;

  //! Waits for a key. Throws errc::timeout, or errc::communicator as soon as a rank is lost or the board is gone.
  [[nodiscard]] std::string wait_for(std::string const& key, clock::time_point deadline) const;
  [[nodiscard]] std::optional<std::string> find(std::string const& key) const;
  //! Entries whose key begins with `prefix`, by the rest of the key.
  [[nodiscard]] std::map<std::string, std::string> entries(std::string_view prefix) const;
  [[nodiscard]] std::vector<std::size_t> lost() const;
  //! Waits until `enough` holds, looking again after each change; false when the deadline came first.
  bool wait_until(std::function<bool()> const& enough, clock::time_point deadline) const;

  //! Calls `callback` after each change, on whichever thread learns of it (the board's own, or one that publishes),
  //! until the subscription is destroyed; its destructor waits for a running call.
  class subscription {
   public:
    subscription(board& owner, std::function<void()> callback);
    ~subscription();
    subscription(subscription const&) = delete;
    subscription& operator=(subscription const&) = delete;
    subscription(subscription&&) = delete;
    subscription& operator=(subscription&&) = delete;

   private:
    friend class board;
    board& owner_;
    std::function<void()> callback_;
  };

 protected:
  board() = default;
  //! For implementations: enters what was learned, wakes waiters and calls subscribers.
  void learn(std::string const& key, std::string const& value);
  //! The board can change no more; `why` is empty after an orderly end.
  void close(std::string const& why);
  [[nodiscard]] bool someone_waits() const;

 private:
  void notify();

  mutable std::mutex mutex_;
  mutable std::condition_variable changed_;
  mutable std::size_t waiting_ = 0;
  std::map<std::string, std::string> entries_;
  std::optional<std::string> closed_;
  std::mutex subscribers_mutex_;
  std::vector<subscription*> subscribers_;
};

//! A board at an address, where ranks that know nothing else of each other meet.
class meeting : public board {
 public:
  //! The address of this machine that other ranks reach; known once all ranks have met.
  [[nodiscard]] virtual std::string local_address(clock::time_point deadline) = 0;
};

//! Opens the board at "tcp://host:port" or "file:///folder" and waits until all `size` ranks have come. Throws
//! errc::timeout that names the ranks that did not, errc::invalid_argument for another form of address.
[[nodiscard]] std::shared_ptr<meeting> meet(std::string const& address, std::size_t rank, std::size_t size,
                                            std::chrono::milliseconds timeout);

}  // namespace gradwire
