#pragma once

#include <gradwire/stream.hpp>

namespace gradwire::cuda {

//! CUDA devices of this machine; 0 without a driver.
[[nodiscard]] int device_count();

//! Owns a CUDA stream of one device, which never waits for the default stream. Move-only.
class stream {
 public:
  //! Throws errc::cuda.
  explicit stream(int device = 0);
  //! Work that is queued still runs. Never throws.
  ~stream();
  stream(stream&& other) noexcept;
  stream& operator=(stream&& other) noexcept;
  stream(stream const&) = delete;
  stream& operator=(stream const&) = delete;

  [[nodiscard]] stream_ref ref() const noexcept { return {device_kind::cuda, handle_}; }
  [[nodiscard]] int device() const noexcept { return device_; }

 private:
  void* handle_ = nullptr;
  int device_ = 0;
};

}  // namespace gradwire::cuda
