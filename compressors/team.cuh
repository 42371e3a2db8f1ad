#pragma once
//! The threads that work on one block of a codec: a warp, or where blocks are long a whole thread block.

#include <cuda_runtime.h>

#include <bit>
#include <cstddef>
#include <cstdint>

namespace gradwire::device {

//! How block-structured codecs are cut. 256 threads and 40 KiB of shared memory: three thread blocks fit a
//! multiprocessor of sm_80 and newer. Told so, ptxas (CUDA 13.0) gives encoders up to 80 registers; left to itself it
//! stops at 64 and spills in quant for sm_80 and sm_100. A warp holds 1,024 elements, the preset block of onebit, 32 a
//! lane. Nobody has measured other values on a GPU yet.
struct block_policy {
  static constexpr unsigned threads = 256;
  static constexpr unsigned encode_blocks = 3;  //!< for each multiprocessor
  static constexpr unsigned decode_blocks = 4;
  static constexpr unsigned warps = threads / 32;
  static constexpr unsigned tile = 8192;  //!< floats in shared memory
  static constexpr unsigned warp_tile = tile / warps;
};

inline constexpr unsigned all_lanes = 0xffffffffu;

template <bool Wide>
class team {
 public:
  static constexpr unsigned size = Wide ? block_policy::threads : 32;
  static constexpr unsigned per_thread_block = block_policy::threads / size;
  //! Floats that it holds at a time.
  static constexpr unsigned tile = Wide ? block_policy::tile : block_policy::warp_tile;

  //! `exchange`: a word of shared memory for each warp.
  __device__ explicit team(std::uint32_t* exchange) : exchange_{exchange} {}

  [[nodiscard]] __device__ unsigned rank() const { return threadIdx.x % size; }
  [[nodiscard]] __device__ unsigned lane() const { return threadIdx.x % 32; }
  [[nodiscard]] __device__ unsigned warp() const { return rank() / 32; }
  //! Which team of the thread block it is.
  [[nodiscard]] __device__ unsigned index() const { return threadIdx.x / size; }

  //! All have arrived, and see what was written to memory before. To be called by all.
  __device__ void sync() const {
    if constexpr (Wide) {
      __syncthreads();
    } else {
      __syncwarp();
    }
  }

  [[nodiscard]] __device__ std::uint32_t max(std::uint32_t value) const {
    value = __reduce_max_sync(all_lanes, value);
    if constexpr (!Wide) return value;
    return __reduce_max_sync(all_lanes, gathered(value));
  }
  [[nodiscard]] __device__ std::uint32_t min(std::uint32_t value) const {
    value = __reduce_min_sync(all_lanes, value);
    if constexpr (!Wide) return value;
    return __reduce_min_sync(all_lanes, gathered(value));
  }
  [[nodiscard]] __device__ bool any(bool value) const { return max(value ? 1u : 0u) != 0; }

  //! The value of thread 0, for all.
  [[nodiscard]] __device__ float first(float value) const {
    if constexpr (!Wide) return __shfl_sync(all_lanes, value, 0);
    if (rank() == 0) exchange_[0] = std::bit_cast<std::uint32_t>(value);
    __syncthreads();
    float const result = std::bit_cast<float>(exchange_[0]);
    __syncthreads();
    return result;
  }

 private:
  //! Every warp's value, one for each of the first lanes, and again.
  [[nodiscard]] __device__ std::uint32_t gathered(std::uint32_t value) const {
    if (lane() == 0) exchange_[warp()] = value;
    __syncthreads();
    std::uint32_t const mine = exchange_[lane() % block_policy::warps];
    __syncthreads();
    return mine;
  }

  std::uint32_t* exchange_;
};

}  // namespace gradwire::device
