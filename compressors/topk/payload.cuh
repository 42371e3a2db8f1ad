#pragma once
//! A payload from the list of what is kept, and back.

#include <cuda_runtime.h>

#include <cstddef>
#include <cstdint>

#include "compressors/topk/device.cuh"
#include "core/cuda/faults.cuh"
#include "core/cuda/shared.cuh"

namespace gradwire::topk {

// ---- Writing: a thread for each word, which looks up what belongs into it. No two threads write one word, and the
// payload needs no alignment.

[[nodiscard]] __device__ inline std::uint32_t low_word(layout const& shape, std::size_t const* indices,
                                                       std::size_t number) {
  std::size_t const begin = 32 * number;
  std::uint64_t word = 0;
  for (std::size_t i = begin / shape.low_width; i < shape.kept && i * shape.low_width < begin + 32; ++i) {
    std::uint64_t const low = indices[i] & ((std::uint64_t{1} << shape.low_width) - 1);
    std::size_t const bit = i * shape.low_width;
    word |= bit >= begin ? low << (bit - begin) : low >> (begin - bit);
  }
  return static_cast<std::uint32_t>(word);
}

[[nodiscard]] __device__ inline std::uint32_t bitmap_word(layout const& shape, std::size_t const* indices,
                                                          std::size_t number) {
  std::size_t const begin = 32 * number;
  std::size_t low = 0;  // the first index whose bit is not before the word
  std::size_t high = shape.kept;
  while (low < high) {
    std::size_t const middle = low + (high - low) / 2;
    if ((indices[middle] >> shape.low_width) + middle < begin) {
      low = middle + 1;
    } else {
      high = middle;
    }
  }
  std::uint32_t word = 0;
  for (; low < shape.kept; ++low) {
    std::size_t const bit = (indices[low] >> shape.low_width) + low;
    if (bit >= begin + 32) break;
    word |= 1u << (bit - begin);
  }
  return word;
}

__global__ void __launch_bounds__(policy::threads)
    write_kernel(__grid_constant__ task_list const tasks, std::size_t chunks, state const* states,
                 std::size_t const* indices, std::byte* payload) {
  for (std::size_t chunk = blockIdx.x; chunk < chunks; chunk += gridDim.x) {
    unsigned const number = task_of(tasks, &task::chunk, chunk);
    task const& of = tasks[number];
    layout const& shape = of.shape;
    std::size_t const word = (chunk - of.chunk) * policy::threads + threadIdx.x;
    if (word >= shape.words()) continue;
    std::byte* const to = payload + of.payload + 4 * word;
    bool const is_spoiled = states[number].is_spoiled != 0;
    std::size_t const* const own = indices + of.entry;
    if (word == 0 || is_spoiled) {
      device::store_word(to, word == 0 && is_spoiled ? header_spoiled : header_plain);
    } else if (word >= shape.upper_at()) {
      device::store_word(to, bitmap_word(shape, own, word - shape.upper_at()));
    } else if (word >= shape.low_at()) {
      device::store_word(to, low_word(shape, own, word - shape.low_at()));
    }
  }
}

// ---- Reading

enum class content : std::uint32_t { numbers, spoiled, damaged };

//! A thread block for each segment: is it whole, and how many ones lie before each word of its bitmap. Nothing that a
//! later kernel does with a segment that passes can leave its payload.
__global__ void __launch_bounds__(policy::threads)
    index_kernel(__grid_constant__ task_list const tasks, std::byte const* payload, content* contents,
                 unsigned long long* ranks, cuda::fault_word fault) {
  GW_SHARED_ARRAY(unsigned long long, exchange, policy::warps);
  task const& of = tasks[blockIdx.x];
  layout const& shape = of.shape;
  std::byte const* const from = payload + of.payload;
  unsigned long long ones = 0;
  for (std::size_t begin = 0; begin < shape.upper_words; begin += policy::threads) {
    std::size_t const word = begin + threadIdx.x;
    bool const mine = word < shape.upper_words;
    auto const here =
        mine ? static_cast<unsigned>(__popc(device::load_word(from + 4 * (shape.upper_at() + word)))) : 0u;
    unsigned long long total = 0;
    unsigned long long const earlier = sum_before<unsigned long long>(here, exchange, total);
    if (mine) ranks[of.bitmap + word] = ones + earlier;
    ones += total;
  }
  std::uint32_t const header = device::load_word(from);
  bool bad = false;
  if (header == header_plain) {
    std::size_t const used = shape.kept * shape.low_width % 32;
    bad = ones != shape.kept || (used != 0 && device::load_word(from + 4 * (shape.upper_at() - 1)) >> used != 0);
  } else if (header == header_spoiled) {
    for (std::size_t word = 1 + threadIdx.x; word < shape.words(); word += policy::threads) {
      bad = bad || device::load_word(from + 4 * word) != 0;
    }
  } else {
    bad = true;
  }
  bool const is_damaged = __syncthreads_or(bad) != 0;
  if (threadIdx.x != 0) return;
  if (is_damaged) fault.report(of.payload);
  contents[blockIdx.x] = is_damaged ? content::damaged : header == header_spoiled ? content::spoiled : content::numbers;
}

//! What elements have that are not kept: 0 (with Add what they had), or NaN where a segment has no numbers.
template <class T, bool Add>
__global__ void __launch_bounds__(policy::threads)
    fill_kernel(__grid_constant__ task_list const tasks, std::size_t tiles, content const* contents, T* out,
                float scale) {
  for (std::size_t tile = blockIdx.x; tile < tiles; tile += gridDim.x) {
    unsigned const number = task_of(tasks, &task::tile, tile);
    task const& of = tasks[number];
    bool const has_numbers = contents[number] == content::numbers;
    if (Add && has_numbers) continue;
    std::size_t at = 0;
    unsigned const n = share_of(of, tile, at);
    float const rest = has_numbers ? scale * 0.0f : std::bit_cast<float>(std::uint32_t{0x7fc00000u});
    float x[policy::per_thread];
#pragma unroll
    for (unsigned j = 0; j < policy::per_thread; ++j) x[j] = rest;
    if (n != 0) device::store_elements(out + of.gradient + at, x, n);
  }
}

[[nodiscard]] __device__ inline std::size_t low_part(task const& of, std::byte const* from, std::size_t i) {
  return load_bits(from, of.shape.low_at(), i * of.shape.low_width, of.shape.low_width);
}

//! One kept element: number i, whose bit in the bitmap is `bit`; `follows`: the bit before it is set too. False where
//! no encoder writes it.
template <bool Add, class T>
[[nodiscard]] __device__ bool place(task const& of, std::byte const* from, std::size_t i, std::size_t bit, bool follows,
                                    T* out, float scale) {
  std::size_t const low = low_part(of, from, i);
  std::size_t const index = (bit - i) << of.shape.low_width | low;
  auto const bits = device::load_word(from + 4 * (of.shape.values_at() + i));
  // Only neighbours in the bitmap have the same upper part.
  bool const rises = !follows || low > low_part(of, from, i - 1);
  bool const plain = (bits & 0x7fffffffu) < infinity_bits && bits != 0x80000000u;
  if (!rises || index >= of.shape.count || !plain) return false;
  T& to = out[of.gradient + index];
  auto const value = std::bit_cast<float>(bits);
  to = device::narrow<T>(Add ? feedback::add(to_float(to), scale, value) : scale * value);
  return true;
}

//! A thread for each word of bitmap.
template <class T, bool Add>
__global__ void __launch_bounds__(policy::threads)
    scatter_kernel(__grid_constant__ task_list const tasks, std::size_t chunks, std::byte const* payload,
                   content const* contents, unsigned long long const* ranks, T* out, float scale,
                   cuda::fault_word fault) {
  for (std::size_t chunk = blockIdx.x; chunk < chunks; chunk += gridDim.x) {
    unsigned const number = task_of(tasks, &task::chunk, chunk);
    task const& of = tasks[number];
    std::size_t const word = (chunk - of.chunk) * policy::threads + threadIdx.x;
    if (contents[number] != content::numbers || word < of.shape.upper_at() || word >= of.shape.words()) continue;
    std::byte const* const from = payload + of.payload;
    std::size_t const in_bitmap = word - of.shape.upper_at();
    bool follows = in_bitmap != 0 && device::load_word(from + 4 * (word - 1)) >> 31 != 0;
    std::uint32_t const ones = device::load_word(from + 4 * word);
    std::size_t i = ranks[of.bitmap + in_bitmap];
    for (unsigned j = 0; j < 32; ++j) {
      bool const is_set = (ones >> j & 1u) != 0;
      if (is_set && !place<Add>(of, from, i, 32 * in_bitmap + j, follows, out, scale)) fault.report(of.payload);
      i += is_set ? 1 : 0;
      follows = is_set;
    }
  }
}

}  // namespace gradwire::topk
