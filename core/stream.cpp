#include <gradwire/stream.hpp>

#include <pthread.h>

#include <condition_variable>
#include <deque>
#include <exception>
#include <mutex>
#include <thread>
#include <utility>

#include <gradwire/error.hpp>

namespace gradwire {

struct event::state {
  std::mutex mutex;
  std::condition_variable changed;
  bool reached = false;
  std::exception_ptr failure;

  void reach(std::exception_ptr why) {
    std::scoped_lock const lock{mutex};
    reached = true;
    failure = std::move(why);
    changed.notify_all();
  }

  // Blocks; rethrows the failure before the point.
  void wait(std::chrono::milliseconds timeout) {
    std::unique_lock lock{mutex};
    auto const there = [&] { return reached; };
    if (timeout == no_timeout) {
      changed.wait(lock, there);
    } else if (!changed.wait_for(lock, timeout, there)) {
      throw error{errc::timeout, "an event was not reached within " + std::to_string(timeout.count()) +
                                     " ms: the stream before it is blocked or very slow"};
    }
    if (failure) std::rethrow_exception(failure);
  }
};

struct host_stream::state {
  // Markers (event records) run even when the stream has failed, so that nobody waits for ever.
  struct item {
    std::function<void()> task;
    std::shared_ptr<event::state> marker;
  };

  std::mutex mutex;
  std::condition_variable changed;
  std::deque<item> queue;
  bool stopping = false;
  std::exception_ptr failure;
  std::thread worker;

  void push(item next) {
    std::scoped_lock const lock{mutex};
    queue.push_back(std::move(next));
    changed.notify_one();
  }

  void run() {
    for (;;) {
      item next;
      std::exception_ptr failed;
      {
        std::unique_lock lock{mutex};
        changed.wait(lock, [&] { return stopping || !queue.empty(); });
        if (queue.empty()) return;
        next = std::move(queue.front());
        queue.pop_front();
        failed = failure;
      }
      if (next.marker) {
        next.marker->reach(failed);
        continue;
      }
      if (failed) continue;
      try {
        next.task();
      } catch (...) {
        std::scoped_lock const lock{mutex};
        failure = std::current_exception();
      }
    }
  }

  // Once somebody was told of it.
  void forget(std::exception_ptr const& reported) {
    std::scoped_lock const lock{mutex};
    if (failure == reported) failure = nullptr;
  }
};

namespace {

host_stream::state* host_state(stream_ref stream) {
  if (stream.kind != device_kind::cpu) {
    throw error{errc::unsupported,
                "a CUDA stream was passed to a build without CUDA: pass a host_stream's ref(), or {}"};
  }
  return static_cast<host_stream::state*>(stream.handle);
}

}  // namespace

host_stream::host_stream(std::string const& name) : state_{std::make_unique<state>()} {
  state_->worker = std::thread{[raw = state_.get()] { raw->run(); }};
#if defined(__linux__)
  pthread_setname_np(state_->worker.native_handle(), name.substr(0, 15).c_str());
#else
  static_cast<void>(name);
#endif
}

host_stream::~host_stream() {
  {
    std::scoped_lock const lock{state_->mutex};
    state_->stopping = true;
    state_->changed.notify_one();
  }
  state_->worker.join();
}

stream_ref host_stream::ref() noexcept { return {device_kind::cpu, state_.get()}; }

void event::record(stream_ref stream) {
  auto* const host = host_state(stream);
  state_ = std::make_shared<state>();
  if (host == nullptr) {
    state_->reach(nullptr);
  } else {
    host->push({nullptr, state_});
  }
}

bool event::ready() const {
  if (!state_) return true;
  std::scoped_lock const lock{state_->mutex};
  return state_->reached;
}

void event::wait(std::chrono::milliseconds timeout) const {
  if (state_) state_->wait(timeout);
}

void enqueue(stream_ref stream, std::function<void()> task) {
  auto* const host = host_state(stream);
  if (host == nullptr) {
    task();
  } else {
    host->push({std::move(task), nullptr});
  }
}

void wait(stream_ref stream, event const& point, std::chrono::milliseconds timeout) {
  if (!point.state_) return;
  enqueue(stream, [state = point.state_, timeout] { state->wait(timeout); });
}

void synchronize(stream_ref stream, std::chrono::milliseconds timeout) {
  auto* const host = host_state(stream);
  if (host == nullptr) return;
  event done;
  done.record(stream);
  try {
    done.wait(timeout);
  } catch (...) {
    // The stream's failure is reported here and so no longer sticks. A timeout of ours is none.
    host->forget(std::current_exception());
    throw;
  }
}

}  // namespace gradwire
