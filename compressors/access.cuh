#pragma once
//! Reading and writing of several elements at once. Addresses have any alignment; whole 16 bytes move in one access
//! where the address allows it.

#include <cuda_runtime.h>

#include <cstddef>
#include <cstdint>
#include <cstring>

#include "compressors/gradient.hpp"

#if defined(__CUDACC__)
#include <cuda_fp16.h>
#endif

namespace gradwire::device {

//! Elements of type T in 16 bytes.
template <class T>
inline constexpr unsigned per_vector = 16 / sizeof(T);

template <unsigned Unit, unsigned Bytes>
__device__ inline void copy_units(std::byte* to, std::byte const* from) {
#pragma unroll
  for (unsigned at = 0; at < Bytes; at += Unit) std::memcpy(to + at, from + at, Unit);
}

// A copy of 16 bytes into an array of shorter elements would be taken apart by the compiler; an access of this type is
// not.
using vector = uint4;

// One store whatever surrounds it: nvcc 13 made one of the aligned and the unaligned way, which write the same words.
// (The instruction has not run on a GPU yet.)
__device__ inline void store_vector(void* to, vector const& value) {
#if defined(__CUDA_ARCH__)
  asm volatile("st.v4.b32 [%0], {%1, %2, %3, %4};" ::"l"(to), "r"(value.x), "r"(value.y), "r"(value.z), "r"(value.w)
               : "memory");
#else
  *static_cast<vector*>(to) = value;
#endif
}

//! `Bytes` bytes, a multiple of 16, from memory of any alignment.
template <unsigned Bytes>
__device__ inline void load(void* to, void const* from) {
  auto* const target = static_cast<std::byte*>(to);
  auto const address = reinterpret_cast<std::uintptr_t>(from);
  if (address % 16 == 0) {
#pragma unroll
    for (unsigned i = 0; i < Bytes / 16; ++i) {
      vector const loaded = static_cast<vector const*>(from)[i];
      std::memcpy(target + 16 * i, &loaded, 16);
    }
  } else if (address % 4 == 0) {
    copy_units<4, Bytes>(target, static_cast<std::byte const*>(__builtin_assume_aligned(from, 4)));
  } else if (address % 2 == 0) {
    copy_units<2, Bytes>(target, static_cast<std::byte const*>(__builtin_assume_aligned(from, 2)));
  } else {
    copy_units<1, Bytes>(target, static_cast<std::byte const*>(from));
  }
}

//! `Bytes` bytes, a multiple of 16, to memory of any alignment.
template <unsigned Bytes>
__device__ inline void store(void* to, void const* from) {
  auto const* const source = static_cast<std::byte const*>(from);
  auto const address = reinterpret_cast<std::uintptr_t>(to);
  if (address % 16 == 0) {
#pragma unroll
    for (unsigned i = 0; i < Bytes / 16; ++i) {
      vector stored;
      std::memcpy(&stored, source + 16 * i, 16);
      store_vector(static_cast<std::byte*>(to) + 16 * i, stored);
    }
  } else if (address % 4 == 0) {
    copy_units<4, Bytes>(static_cast<std::byte*>(__builtin_assume_aligned(to, 4)), source);
  } else if (address % 2 == 0) {
    copy_units<2, Bytes>(static_cast<std::byte*>(__builtin_assume_aligned(to, 2)), source);
  } else {
    copy_units<1, Bytes>(static_cast<std::byte*>(to), source);
  }
}

[[nodiscard]] __device__ inline std::uint32_t load_word(std::byte const* from) {
  std::uint32_t word;
  if (reinterpret_cast<std::uintptr_t>(from) % 4 == 0) {
    std::memcpy(&word, __builtin_assume_aligned(from, 4), 4);
  } else {
    std::memcpy(&word, from, 4);
  }
  return word;
}

__device__ inline void store_word(std::byte* to, std::uint32_t word) {
  if (reinterpret_cast<std::uintptr_t>(to) % 4 == 0) {
    std::memcpy(__builtin_assume_aligned(to, 4), &word, 4);
  } else {
    std::memcpy(to, &word, 4);
  }
}

//! from_float(), with the conversion instruction where there is one: ten integer operations an element would be more
//! than the memory lets a multiprocessor wait for. (That branch has not run on a GPU yet.)
template <class T>
[[nodiscard]] __device__ inline T narrow(float value) {
#if defined(__CUDA_ARCH__)
  if constexpr (std::is_same_v<T, f16>) {
    return value == value ? f16{__half_as_ushort(__float2half_rn(value))} : to_f16(value);
  }
#endif
  return from_float<T>(value);
}

//! Elements at … at + Count as floats; those from `n` on are left as they are.
template <unsigned Count, class T>
__device__ inline void load_elements(float (&to)[Count], T const* from, unsigned n) {
  if (n == Count) {
    alignas(16) T x[Count];
    load<Count * sizeof(T)>(x, from);
#pragma unroll
    for (unsigned i = 0; i < Count; ++i) to[i] = to_float(x[i]);
    return;
  }
#pragma unroll
  for (unsigned i = 0; i < Count; ++i) {
    if (i < n) to[i] = to_float(from[i]);
  }
}

template <unsigned Count, class T>
__device__ inline void store_elements(T* to, float const (&from)[Count], unsigned n) {
  if (n == Count) {
    alignas(16) T x[Count];
#pragma unroll
    for (unsigned i = 0; i < Count; ++i) x[i] = narrow<T>(from[i]);
    store<Count * sizeof(T)>(to, x);
    return;
  }
#pragma unroll
  for (unsigned i = 0; i < Count; ++i) {
    if (i < n) to[i] = narrow<T>(from[i]);
  }
}

}  // namespace gradwire::device
