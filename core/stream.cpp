#include <gradwire/stream.hpp>

#include <pthread.h>

#include <condition_variable>
#include <deque>
#include <exception>
#include <mutex>
#include <thread>
#include <utility>

#include <gradwire/error.hpp>

#include "core/event_state.hpp"

namespace gradwire {

void event::state::time_out(std::chrono::milliseconds timeout) {
  throw error{errc::timeout, "an event was not reached within " + std::to_string(timeout.count()) +
                                 " ms: the stream before it is blocked or very slow"};
}

class host_point final : public event::state {
 public:
  void reach(std::exception_ptr why) {
    std::scoped_lock const lock{mutex_};
    reached_ = true;
    failure_ = std::move(why);
    changed_.notify_all();
  }

  [[nodiscard]] bool ready() const override {
    std::scoped_lock const lock{mutex_};
    return reached_;
  }

  void wait(std::chrono::milliseconds timeout) override {
    std::unique_lock lock{mutex_};
    auto const there = [&] { return reached_; };
    if (timeout == no_timeout) {
      changed_.wait(lock, there);
    } else if (!changed_.wait_for(lock, timeout, there)) {
      time_out(timeout);
    }
    if (failure_) std::rethrow_exception(failure_);
  }

 private:
  mutable std::mutex mutex_;
  std::condition_variable changed_;
  bool reached_ = false;
  std::exception_ptr failure_;
};

struct host_stream::state {
  // Markers (event records) run even when the stream has failed, so that nobody waits for ever.
  struct item {
    std::function<void()> task;
    std::shared_ptr<host_point> marker;
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

host_stream::state* host_state(stream_ref stream) { return static_cast<host_stream::state*>(stream.handle); }

//! Null for host streams.
device_streams const* device_functions(stream_ref stream) {
  if (stream.kind == device_kind::cpu) return nullptr;
  if (device_streams const* const functions = cuda_streams()) return functions;
  throw error{errc::unsupported,
              "a CUDA stream was passed to a build without CUDA: configure with GRADWIRE_CUDA=ON, or pass a "
              "host_stream's ref()"};
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
  if (auto const* const device = device_functions(stream)) {
    state_ = device->record(stream);
    return;
  }
  auto const point = std::make_shared<host_point>();
  state_ = point;
  if (auto* const host = host_state(stream)) {
    host->push({nullptr, point});
  } else {
    point->reach(nullptr);
  }
}

bool event::ready() const { return !state_ || state_->ready(); }

void event::wait(std::chrono::milliseconds timeout) const {
  if (state_) state_->wait(timeout);
}

void enqueue(stream_ref stream, std::function<void()> task) {
  if (device_functions(stream) != nullptr) {
    throw error{errc::unsupported, "a host task cannot be enqueued on a CUDA stream: use a host stream and an event"};
  }
  if (auto* const host = host_state(stream)) {
    host->push({std::move(task), nullptr});
  } else {
    task();
  }
}

void wait(stream_ref stream, event const& point, std::chrono::milliseconds timeout) {
  if (!point.state_) return;
  if (auto const* const device = device_functions(stream)) return device->wait(stream, point.state_, timeout);
  enqueue(stream, [state = point.state_, timeout] { state->wait(timeout); });
}

void synchronize(stream_ref stream, std::chrono::milliseconds timeout) {
  if (auto const* const device = device_functions(stream)) return device->synchronize(stream, timeout);
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
