#pragma once
//! CUDA's error codes as errors, and the current device.

#include <cuda_runtime.h>

#include <string>

#include <gradwire/error.hpp>
#include <gradwire/stream.hpp>

namespace gradwire::cuda {

//! Throws errc::cuda (errc::out_of_memory where that is it) with what was tried and CUDA's name and text of the error,
//! which is then forgotten by CUDA.
inline void check(cudaError_t code, char const* tried, source_line where = source_line::current()) {
  if (code == cudaSuccess) return;
  static_cast<void>(cudaGetLastError());
  bool const no_memory = code == cudaErrorMemoryAllocation;
  std::string text = std::string{tried} + " failed: " + cudaGetErrorName(code) + " (" + cudaGetErrorString(code) + ")";
  text += no_memory ? ": use smaller buckets or free device memory"
                    : ": see the CUDA documentation of this error; it may stem from an earlier launch on the device";
  throw error{no_memory ? errc::out_of_memory : errc::cuda, text, where};
}

//! Makes a device the current one for as long as it lives.
class device_guard {
 public:
  explicit device_guard(int device) {
    check(cudaGetDevice(&before_), "cudaGetDevice");
    if (device == before_) return;
    check(cudaSetDevice(device), "cudaSetDevice");
    changed_ = true;
  }
  ~device_guard() {
    if (changed_) static_cast<void>(cudaSetDevice(before_));
  }
  device_guard(device_guard const&) = delete;
  device_guard& operator=(device_guard const&) = delete;

 private:
  int before_ = 0;
  bool changed_ = false;
};

//! Throws errc::invalid_argument for a host stream and for the default stream, which waits for all others.
[[nodiscard]] inline cudaStream_t native(stream_ref stream) {
  expects(stream.kind == device_kind::cuda,
          "a host stream was passed where a CUDA stream is due: pass one of the device");
  expects(stream.handle != nullptr,
          "the default CUDA stream was passed, which waits for all others: pass a stream of your own");
  return static_cast<cudaStream_t>(stream.handle);
}

}  // namespace gradwire::cuda
