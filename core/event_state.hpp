#pragma once

#include <chrono>
#include <memory>

#include <gradwire/stream.hpp>

namespace gradwire {

//! A point in a stream of either kind.
struct event::state {
  state() = default;
  state(state const&) = delete;
  state& operator=(state const&) = delete;
  virtual ~state() = default;
  [[nodiscard]] virtual bool ready() const = 0;
  //! Blocks; rethrows the failure before the point; throws errc::timeout.
  virtual void wait(std::chrono::milliseconds timeout) = 0;

 protected:
  [[noreturn]] static void time_out(std::chrono::milliseconds timeout);
};

//! What stream functions do on CUDA streams.
struct device_streams {
  std::shared_ptr<event::state> (*record)(stream_ref);
  //! `timeout` is for points of host streams.
  void (*wait)(stream_ref, std::shared_ptr<event::state> const&, std::chrono::milliseconds timeout);
  void (*synchronize)(stream_ref, std::chrono::milliseconds timeout);
};

//! Null in a build without CUDA (core/no_cuda.cpp).
[[nodiscard]] device_streams const* cuda_streams() noexcept;

}  // namespace gradwire
