#pragma once

#include <barrier>
#include <chrono>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include <gradwire/communicator.hpp>
#include <gradwire/error.hpp>

namespace gradwire::test {

//! How each rank's body ended: empty for well.
using outcomes = std::vector<std::optional<error>>;

//! A group about to be joined, whatever the transport. Its ranks are threads of this process, unless a transport says
//! otherwise.
class world {
 public:
  explicit world(std::size_t size);
  virtual ~world() = default;
  //! Called once per rank, on that rank's thread.
  [[nodiscard]] virtual std::unique_ptr<communicator> join(std::size_t rank) = 0;
  //! Waits until all ranks have come here, however their group fares.
  virtual void meet() { gate_.arrive_and_wait(); }
  //! The ranks that this process runs.
  [[nodiscard]] virtual std::vector<std::size_t> ranks_here() const { return ranks_; }
  //! Fills in how the ranks of other processes ended, once all have.
  virtual void complete(outcomes& results) { static_cast<void>(results); }

 private:
  std::vector<std::size_t> ranks_;
  std::barrier<> gate_;
};

//! A transport as the conformance suite sees it.
struct transport_case {
  std::string name;
  std::function<std::unique_ptr<world>(std::size_t size, std::chrono::milliseconds timeout)> make;
};

inline constexpr std::chrono::milliseconds patience{20'000};

//! Runs `body` on each rank; a rank that throws aborts the group.
[[nodiscard]] outcomes run_each(transport_case const& transport, std::size_t size,
                                std::function<void(communicator&, world&)> const& body,
                                std::chrono::milliseconds timeout = patience);
[[nodiscard]] outcomes run_each(transport_case const& transport, std::size_t size,
                                std::function<void(communicator&)> const& body,
                                std::chrono::milliseconds timeout = patience);

//! As run_each; fails the test with the texts when a rank threw.
void run_all(transport_case const& transport, std::size_t size, std::function<void(communicator&)> const& body);

//! A folder of its own, removed with all it holds.
class temporary_folder {
 public:
  temporary_folder();
  ~temporary_folder();
  temporary_folder(temporary_folder const&) = delete;
  temporary_folder& operator=(temporary_folder const&) = delete;
  temporary_folder(temporary_folder&&) = delete;
  temporary_folder& operator=(temporary_folder&&) = delete;
  [[nodiscard]] std::string const& path() const { return path_; }

 private:
  std::string path_;
};

//! A TCP port that nobody listened on just now.
[[nodiscard]] std::uint16_t free_port();

}  // namespace gradwire::test
