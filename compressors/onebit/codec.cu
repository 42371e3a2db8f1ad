#include <cuda_runtime.h>

#include <bit>
#include <cstddef>
#include <cstdint>
#include <limits>

#include "compressors/blocks.cuh"
#include "compressors/onebit/format.hpp"

namespace gradwire {
namespace onebit {

//! device::on_cuda's Coder.
class device_coder {
 public:
  static constexpr std::uint32_t nan_bits = spoiled_bits;

  struct received {
    bool finite;
    bool damaged;
    float scale;
    std::byte const* signs;
  };

  explicit device_coder(param_values const& params)
      : size_{params.integer(block_key)}, unit_{params.given(scale_key)} {}

  static std::uint64_t damage() {
    static std::uint64_t const text = cuda::fault_text(
        "onebit: the block at byte ",
        " of a payload has a scale that is negative or infinite, or sign bits behind its last element; no encoder "
        "writes that, so the bytes were damaged or belong to another codec, other keys or other element counts");
    return text;
  }

  [[nodiscard]] GW_HD std::size_t size() const { return size_; }
  [[nodiscard]] GW_HD std::size_t bytes(std::size_t count) const { return block_bytes(count); }

  [[nodiscard]] __device__ received open(std::byte const* from, std::size_t count) const {
    float const scale = std::bit_cast<float>(device::load_word(from));
    bool damaged = !valid_scale(scale);
    if (std::size_t const used = count % lanes; used != 0) {
      damaged = damaged || device::load_word(from + block_bytes(count) - 4) >> used != 0;
    }
    return {finite(scale), damaged, scale, from + sizeof(block_header)};
  }

  //! A vector of 4 or 8 elements lies in one word.
  template <unsigned Width>
  __device__ void levels(received const& block, std::size_t at, unsigned, float (&x)[Width]) const {
    std::uint32_t const signs = device::load_word(block.signs + at / lanes * 4) >> (at % lanes);
#pragma unroll
    for (unsigned j = 0; j < Width; ++j) x[j] = decoded(block.scale, (signs >> j & 1u) != 0);
  }

  template <bool Wide, class Pieces>
  __device__ void encode(device::team<Wide> const& threads, Pieces const& pieces, blocks::block const& block,
                         random_key, std::byte* to, device::workplace const& place) const {
    float first = 0;
    float const sum = absolute_sum(threads, pieces, place.tile, 1.0f, first);
    float scale = mean(sum, block.count);
    if (magnitude(scale) == std::numeric_limits<float>::infinity()) {
      float const shrunk = absolute_sum(threads, pieces, place.tile, shrink, first);
      scale = finite(shrunk) ? unshrunk_mean(shrunk, block.count) : shrunk;
    }
    if (!finite(scale)) return write_spoiled(threads, block.count, to);
    if (unit_) {
      scale = sum > 0.0f ? 1.0f : 0.0f;
    } else if (nearly_equal(scale, magnitude(first)) && has_one_magnitude(threads, pieces, place.tile, first)) {
      scale = magnitude(first);
    }
    if (threads.rank() == 0) device::store_word(to, std::bit_cast<std::uint32_t>(scale));
    write_signs(threads, pieces, place.tile, scale, to + sizeof(block_header));
  }

  template <bool Wide>
  __device__ void write_spoiled(device::team<Wide> const& threads, std::size_t count, std::byte* to) const {
    std::size_t const words = block_bytes(count) / 4;
    for (std::size_t i = threads.rank(); i < words; i += device::team<Wide>::size) {
      device::store_word(to + 4 * i, i == 0 ? spoiled_bits : 0u);
    }
  }

 private:
  //! ‖factor·x‖₁ in the order of the format: lane j adds elements j, j + 32, …, then the lanes add up in a tree. One
  //! warp does it; all get the result, and the first element.
  template <bool Wide, class Pieces>
  static __device__ float absolute_sum(device::team<Wide> const& threads, Pieces const& pieces, float const* tile,
                                       float factor, float& first) {
    float sum = 0;
    pieces([&](std::size_t at, unsigned n) {
      if (at == 0) first = tile[0];
      if (threads.warp() != 0) return;
      for (unsigned i = threads.lane(); i < n; i += 32) sum += magnitude(tile[i]) * factor;
    });
    if (threads.warp() == 0) {
      for (unsigned width = 16; width != 0; width /= 2) {
        sum += __shfl_xor_sync(device::all_lanes, sum, static_cast<int>(width));
      }
    }
    return threads.first(sum);
  }

  template <bool Wide, class Pieces>
  static __device__ bool has_one_magnitude(device::team<Wide> const& threads, Pieces const& pieces, float const* tile,
                                           float first) {
    bool differs = false;
    pieces([&](std::size_t, unsigned n) {
      for (unsigned i = threads.rank(); i < n; i += device::team<Wide>::size) {
        differs = differs || magnitude(tile[i]) != magnitude(first);
      }
    });
    return !threads.any(differs);
  }

  //! A warp's ballot is a word. Each lane keeps one of 32, so that they are written together.
  template <bool Wide, class Pieces>
  static __device__ void write_signs(device::team<Wide> const& threads, Pieces const& pieces, float* tile, float scale,
                                     std::byte* to) {
    pieces([&](std::size_t at, unsigned n) {
      unsigned const words = (n + 31) / 32;
      for (unsigned begin = threads.warp() * 32; begin < words; begin += device::team<Wide>::size) {
        std::uint32_t mine = 0;
        for (unsigned k = 0; k < 32 && begin + k < words; ++k) {
          unsigned const i = (begin + k) * 32 + threads.lane();
          float const x = i < n ? tile[i] : 0.0f;
          std::uint32_t const word = __ballot_sync(device::all_lanes, negative(x));
          if (threads.lane() == k) mine = word;
          if (i < n) tile[i] = x - decoded(scale, negative(x));
        }
        unsigned const word = begin + threads.lane();
        if (word < words) device::store_word(to + at / 8 + std::size_t{4} * word, mine);
      }
      if (pieces.keeps()) pieces.keep(at, n);
    });
  }

  std::size_t size_;
  bool unit_;  // the scale is 1
};

}  // namespace onebit

namespace registry {

codec_functions const& onebit_cuda() { return device::on_cuda<onebit::device_coder>::functions; }

}  // namespace registry
}  // namespace gradwire
