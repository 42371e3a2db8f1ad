#pragma once
//! The one way to launch a kernel.

#include <cuda_runtime.h>

#include <algorithm>
#include <cstddef>
#include <limits>

#include <gradwire/exec.hpp>

#include "core/cuda/check.cuh"

namespace gradwire::cuda {

//! Enqueues `kernel` on on.stream with `blocks` (at least 1) thread blocks of `threads`; does not synchronise. `what`
//! names it in errors. Arguments are copied when this returns; they take 4 KiB at most.
template <class... Parameters, class... Arguments>
void launch(exec const& on, char const* what, void (*kernel)(Parameters...), unsigned blocks, unsigned threads,
            Arguments const&... arguments) {
  device_guard const device{on.device};
  cudaLaunchConfig_t config{};
  config.gridDim = dim3{blocks};
  config.blockDim = dim3{threads};
  config.stream = native(on.stream);
  check(cudaLaunchKernelEx(&config, kernel, arguments...), what);
}

//! Thread blocks for `units` pieces of work that a kernel strides over: one each, up to `per_multiprocessor` times the
//! number of multiprocessors of the device.
[[nodiscard]] inline unsigned grid_for(exec const& on, std::size_t units, unsigned per_multiprocessor) {
  int multiprocessors = 0;
  check(cudaDeviceGetAttribute(&multiprocessors, cudaDevAttrMultiProcessorCount, on.device), "cudaDeviceGetAttribute");
  std::size_t const most = std::size_t{static_cast<unsigned>(multiprocessors)} * per_multiprocessor;
  return static_cast<unsigned>(std::max<std::size_t>(1, std::min(units, most)));
}

}  // namespace gradwire::cuda
