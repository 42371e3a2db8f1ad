#pragma once

#include <memory_resource>

#include <gradwire/stream.hpp>

namespace gradwire {

//! Where work runs. Functions that take it enqueue on `stream` and return without synchronising; scratch comes from
//! `memory`. On the CPU that is host memory, and the resource must be usable from the stream's thread. On CUDA it is a
//! cuda::scratch of the same stream; the default resource stands for the driver's own pool there.
struct exec {
  device_kind kind = device_kind::cpu;
  int device = 0;
  stream_ref stream{};
  std::pmr::memory_resource* memory = std::pmr::get_default_resource();
};

}  // namespace gradwire
