#pragma once
//! What nvcc knows without an include: qualifiers, thread coordinates, barriers, warp functions, atomics, intrinsics.
//! Every thread of a block is a fiber; the functions that wait for other threads carry the line they were called from,
//! for reports.

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <type_traits>

#define GW_CUDA_SIM 1
#define __global__
#define __device__
#define __host__
#define __forceinline__ inline __attribute__((always_inline))
#define __launch_bounds__(...)
#define __grid_constant__
// Blocks run one after the other on the thread that drives the simulator, so one copy serves a block.
#define __shared__ static thread_local

struct uint3 {
  unsigned x, y, z;
};
struct dim3 {
  unsigned x = 1, y = 1, z = 1;
  constexpr dim3(unsigned x_ = 1, unsigned y_ = 1, unsigned z_ = 1) : x{x_}, y{y_}, z{z_} {}
};
// nvcc lets these reach into arrays of any type.
struct [[gnu::may_alias]] alignas(16) uint4 {
  unsigned x, y, z, w;
};
struct [[gnu::may_alias]] alignas(16) float4 {
  float x, y, z, w;
};

namespace cuda_sim {

enum class warp_call : std::uint8_t { sync, shuffle, ballot, any, all, add, min, max, bit_or };

struct place {
  char const* file;
  int line;
};

//! Of the running thread, in its block.
extern constinit thread_local unsigned linear_thread;

void barrier(place from);
[[nodiscard]] int barrier_or(bool predicate, place from);
[[nodiscard]] std::uint64_t warp(warp_call call, unsigned mask, std::uint64_t value, int source, place from);
[[nodiscard]] void* shared_variable(void const* tag, std::size_t bytes, std::size_t alignment, char const* name);
[[nodiscard]] void* shared_dynamic();
//! Counts atomic operations, by which a thread that waits for another block is recognised.
void count_atomic(place from);

template <class T>
[[nodiscard]] std::uint64_t bits_of(T value) {
  static_assert(sizeof(T) <= 8 && std::is_trivially_copyable_v<T>);
  std::uint64_t bits = 0;
  std::memcpy(&bits, &value, sizeof(T));
  return bits;
}

template <class T>
[[nodiscard]] T shuffle(unsigned mask, T value, int source, place from) {
  std::uint64_t const bits = warp(warp_call::shuffle, mask, bits_of(value), source, from);
  T result;
  std::memcpy(&result, &bits, sizeof(T));
  return result;
}

template <class T, class F>
T update(T* at, F&& change, place from) {
  count_atomic(from);
  T before;
  __atomic_load(at, &before, __ATOMIC_RELAXED);
  for (;;) {
    T after = change(before);
    if (__atomic_compare_exchange(at, &before, &after, true, __ATOMIC_RELAXED, __ATOMIC_RELAXED)) return before;
  }
}

}  // namespace cuda_sim

// Objects and no macros: cudaLaunchConfig_t has members of these names.
extern constinit thread_local uint3 threadIdx;
extern constinit thread_local uint3 blockIdx;
extern constinit thread_local dim3 blockDim;
extern constinit thread_local dim3 gridDim;

#define GW_SIM_FROM char const *file = __builtin_FILE(), int line = __builtin_LINE()

inline void __syncthreads(GW_SIM_FROM) { cuda_sim::barrier({file, line}); }
inline int __syncthreads_or(int predicate, GW_SIM_FROM) { return cuda_sim::barrier_or(predicate != 0, {file, line}); }
inline void __syncwarp(unsigned mask = 0xffffffffu, GW_SIM_FROM) {
  static_cast<void>(cuda_sim::warp(cuda_sim::warp_call::sync, mask, 0, 0, {file, line}));
}
inline void __threadfence() { __atomic_thread_fence(__ATOMIC_SEQ_CST); }
inline void __threadfence_system() { __atomic_thread_fence(__ATOMIC_SEQ_CST); }

template <class T>
T __shfl_sync(unsigned mask, T value, int source, int = 32, GW_SIM_FROM) {
  return cuda_sim::shuffle(mask, value, source & 31, {file, line});
}
template <class T>
T __shfl_xor_sync(unsigned mask, T value, int lanes, int = 32, GW_SIM_FROM) {
  return cuda_sim::shuffle(mask, value, static_cast<int>(cuda_sim::linear_thread & 31u) ^ lanes, {file, line});
}
template <class T>
T __shfl_up_sync(unsigned mask, T value, unsigned lanes, int = 32, GW_SIM_FROM) {
  int const lane = static_cast<int>(cuda_sim::linear_thread & 31u);
  int const source = lane - static_cast<int>(lanes);
  return cuda_sim::shuffle(mask, value, source >= 0 ? source : lane, {file, line});
}
template <class T>
T __shfl_down_sync(unsigned mask, T value, unsigned lanes, int = 32, GW_SIM_FROM) {
  int const lane = static_cast<int>(cuda_sim::linear_thread & 31u);
  int const source = lane + static_cast<int>(lanes);
  return cuda_sim::shuffle(mask, value, source < 32 ? source : lane, {file, line});
}
inline unsigned __ballot_sync(unsigned mask, int predicate, GW_SIM_FROM) {
  return static_cast<unsigned>(
      cuda_sim::warp(cuda_sim::warp_call::ballot, mask, predicate != 0 ? 1 : 0, 0, {file, line}));
}
inline int __any_sync(unsigned mask, int predicate, GW_SIM_FROM) {
  return static_cast<int>(cuda_sim::warp(cuda_sim::warp_call::any, mask, predicate != 0 ? 1 : 0, 0, {file, line}));
}
inline int __all_sync(unsigned mask, int predicate, GW_SIM_FROM) {
  return static_cast<int>(cuda_sim::warp(cuda_sim::warp_call::all, mask, predicate != 0 ? 1 : 0, 0, {file, line}));
}
inline unsigned __reduce_add_sync(unsigned mask, unsigned value, GW_SIM_FROM) {
  return static_cast<unsigned>(cuda_sim::warp(cuda_sim::warp_call::add, mask, value, 0, {file, line}));
}
inline unsigned __reduce_or_sync(unsigned mask, unsigned value, GW_SIM_FROM) {
  return static_cast<unsigned>(cuda_sim::warp(cuda_sim::warp_call::bit_or, mask, value, 0, {file, line}));
}
inline unsigned __reduce_min_sync(unsigned mask, unsigned value, GW_SIM_FROM) {
  return static_cast<unsigned>(cuda_sim::warp(cuda_sim::warp_call::min, mask, value, 0, {file, line}));
}
inline unsigned __reduce_max_sync(unsigned mask, unsigned value, GW_SIM_FROM) {
  return static_cast<unsigned>(cuda_sim::warp(cuda_sim::warp_call::max, mask, value, 0, {file, line}));
}

template <class T>
T atomicAdd(T* at, std::type_identity_t<T> value, GW_SIM_FROM) {
  return cuda_sim::update(at, [=](T old) { return static_cast<T>(old + value); }, {file, line});
}
template <class T>
T atomicOr(T* at, std::type_identity_t<T> value, GW_SIM_FROM) {
  return cuda_sim::update(at, [=](T old) { return static_cast<T>(old | value); }, {file, line});
}
template <class T>
T atomicMax(T* at, std::type_identity_t<T> value, GW_SIM_FROM) {
  return cuda_sim::update(at, [=](T old) { return old < value ? value : old; }, {file, line});
}
template <class T>
T atomicMin(T* at, std::type_identity_t<T> value, GW_SIM_FROM) {
  return cuda_sim::update(at, [=](T old) { return value < old ? value : old; }, {file, line});
}
template <class T>
T atomicExch(T* at, std::type_identity_t<T> value, GW_SIM_FROM) {
  return cuda_sim::update(at, [=](T) { return value; }, {file, line});
}
template <class T>
T atomicCAS(T* at, std::type_identity_t<T> expected, std::type_identity_t<T> value, GW_SIM_FROM) {
  return cuda_sim::update(at, [=](T old) { return old == expected ? value : old; }, {file, line});
}

[[nodiscard]] inline int __popc(unsigned x) { return std::popcount(x); }
[[nodiscard]] inline int __clz(int x) { return std::countl_zero(static_cast<unsigned>(x)); }
[[nodiscard]] inline int __ffs(int x) { return x == 0 ? 0 : std::countr_zero(static_cast<unsigned>(x)) + 1; }

#undef GW_SIM_FROM

// The product's shared-memory macro (core/cuda/shared.cuh): storage that is new for every block, holds NaN and has
// guards, instead of __shared__.
#define GW_SHARED_ARRAY(T, name, count) \
  static char const name##_tag = 0;     \
  T(&name)                              \
  [count] = *static_cast<T(*)[count]>(::cuda_sim::shared_variable(&name##_tag, sizeof(T) * (count), alignof(T), #name))
