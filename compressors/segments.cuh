#pragma once
//! A bucket's segments in a kernel: one launch serves them all.

#include <cuda_runtime.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include <gradwire/codec.hpp>
#include <gradwire/cuda/memory.hpp>

#include "core/cuda/launch.cuh"

namespace gradwire::device {

//! A list that is passed to a kernel. A short one lies in the kernel's parameters, a longer one in device memory.
template <class T, unsigned Few>
struct list {
  T const* more = nullptr;
  unsigned count = 0;
  T few[Few] = {};

  [[nodiscard]] __device__ T const& operator[](unsigned i) const { return more == nullptr ? few[i] : more[i]; }
};

//! What one launch carries to device memory: kernel parameters are copied when a launch is captured into a graph, so a
//! replay finds them, which it would not in a buffer of the host's.
template <class T>
struct freight {
  static constexpr unsigned capacity = 3584 / sizeof(T);
  T items[capacity] = {};
};

template <class T>
__global__ void unload_kernel(__grid_constant__ freight<T> const from, T* to, unsigned count) {
  for (unsigned i = threadIdx.x; i < count; i += blockDim.x) to[i] = from.items[i];
}

//! Makes a list for kernels on one stream; its device memory is freed behind them when this is destroyed.
template <class T, unsigned Few>
class shipped {
 public:
  shipped(exec const& on, std::span<T const> all) {
    view_.count = static_cast<unsigned>(all.size());
    if (all.size() <= Few) {
      std::copy(all.begin(), all.end(), view_.few);
      return;
    }
    memory_ = cuda::device_buffer{all.size_bytes(), on};
    T* to = reinterpret_cast<T*>(memory_.data());
    view_.more = to;
    while (!all.empty()) {
      freight<T> load;
      std::size_t const count = std::min<std::size_t>(freight<T>::capacity, all.size());
      std::copy_n(all.begin(), count, load.items);
      cuda::launch(on, "the upload of a list", unload_kernel<T>, 1, 64, load, to, static_cast<unsigned>(count));
      all = all.subspan(count);
      to += count;
    }
  }

  [[nodiscard]] list<T, Few> const& view() const { return view_; }

 private:
  cuda::device_buffer memory_;
  list<T, Few> view_;
};

//! A segment: where it lies, and the first of its units of work, which are numbered through the bucket.
struct part {
  std::size_t gradient;
  std::size_t residual;
  std::size_t payload;  //!< bytes
  std::size_t count;
  std::size_t first;
  std::size_t unit;
  std::uint32_t tensor_id;
};

// Together under the 4 KiB that a kernel's parameters may take.
using part_list = list<part, 32>;
using payload_list = list<std::byte const*, 64>;
using shipped_parts = shipped<part, 32>;
using shipped_payloads = shipped<std::byte const*, 64>;

struct bucket {
  std::vector<part> parts;  //!< segments that are not empty
  std::size_t units = 0;
  std::size_t bytes = 0;  //!< of the payload
};

//! `units_of(count)` and `bytes_of(count)`: units of work and payload bytes of a segment.
template <class Units, class Bytes>
[[nodiscard]] bucket make_bucket(std::span<segment const> segments, Units&& units_of, Bytes&& bytes_of) {
  bucket made;
  made.parts.reserve(segments.size());
  for (segment const& one : segments) {
    if (one.count != 0) {
      made.parts.push_back(
          {one.offset, one.residual_offset, made.bytes, one.count, one.first, made.units, one.tensor_id});
    }
    made.units += units_of(one.count);
    made.bytes += bytes_of(one.count);
  }
  return made;
}

//! The part that holds a unit.
[[nodiscard]] __device__ inline part const& part_of(part_list const& parts, std::size_t unit) {
  unsigned low = 0;
  unsigned high = parts.count;
  while (high - low > 1) {
    unsigned const middle = low + (high - low) / 2;
    (parts[middle].unit <= unit ? low : high) = middle;
  }
  return parts[low];
}

}  // namespace gradwire::device
