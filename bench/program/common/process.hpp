#pragma once

#include <sys/types.h>

#include <chrono>
#include <filesystem>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

namespace gradwire::program {

//! How a process ended.
struct process_end {
  bool signalled = false;
  int value = 0;  //!< signal number or exit status
  [[nodiscard]] bool good() const noexcept { return !signalled && value == 0; }
  //! "exit status 2" or "signal 9 (Killed)".
  [[nodiscard]] std::string text() const;
};

struct process_options {
  std::vector<std::string> arguments;                              //!< argv; [0] is looked up in PATH
  std::vector<std::pair<std::string, std::string>> environment{};  //!< added to this process's own
  std::filesystem::path output{};  //!< standard output goes to this file (appended); empty: this process's
  std::filesystem::path errors{};  //!< standard error likewise; may be the same file
};

//! A child in a process group of its own (so Ctrl-C reaches only its parent, which passes it on), standard input from
//! /dev/null. It is killed when the thread that made it ends: start it from the main thread.
class process {
 public:
  //! Throws program_error when it cannot be started (no such program, no right), with the reason.
  explicit process(process_options const& options);
  //! Kills the whole group if it still runs, and reaps it.
  ~process();
  process(process&& other) noexcept;
  process& operator=(process&&) = delete;
  process(process const&) = delete;

  [[nodiscard]] pid_t id() const noexcept { return id_; }
  //! Set once it has ended; does not block.
  [[nodiscard]] std::optional<process_end> poll();
  //! What poll() found so far.
  [[nodiscard]] std::optional<process_end> const& end() const noexcept { return end_; }
  //! To the whole group; nothing after its end.
  void signal(int number) noexcept;

 private:
  pid_t id_ = -1;
  std::optional<process_end> end_;
};

//! Sleeps until one of them that still ran at the call has ended (its index), the time is up, or SIGINT or SIGTERM came
//! (nullopt; see interrupted()). Needs a signal_guard, constructed before the processes.
[[nodiscard]] std::optional<std::size_t> wait_any(std::span<process> running, std::chrono::milliseconds timeout);

//! Asks the groups to end (SIGINT), and kills what is left after `grace` or at the next interruption.
void stop_all(std::span<process> running, std::chrono::milliseconds grace = std::chrono::seconds{3});

//! The path of this very program.
[[nodiscard]] std::string self_executable();

}  // namespace gradwire::program
