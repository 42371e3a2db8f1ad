#pragma once

#include <chrono>
#include <functional>
#include <thread>

namespace gradwire::program {

//! While one lives, SIGINT, SIGTERM and SIGHUP (unless nohup made it ignored) set a flag instead of ending the process,
//! and SIGCHLD wakes `wait_for_signal`. Nests. Construct it on the main thread, before other threads start.
class signal_guard {
 public:
  signal_guard();
  ~signal_guard();
  signal_guard(signal_guard const&) = delete;
  signal_guard& operator=(signal_guard const&) = delete;
};

//! True once SIGINT, SIGTERM or SIGHUP came. Any thread.
[[nodiscard]] bool interrupted() noexcept;
//! How often they came: after the second, do not wait for anybody. Those within a fifth of a second of the first count
//! as one: launchers and timeout(1) send them to a process and once more to its group.
[[nodiscard]] int interruptions() noexcept;
//! Throws interrupted_error once one of them came.
void throw_if_interrupted();
//! Sleeps until one of them or SIGCHLD comes, or the time is up. One thread at a time; needs a signal_guard.
void wait_for_signal(std::chrono::milliseconds timeout);

//! For waits that do not look at the flag (a rendezvous, a collective). While one lives, a thread of its own calls
//! `first` once, `grace` after the first interruption, and ends the process at once (end_at_once) at the second.
class interrupt_watch {
 public:
  explicit interrupt_watch(std::function<void()> first, std::chrono::milliseconds grace = {});

 private:
  std::jthread thread_;
};

}  // namespace gradwire::program
