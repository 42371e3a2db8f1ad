#include "program/common/interrupt.hpp"

#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <unistd.h>

#include <array>
#include <atomic>
#include <cerrno>

#include <gradwire/error.hpp>

#include "program/common/context.hpp"

namespace gradwire::program {
namespace {

std::atomic<int> count{0};
std::atomic<int> wake_fd{-1};
static_assert(std::atomic<int>::is_always_lock_free, "the signal handler touches them");

struct installed_state {
  int guards = 0;
  std::array<int, 2> pipe{-1, -1};
  std::array<struct sigaction, 3> before{};
};
constexpr std::array<int, 3> watched{SIGINT, SIGTERM, SIGCHLD};

installed_state& installed() {
  static installed_state state;
  return state;
}

extern "C" void on_signal(int number) {
  int const saved = errno;
  if (number != SIGCHLD) count.fetch_add(1);
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

}  // namespace gradwire::program
