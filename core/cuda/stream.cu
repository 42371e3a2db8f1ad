#include <gradwire/cuda/stream.hpp>

#include <algorithm>
#include <exception>
#include <memory>
#include <thread>
#include <utility>

#include "core/cuda/check.cuh"
#include "core/cuda/faults.cuh"
#include "core/event_state.hpp"

namespace gradwire {
namespace cuda {
namespace {

// A wait with a limit has to ask again and again: first at once, for the short ones, then less often.
template <class Ask>
bool poll(Ask&& is_done, std::chrono::milliseconds timeout) {
  using clock = std::chrono::steady_clock;
  auto const until = timeout == no_timeout ? clock::time_point::max() : clock::now() + timeout;
  std::chrono::microseconds pause{0};
  while (!is_done()) {
    if (clock::now() >= until) return false;
    if (pause.count() == 0) {
      std::this_thread::yield();
      pause = std::chrono::microseconds{1};
    } else {
      std::this_thread::sleep_for(pause);
      pause = std::min(2 * pause, std::chrono::microseconds{200});
    }
  }
  return true;
}

class cuda_point final : public event::state {
 public:
  explicit cuda_point(stream_ref stream) : stream_{stream} {
    check(cudaEventCreateWithFlags(&event_, cudaEventDisableTiming), "cudaEventCreate");
  }
  ~cuda_point() override { static_cast<void>(cudaEventDestroy(event_)); }

  void record() const { check(cudaEventRecord(event_, native(stream_)), "cudaEventRecord"); }

  [[nodiscard]] bool ready() const override {
    cudaError_t const code = cudaEventQuery(event_);
    if (code == cudaErrorNotReady) return false;
    check(code, "cudaEventQuery");
    return true;
  }

  void wait(std::chrono::milliseconds timeout) override { wait(timeout, false); }
  void wait(std::chrono::milliseconds timeout, bool forget) {
    if (!poll([&] { return ready(); }, timeout)) time_out(timeout);
    throw_fault(stream_, forget);
  }

  void hold(stream_ref later) const { check(cudaStreamWaitEvent(native(later), event_, 0), "cudaStreamWaitEvent"); }

 private:
  cudaEvent_t event_ = nullptr;
  stream_ref stream_;
};

std::shared_ptr<cuda_point> point_behind(stream_ref stream) {
  auto point = std::make_shared<cuda_point>(stream);
  point->record();
  return point;
}

std::shared_ptr<event::state> record(stream_ref stream) { return point_behind(stream); }

struct host_wait {
  std::shared_ptr<event::state> point;
  std::chrono::milliseconds timeout;
};

// Runs on the driver's thread, which the CUDA stream waits for. Nothing may be thrown into it: a failure before the
// host point belongs to the host stream, which reports it.
void await_host_point(void* argument) {
  std::unique_ptr<host_wait> const what{static_cast<host_wait*>(argument)};
  try {
    what->point->wait(what->timeout);
  } catch (std::exception const&) {
    return;
  }
}

void wait(stream_ref stream, std::shared_ptr<event::state> const& point, std::chrono::milliseconds timeout) {
  if (auto const* const device = dynamic_cast<cuda_point const*>(point.get())) return device->hold(stream);
  if (point->ready()) return point->wait(timeout);
  auto what = std::make_unique<host_wait>(host_wait{point, timeout});
  check(cudaLaunchHostFunc(native(stream), await_host_point, what.get()), "cudaLaunchHostFunc");
  static_cast<void>(what.release());
}

void synchronize(stream_ref stream, std::chrono::milliseconds timeout) { point_behind(stream)->wait(timeout, true); }

}  // namespace

int device_count() {
  int count = 0;
  if (cudaGetDeviceCount(&count) == cudaSuccess) return count;
  static_cast<void>(cudaGetLastError());  // no driver, no device
  return 0;
}

stream::stream(int device) : device_{device} {
  device_guard const current{device};
  cudaStream_t made = nullptr;
  check(cudaStreamCreateWithFlags(&made, cudaStreamNonBlocking), "cudaStreamCreate");
  handle_ = made;
}

stream::~stream() {
  if (handle_ == nullptr) return;
  static_cast<void>(cudaStreamDestroy(static_cast<cudaStream_t>(handle_)));
  forget_faults(ref());
}

stream::stream(stream&& other) noexcept : handle_{std::exchange(other.handle_, nullptr)}, device_{other.device_} {}

stream& stream::operator=(stream&& other) noexcept {
  std::swap(handle_, other.handle_);
  std::swap(device_, other.device_);
  return *this;
}

}  // namespace cuda

device_streams const* cuda_streams() noexcept {
  static constexpr device_streams functions{cuda::record, cuda::wait, cuda::synchronize};
  return &functions;
}

}  // namespace gradwire
