#pragma once
//! What topk's kernels share: segments with their payload's layout, and scratch that one call needs.

#include <cuda_runtime.h>

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include <gradwire/codec.hpp>
#include <gradwire/cuda/memory.hpp>

#include "compressors/access.cuh"
#include "compressors/feedback/format.hpp"
#include "compressors/segments.cuh"
#include "compressors/topk/topk.hpp"

namespace gradwire::topk {

//! How the work is cut: 8 elements a thread are two accesses of 16 bytes. Nobody has measured other values on a GPU
//! yet.
struct policy {
  static constexpr unsigned threads = 256;
  static constexpr unsigned warps = threads / 32;
  static constexpr unsigned per_thread = 8;
  static constexpr unsigned per_multiprocessor = 8;
  static constexpr std::size_t tile = std::size_t{threads} * per_thread;
};

//! A segment in a kernel.
struct task {
  std::size_t gradient;
  std::size_t residual;
  std::size_t payload;  //!< bytes
  topk::layout shape;
  std::size_t tile;    //!< the first of its tiles, which are numbered through the bucket
  std::size_t chunk;   //!< the first of its chunks of `threads` payload words
  std::size_t entry;   //!< the first of its kept elements
  std::size_t bitmap;  //!< the first of its words of bitmap
};

using task_list = device::list<task, 24>;
using shipped_tasks = device::shipped<task, 24>;

//! A bucket's tasks and how many of each unit it has.
struct plan {
  std::vector<task> tasks;
  std::size_t tiles = 0;
  std::size_t chunks = 0;
  std::size_t entries = 0;
  std::size_t bitmap = 0;

  plan(param_values const& params, std::span<segment const> segments) {
    for_each_segment(params, segments, [&](segment const& one, layout const& shape, std::size_t at) {
      tasks.push_back({one.offset, one.residual_offset, at, shape, tiles, chunks, entries, bitmap});
      tiles += (shape.count + policy::tile - 1) / policy::tile;
      chunks += (shape.words() + policy::threads - 1) / policy::threads;
      entries += shape.kept;
      bitmap += shape.upper_words;
    });
  }
};

//! The task that holds unit `unit`, of those that `first` numbers.
[[nodiscard]] __device__ inline unsigned task_of(task_list const& tasks, std::size_t task::*first, std::size_t unit) {
  unsigned low = 0;
  unsigned high = tasks.count;
  while (high - low > 1) {
    unsigned const middle = low + (high - low) / 2;
    (tasks[middle].*first <= unit ? low : high) = middle;
  }
  return low;
}

//! What is selected from: scale·in, with the residual added where there is one.
template <class T>
struct source {
  T const* in;
  float scale;
  float* residual;  //!< null: none

  __device__ void load(task const& of, std::size_t at, unsigned n, float (&x)[policy::per_thread]) const {
    float kept[policy::per_thread] = {};
    device::load_elements(x, in + of.gradient + at, n);
    if (residual != nullptr) device::load_elements(kept, residual + of.residual + at, n);
#pragma unroll
    for (unsigned j = 0; j < policy::per_thread; ++j) {
      x[j] = residual == nullptr ? scale * x[j] : feedback::add(kept[j], scale, x[j]);
    }
  }
};

//! Elements of this thread in a tile of a task, from `at` on; 0 where it has none.
[[nodiscard]] __device__ inline unsigned share_of(task const& of, std::size_t tile, std::size_t& at) {
  at = (tile - of.tile) * policy::tile + std::size_t{threadIdx.x} * policy::per_thread;
  if (at >= of.shape.count) return 0;
  std::size_t const rest = of.shape.count - at;
  return rest < policy::per_thread ? static_cast<unsigned>(rest) : policy::per_thread;
}

//! Where a selection stands, for each segment.
struct state {
  std::uint32_t cut;         //!< the digits known so far; in the end the smallest magnitude that is kept
  std::uint32_t is_spoiled;  //!< a NaN or infinity was met
  unsigned long long
      wanted;  //!< rank among those that agree with `cut`; in the end how many of that magnitude are kept
};

//! The sum of all earlier threads' values; `total` is that of all. For the whole thread block; `exchange` holds a word
//! per warp.
template <class T>
[[nodiscard]] __device__ T sum_before(T value, T* exchange, T& total) {
  unsigned const lane = threadIdx.x % 32;
  unsigned const warp = threadIdx.x / 32;
  T sum = value;
  for (unsigned width = 1; width < 32; width *= 2) {
    T const other = __shfl_up_sync(0xffffffffu, sum, width);
    if (lane >= width) sum += other;
  }
  if (lane == 31) exchange[warp] = sum;
  __syncthreads();
  T before = 0;
  total = 0;
  for (unsigned i = 0; i < policy::warps; ++i) {
    if (i < warp) before += exchange[i];
    total += exchange[i];
  }
  __syncthreads();
  return before + sum - value;
}

}  // namespace gradwire::topk
