#pragma once

#include <csignal>
#include <ctime>

namespace gradwire {

//! Gloo writes to sockets without MSG_NOSIGNAL, so a dead peer would end this process by SIGPIPE. While one of these
//! lives, its thread, and threads started from it, do not get that signal; what the host program set up for it stays.
class without_sigpipe {
 public:
  without_sigpipe() noexcept {
    sigset_t pending;
    sigpending(&pending);
    was_pending_ = sigismember(&pending, SIGPIPE) == 1;
    sigset_t const pipe = set();
    pthread_sigmask(SIG_BLOCK, &pipe, &before_);
  }
  ~without_sigpipe() {
    if (sigismember(&before_, SIGPIPE) == 1) return;
    if (!was_pending_) {
      sigset_t const pipe = set();
      timespec const no_wait{};
      while (sigtimedwait(&pipe, nullptr, &no_wait) == SIGPIPE) {
      }
    }
    pthread_sigmask(SIG_SETMASK, &before_, nullptr);
  }
  without_sigpipe(without_sigpipe const&) = delete;
  without_sigpipe& operator=(without_sigpipe const&) = delete;
  without_sigpipe(without_sigpipe&&) = delete;
  without_sigpipe& operator=(without_sigpipe&&) = delete;

 private:
  static sigset_t set() noexcept {
    sigset_t result;
    sigemptyset(&result);
    sigaddset(&result, SIGPIPE);
    return result;
  }

  sigset_t before_{};
  bool was_pending_ = false;
};

}  // namespace gradwire
