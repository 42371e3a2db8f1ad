#pragma once
//! Which elements are kept: a radix selection of the k-th largest magnitude, digit by digit from the top, and then the
//! rank of every kept element. All counts are of integers, so no order of threads shows in the result.

#include <cuda_runtime.h>

#include <cstddef>
#include <cstdint>

#include "compressors/topk/device.cuh"
#include "core/cuda/shared.cuh"

namespace gradwire::topk {

inline constexpr unsigned bins = 2048;

//! Bits [shift, shift + width) of the magnitude.
struct digit {
  unsigned shift;
  unsigned width;
};
inline constexpr digit digits[] = {{20, 11}, {10, 10}, {0, 10}};
//! Bins of the first digit from this on hold infinities and NaNs.
inline constexpr unsigned first_infinite_bin = infinity_bits >> digits[0].shift;

//! Counts, for each segment, the elements that agree with what is known of the cut, by their next digit. A thread block
//! takes neighbouring tiles, so that it adds to the segment's counts once and not once per tile.
template <class T>
__global__ void __launch_bounds__(policy::threads)
    count_digits_kernel(__grid_constant__ task_list const tasks, std::size_t tiles, source<T> from, digit next,
                        state const* states, unsigned long long* counts) {
  constexpr std::size_t most_tiles = std::size_t{1} << 20;  // the counts here have 32 bits
  GW_SHARED_ARRAY(std::uint32_t, here, bins);
  std::size_t tile = tiles * blockIdx.x / gridDim.x;
  std::size_t const last = tiles * (std::size_t{blockIdx.x} + 1) / gridDim.x;
  while (tile < last) {
    unsigned const number = task_of(tasks, &task::tile, tile);
    task const& of = tasks[number];
    std::size_t const own = of.tile + (of.shape.count + policy::tile - 1) / policy::tile;
    std::size_t end = own < last ? own : last;
    if (end - tile > most_tiles) end = tile + most_tiles;
    for (unsigned i = threadIdx.x; i < bins; i += policy::threads) here[i] = 0;
    __syncthreads();
    std::uint32_t const known = states[number].cut >> (next.shift + next.width);
    for (; tile < end; ++tile) {
      std::size_t at = 0;
      unsigned const n = share_of(of, tile, at);
      float x[policy::per_thread] = {};
      if (n != 0) from.load(of, at, n, x);
#pragma unroll
      for (unsigned j = 0; j < policy::per_thread; ++j) {
        std::uint32_t const size = magnitude(x[j]);
        if (j >= n || size >> (next.shift + next.width) != known) continue;
        atomicAdd(&here[size >> next.shift & ((1u << next.width) - 1u)], 1u);
      }
    }
    __syncthreads();
    for (unsigned i = threadIdx.x; i < bins; i += policy::threads) {
      if (here[i] != 0) atomicAdd(&counts[std::size_t{number} * bins + i], static_cast<unsigned long long>(here[i]));
    }
    __syncthreads();
  }
}

//! A thread block for each segment: the digit of the wanted element, counting from the largest. Leaves zero counts.
__global__ void __launch_bounds__(policy::threads)
    choose_digit_kernel(digit next, bool is_first, state* states, unsigned long long* counts) {
  constexpr unsigned per_thread = bins / policy::threads;
  GW_SHARED_ARRAY(unsigned long long, exchange, policy::warps);
  state& mine = states[blockIdx.x];
  unsigned long long* const own = counts + std::size_t{blockIdx.x} * bins;
  // Thread 0 has the largest digits.
  unsigned const top = bins - 1 - threadIdx.x * per_thread;
  unsigned long long sum = 0;
  bool infinite = false;
  for (unsigned i = 0; i < per_thread; ++i) {
    sum += own[top - i];
    infinite = infinite || (is_first && top - i >= first_infinite_bin && own[top - i] != 0);
  }
  unsigned long long total = 0;
  unsigned long long above = sum_before(sum, exchange, total);
  unsigned long long const wanted = mine.wanted;
  bool const spoils = __syncthreads_or(infinite) != 0;
  if (spoils && threadIdx.x == 0) mine.is_spoiled = 1;
  if (!spoils && above < wanted && wanted <= above + sum) {
    for (unsigned i = 0; i < per_thread; ++i) {
      if (wanted <= above + own[top - i]) {
        mine.cut |= (top - i) << next.shift;
        mine.wanted = wanted - above;
        break;
      }
      above += own[top - i];
    }
  }
  __syncthreads();
  for (unsigned i = 0; i < per_thread; ++i) own[top - i] = 0;
}

//! Elements of a tile above the cut, and at it: in the lower and the upper half of a word.
[[nodiscard]] __device__ inline std::uint32_t count_kept(float const (&x)[policy::per_thread], unsigned n,
                                                         std::uint32_t cut) {
  std::uint32_t sum = 0;
#pragma unroll
  for (unsigned j = 0; j < policy::per_thread; ++j) {
    if (j >= n) continue;
    std::uint32_t const size = magnitude(x[j]);
    sum += size > cut ? 1u : size == cut ? 0x10000u : 0u;
  }
  return sum;
}

template <class T>
__global__ void __launch_bounds__(policy::threads)
    count_tiles_kernel(__grid_constant__ task_list const tasks, std::size_t tiles, source<T> from, state const* states,
                       std::uint32_t* counts) {
  GW_SHARED_ARRAY(std::uint32_t, exchange, policy::warps);
  for (std::size_t tile = blockIdx.x; tile < tiles; tile += gridDim.x) {
    unsigned const number = task_of(tasks, &task::tile, tile);
    task const& of = tasks[number];
    std::size_t at = 0;
    unsigned const n = share_of(of, tile, at);
    float x[policy::per_thread] = {};
    if (n != 0) from.load(of, at, n, x);
    std::uint32_t total = 0;
    static_cast<void>(sum_before(count_kept(x, n, states[number].cut), exchange, total));
    if (threadIdx.x == 0) counts[tile] = total;
  }
}

//! What lies before a tile in its segment.
struct before {
  unsigned long long above;
  unsigned long long equal;
};

//! A thread block for each segment: adds up its tiles' counts in order.
__global__ void __launch_bounds__(policy::threads)
    add_tiles_kernel(__grid_constant__ task_list const tasks, std::uint32_t const* counts, before* sums) {
  GW_SHARED_ARRAY(unsigned long long, exchange, policy::warps);
  task const& of = tasks[blockIdx.x];
  std::size_t const tiles = (of.shape.count + policy::tile - 1) / policy::tile;
  before sum{0, 0};
  for (std::size_t begin = 0; begin < tiles; begin += policy::threads) {
    std::size_t const tile = begin + threadIdx.x;
    std::uint32_t const here = tile < tiles ? counts[of.tile + tile] : 0u;
    unsigned long long above = 0;
    unsigned long long equal = 0;
    unsigned long long const above_before = sum_before<unsigned long long>(here & 0xffffu, exchange, above);
    unsigned long long const equal_before = sum_before<unsigned long long>(here >> 16, exchange, equal);
    if (tile < tiles) sums[of.tile + tile] = {sum.above + above_before, sum.equal + equal_before};
    sum.above += above;
    sum.equal += equal;
  }
}

//! Writes the kept values to the payload, their indices to `indices` and what was not sent to the residual.
template <class T>
__global__ void __launch_bounds__(policy::threads)
    keep_kernel(__grid_constant__ task_list const tasks, std::size_t tiles, source<T> from, state const* states,
                before const* sums, std::size_t* indices, std::byte* payload) {
  GW_SHARED_ARRAY(std::uint32_t, exchange, policy::warps);
  for (std::size_t tile = blockIdx.x; tile < tiles; tile += gridDim.x) {
    unsigned const number = task_of(tasks, &task::tile, tile);
    task const& of = tasks[number];
    state const found = states[number];
    if (found.is_spoiled != 0) continue;
    std::size_t at = 0;
    unsigned const n = share_of(of, tile, at);
    float x[policy::per_thread] = {};
    if (n != 0) from.load(of, at, n, x);
    std::uint32_t total = 0;
    std::uint32_t const earlier = sum_before(count_kept(x, n, found.cut), exchange, total);
    unsigned long long above = sums[tile].above + (earlier & 0xffffu);
    unsigned long long equal = sums[tile].equal + (earlier >> 16);
#pragma unroll
    for (unsigned j = 0; j < policy::per_thread; ++j) {
      if (j >= n) continue;
      std::uint32_t const size = magnitude(x[j]);
      bool const is_kept = size > found.cut || (size == found.cut && equal < found.wanted);
      std::size_t const rank = above + (equal < found.wanted ? equal : found.wanted);
      above += size > found.cut ? 1 : 0;
      equal += size == found.cut ? 1 : 0;
      if (!is_kept) continue;
      float const value = sent(x[j]);
      device::store_word(payload + of.payload + 4 * (of.shape.values_at() + rank), std::bit_cast<std::uint32_t>(value));
      indices[of.entry + rank] = at + j;
      x[j] = x[j] - value;
    }
    if (from.residual != nullptr && n != 0) device::store_elements(from.residual + of.residual + at, x, n);
  }
}

}  // namespace gradwire::topk
