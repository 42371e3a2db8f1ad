#pragma once

#include <chrono>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include <gradwire/communicator.hpp>
#include <gradwire/error.hpp>

namespace gradwire::test {

//! A group about to be joined by threads of this process, whatever the transport.
class world {
 public:
  virtual ~world() = default;
  //! Called once per rank, on that rank's thread.
  [[nodiscard]] virtual std::unique_ptr<communicator> join(std::size_t rank) = 0;
};

//! A transport as the conformance suite sees it.
struct transport_case {
  std::string name;
  std::function<std::unique_ptr<world>(std::size_t size, std::chrono::milliseconds timeout)> make;
};

inline constexpr std::chrono::milliseconds patience{20'000};

//! How each rank's body ended: empty for well.
using outcomes = std::vector<std::optional<error>>;

//! Runs `body` on each rank; a rank that throws aborts the group.
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
