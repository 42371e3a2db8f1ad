#include "program/common/interrupt.hpp"

#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <time.h>
#include <unistd.h>

#include <array>
#include <atomic>
#include <cerrno>
#include <condition_variable>
#include <cstdint>
#include <mutex>
#include <optional>

#include <gradwire/error.hpp>

#include "program/common/context.hpp"
#include "program/common/end_at_once.hpp"

namespace gradwire::program {
namespace {

std::atomic<int> count{0};
std::atomic<std::int64_t> counted_at{0};  // in milliseconds; 0: never
std::atomic<int> wake_fd{-1};
static_assert(std::atomic<int>::is_always_lock_free && std::atomic<std::int64_t>::is_always_lock_free,
              "the signal handler touches them");
constexpr std::int64_t same_interruption_ms = 200;

struct installed_state {
  int guards = 0;
  std::array<int, 2> pipe{-1, -1};
  std::array<struct sigaction, 4> before{};
};
constexpr std::array<int, 4> watched{SIGINT, SIGTERM, SIGHUP, SIGCHLD};

installed_state& installed() {
  static installed_state state;
  return state;
}

void count_interruption() {
  timespec now{};
  clock_gettime(CLOCK_MONOTONIC, &now);
  std::int64_t const ms = std::int64_t{now.tv_sec} * 1000 + now.tv_nsec / 1'000'000 + 1;
  std::int64_t const before = counted_at.load();
  if (before != 0 && ms - before < same_interruption_ms) return;
  counted_at = ms;
  count.fetch_add(1);
}

extern "C" void on_signal(int number) {
  int const saved = errno;
  if (number != SIGCHLD) count_interruption();
  char const byte = 0;
  // A full pipe wakes the reader as well as a longer one would.
  if (write(wake_fd.load(), &byte, 1) < 0) errno = 0;
  errno = saved;
}

}  // namespace

signal_guard::signal_guard() {
  auto& state = installed();
  if (state.guards++ > 0) return;
  if (state.pipe[0] < 0) {
    if (pipe2(state.pipe.data(), O_CLOEXEC | O_NONBLOCK) != 0) {
      state.guards = 0;
      throw program_error{"no pipe left: raise the limit on open files (ulimit -n)"};
    }
    wake_fd = state.pipe[1];
  }
  for (std::size_t i = 0; i < watched.size(); ++i) {
    struct sigaction action {};
    action.sa_handler = on_signal;
    action.sa_flags = SA_RESTART;
    sigemptyset(&action.sa_mask);
    sigaction(watched[i], &action, &state.before[i]);
    // nohup asked to go on when the terminal goes away.
    bool const ignored = watched[i] == SIGHUP && state.before[i].sa_handler == SIG_IGN;
    if (ignored) sigaction(SIGHUP, &state.before[i], nullptr);
  }
}

signal_guard::~signal_guard() {
  auto& state = installed();
  if (--state.guards > 0) return;
  for (std::size_t i = 0; i < watched.size(); ++i) sigaction(watched[i], &state.before[i], nullptr);
}

bool interrupted() noexcept { return count.load() > 0; }
int interruptions() noexcept { return count.load(); }

void throw_if_interrupted() {
  if (interrupted()) throw interrupted_error{};
}

void wait_for_signal(std::chrono::milliseconds timeout) {
  int const fd = installed().pipe[0];
  expects(fd >= 0, "wait_for_signal: needs a signal_guard");
  pollfd wanted{fd, POLLIN, 0};
  if (poll(&wanted, 1, static_cast<int>(timeout.count())) <= 0) return;
  std::array<char, 64> bytes{};
  while (read(fd, bytes.data(), bytes.size()) > 0) {
  }
}

interrupt_watch::interrupt_watch(std::function<void()> first, std::chrono::milliseconds grace)
    : thread_{[first = std::move(first), grace](std::stop_token const& stop) {
        constexpr std::chrono::milliseconds look_every{50};
        using clock = std::chrono::steady_clock;
        std::optional<clock::time_point> due;
        bool called = false;
        std::mutex mutex;
        std::condition_variable_any never;  // wakes when the watch ends
        std::unique_lock lock{mutex};
        while (!stop.stop_requested()) {
          if (interruptions() > 1) end_at_once();
          if (interrupted() && !due) due = clock::now() + grace;
          if (due && !called && clock::now() >= *due) {
            called = true;
            first();
          }
          never.wait_for(lock, stop, look_every, [] { return false; });
        }
      }} {}

}  // namespace gradwire::program
