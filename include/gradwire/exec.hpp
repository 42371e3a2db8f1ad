#pragma once

#include <memory_resource>

#include <gradwire/stream.hpp>

namespace gradwire {

//! Where work runs. Functions that take it enqueue on `stream` and return without synchronising; scratch comes from
//! `memory` (host memory on CPU; the resource must be usable from the stream's thread).
struct exec {
  device_kind kind = device_kind::cpu;
  int device = 0;
  stream_ref stream{};
  std::pmr::memory_resource* memory = std::pmr::get_default_resource();
};

}  // namespace gradwire
