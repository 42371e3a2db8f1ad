#include "comm/rendezvous/board.hpp"

#include <algorithm>
#include <charconv>
#include <utility>

#include <gradwire/error.hpp>

#include "comm/host_communicator.hpp"
#include "comm/rendezvous/file_board.hpp"
#include "comm/rendezvous/tcp_board.hpp"

namespace gradwire {
namespace {

constexpr std::string_view lost_prefix = "lost/";

std::size_t to_rank(std::string const& text) {
  std::size_t rank = 0;
  std::from_chars(text.data(), text.data() + text.size(), rank);
  return rank;
}

}  // namespace

bool board::wait_until(std::function<bool()> const& enough, clock::time_point deadline) const {
  std::unique_lock lock{mutex_};
  ++waiting_;
  // `enough` reads the board, so it is asked without the lock; the count of changes tells whether to ask again.
  bool satisfied = false;
  for (;;) {
    auto const seen = entries_.size() + (closed_ ? 1 : 0);
    lock.unlock();
    satisfied = enough();
    lock.lock();
    if (satisfied) break;
    auto const moved = [&] { return entries_.size() + (closed_ ? 1 : 0) != seen; };
    if (!changed_.wait_until(lock, deadline, moved)) break;
  }
  --waiting_;
  return satisfied;
}

std::string board::wait_for(std::string const& key, clock::time_point deadline) const {
  std::optional<std::string> value;
  std::vector<std::size_t> gone;
  std::optional<std::string> closed;
  bool const ended = wait_until(
      [&] {
        value = find(key);
        gone = lost();
        std::scoped_lock const lock{mutex_};
        closed = closed_;
        return value || !gone.empty() || closed;
      },
      deadline);
  if (value) return *value;
  if (!ended) throw error{errc::timeout, "nobody published '" + key + "' in time"};
  if (!gone.empty()) throw error{errc::communicator, name_ranks(gone) + " died"};
  throw error{errc::communicator, closed->empty() ? "the rendezvous has ended: rank 0 left" : *closed};
}

std::optional<std::string> board::find(std::string const& key) const {
  std::scoped_lock const lock{mutex_};
  auto const at = entries_.find(key);
  return at == entries_.end() ? std::nullopt : std::optional{at->second};
}

std::map<std::string, std::string> board::entries(std::string_view prefix) const {
  std::map<std::string, std::string> result;
  std::scoped_lock const lock{mutex_};
  for (auto at = entries_.lower_bound(std::string{prefix}); at != entries_.end() && at->first.starts_with(prefix);
       ++at) {
    result.emplace(at->first.substr(prefix.size()), at->second);
  }
  return result;
}

std::vector<std::size_t> board::lost() const {
  std::vector<std::size_t> ranks;
  for (auto const& [rank, reason] : entries(lost_prefix)) ranks.push_back(to_rank(rank));
  std::sort(ranks.begin(), ranks.end());
  return ranks;
}

void board::learn(std::string const& key, std::string const& value) {
  {
    std::scoped_lock const lock{mutex_};
    if (!entries_.emplace(key, value).second) return;
    changed_.notify_all();
  }
  notify();
}

void board::close(std::string const& why) {
  {
    std::scoped_lock const lock{mutex_};
    if (closed_) return;
    closed_ = why;
    changed_.notify_all();
  }
  notify();
}

bool board::someone_waits() const {
  std::scoped_lock const lock{mutex_};
  return waiting_ != 0;
}

void board::notify() {
  std::scoped_lock const lock{subscribers_mutex_};
  for (auto const* const subscriber : subscribers_) subscriber->callback_();
}

board::subscription::subscription(board& owner, std::function<void()> callback)
    : owner_{owner}, callback_{std::move(callback)} {
  std::scoped_lock const lock{owner_.subscribers_mutex_};
  owner_.subscribers_.push_back(this);
}

board::subscription::~subscription() {
  std::scoped_lock const lock{owner_.subscribers_mutex_};
  std::erase(owner_.subscribers_, this);
}

std::shared_ptr<meeting> meet(std::string const& address, std::size_t rank, std::size_t size,
                              std::chrono::milliseconds timeout) {
  auto const deadline = board::clock::now() + timeout;
  std::shared_ptr<meeting> result;
  if (address.starts_with("tcp://")) {
    result = std::make_shared<tcp_board>(address, rank, size, deadline);
  } else if (address.starts_with("file:///")) {
    result = std::make_shared<file_board>(address.substr(7), rank, size, deadline);
  } else {
    throw error{errc::invalid_argument,
                "the rendezvous is '" + address + "': give tcp://host:port or file:///folder (GRADWIRE_RENDEZVOUS)"};
  }
  result->publish("here/" + std::to_string(rank), "");
  std::vector<std::size_t> missing;
  try {
    for (std::size_t r = 0; r < size; ++r) {
      try {
        static_cast<void>(result->wait_for("here/" + std::to_string(r), deadline));
      } catch (error const& why) {
        if (why.code() != errc::timeout) throw;
        missing.push_back(r);
      }
    }
  } catch (error const& why) {
    // Rank 0 gave up first and said why.
    if (auto const text = result->find("gave up")) throw error{errc::timeout, *text};
    throw error{why.code(), "start-up at " + address + ": " + why.what()};
  }
  if (missing.empty()) return result;
  auto const text = name_ranks(missing) + " of " + std::to_string(size) + " did not come to " + address + " within " +
                    std::to_string(timeout.count()) +
                    " ms: start all ranks with the same rendezvous and look at the output of the missing ones";
  try {
    result->publish("gave up", text);
  } catch (error const&) {  // the board may have ended by now; the text below is the same
  }
  throw error{errc::timeout, text};
}

}  // namespace gradwire
