#pragma once

#include <chrono>
#include <cstdint>
#include <string_view>

namespace gradwire::program {

//! While one lives, SIGINT and SIGTERM set a flag instead of ending the process, and SIGCHLD wakes `wait_for_signal`.
//! Nests. Construct it on the main thread, before other threads start.
class signal_guard {
 public:
  signal_guard();
  ~signal_guard();
  signal_guard(signal_guard const&) = delete;
  signal_guard& operator=(signal_guard const&) = delete;
};

//! True once SIGINT or SIGTERM came. Any thread.
[[nodiscard]] bool interrupted() noexcept;
//! How often they came: after the second, do not wait for anybody.
[[nodiscard]] int interruptions() noexcept;
//! Throws interrupted_error once SIGINT or SIGTERM came.
void throw_if_interrupted();
//! Sleeps until SIGINT, SIGTERM or SIGCHLD comes, or the time is up. One thread at a time; needs a signal_guard.
void wait_for_signal(std::chrono::milliseconds timeout);

}  // namespace gradwire::program
