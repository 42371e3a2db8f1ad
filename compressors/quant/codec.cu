#include <cuda_runtime.h>

#include <array>
#include <bit>
#include <cstddef>
#include <cstdint>

#include "compressors/blocks.cuh"
#include "compressors/quant/format.hpp"
#include "compressors/quant/settings.hpp"

namespace gradwire {
namespace quant {

//! device::on_cuda's Coder.
class device_coder {
 public:
  static constexpr std::uint32_t nan_bits = spoiled_bits;

  struct received {
    bool finite;
    bool damaged;
    grid levels;
    std::byte const* codes;
  };

  explicit device_coder(param_values const& params) : set_{params} {}

  static std::uint64_t damage() {
    static std::uint64_t const text = cuda::fault_text(
        "quant: the block at byte ",
        " of a payload has a maximum that is negative or infinite, a minimum over its maximum, or code bits behind its "
        "last element; no encoder writes that, so the bytes were damaged or belong to another codec, other keys or "
        "other element counts");
    return text;
  }

  [[nodiscard]] GW_HD std::size_t size() const { return set_.block; }
  [[nodiscard]] GW_HD std::size_t bytes(std::size_t count) const { return set_.bytes(count); }

  [[nodiscard]] __device__ received open(std::byte const* from, std::size_t count) const {
    std::byte const* const codes = from + header_bytes(set_.scale);
    std::uint32_t const first = device::load_word(from);
    std::uint32_t const second = set_.scale == scaling::absmax ? first : device::load_word(from + 4);
    auto const high = std::bit_cast<float>(second);
    auto const low = set_.scale == scaling::absmax ? 0.0f - high : std::bit_cast<float>(first);
    bool const spoiled = first == spoiled_bits && second == spoiled_bits;
    bool const ordered = set_.scale == scaling::absmax ? first < infinity_bits
                                                       : quant::finite(low) && quant::finite(high) && low <= high;
    bool damaged = !spoiled && !ordered;
    if (std::size_t const used = count * set_.bits % 32; used != 0) {
      damaged = damaged || device::load_word(from + set_.bytes(count) - 4) >> used != 0;
    }
    return {!spoiled, damaged, make_grid(low, high, set_.is_centred, set_.top), codes};
  }

  //! Reads the words that hold the n codes, each once.
  template <unsigned Width>
  __device__ void levels(received const& block, std::size_t at, unsigned n, float (&x)[Width]) const {
    std::size_t const bit = at * set_.bits;
    std::byte const* word = block.codes + bit / 32 * 4;
    unsigned const skipped = static_cast<unsigned>(bit % 32);
    std::uint64_t window = device::load_word(word) >> skipped;
    unsigned have = 32 - skipped;
    std::uint32_t const mask = (1u << set_.bits) - 1u;
#pragma unroll
    for (unsigned j = 0; j < Width; ++j) {
      if (j >= n) break;
      if (have < set_.bits) {
        word += 4;
        window |= std::uint64_t{device::load_word(word)} << have;
        have += 32;
      }
      std::uint32_t const field = static_cast<std::uint32_t>(window) & mask;
      x[j] = level(block.levels, set_.is_centred, code_of_field(field, set_.is_centred, set_.bits));
      window >>= set_.bits;
      have -= set_.bits;
    }
  }

  template <bool Wide, class Pieces>
  __device__ void encode(device::team<Wide> const& threads, Pieces const& pieces, blocks::block const& block,
                         random_key key, std::byte* to, device::workplace const& place) const {
    extent const found = set_.scale == scaling::absmax ? find_extent<true>(threads, pieces, place.tile)
                                                       : find_extent<false>(threads, pieces, place.tile);
    if (!found.finite()) return write_spoiled(threads, block.count, to);
    if (threads.rank() == 0) write_header(found.low(), found.high(), to);
    grid const g = make_grid(found.low(), found.high(), set_.is_centred, set_.top);
    std::byte* const codes = to + header_bytes(set_.scale);
    pieces([&](std::size_t at, unsigned n) {
      for (unsigned k = threads.rank(); k < (n + 31) / 32 * 4; k += device::team<Wide>::size) {
        stage(encode_octet(g, key, block, at, k, n, place.tile), k, place.staging);
      }
      threads.sync();
      unsigned const words = static_cast<unsigned>(code_bytes(n, set_.bits) / 4);
      for (unsigned i = threads.rank(); i < words; i += device::team<Wide>::size) {
        device::store_word(codes + at / 32 * set_.bits * 4 + std::size_t{4} * i, place.staging[i]);
      }
      if (pieces.keeps()) pieces.keep(at, n);
    });
  }

  template <bool Wide>
  __device__ void write_spoiled(device::team<Wide> const& threads, std::size_t count, std::byte* to) const {
    std::size_t const words = set_.bytes(count) / 4;
    std::size_t const header = header_bytes(set_.scale) / 4;
    for (std::size_t i = threads.rank(); i < words; i += device::team<Wide>::size) {
      device::store_word(to + 4 * i, i < header ? spoiled_bits : 0u);
    }
  }

 private:
  static constexpr std::uint32_t infinity_bits = 0x7f800000u;

  //! Floats in the order of unsigned integers, and back.
  static __device__ std::uint32_t ordered(float x) {
    auto const bits = std::bit_cast<std::uint32_t>(x);
    return (bits & 0x80000000u) != 0 ? ~bits : bits | 0x80000000u;
  }
  static __device__ float unordered(std::uint32_t key) {
    return std::bit_cast<float>((key & 0x80000000u) != 0 ? key & 0x7fffffffu : ~key);
  }

  template <bool AbsMax, bool Wide, class Pieces>
  static __device__ extent find_extent(device::team<Wide> const& threads, Pieces const& pieces, float const* tile) {
    std::uint32_t most = 0;
    std::uint32_t lowest = 0xffffffffu;
    std::uint32_t highest = 0;
    pieces([&](std::size_t, unsigned n) {
      for (unsigned i = threads.rank(); i < n; i += device::team<Wide>::size) {
        float const x = tile[i];
        std::uint32_t const size = std::bit_cast<std::uint32_t>(x) & 0x7fffffffu;
        most = size > most ? size : most;
        if constexpr (!AbsMax) {
          std::uint32_t const place = ordered(x);
          lowest = place < lowest ? place : lowest;
          highest = place > highest ? place : highest;
        }
      }
    });
    most = threads.max(most);
    bool const all_finite = most < infinity_bits;
    auto const largest = std::bit_cast<float>(most);
    if constexpr (AbsMax) return {0.0f - largest, largest, all_finite};
    return {unordered(threads.min(lowest)) + 0.0f, unordered(threads.max(highest)) + 0.0f, all_finite};
  }

  __device__ void write_header(float low, float high, std::byte* to) const {
    if (set_.scale == scaling::minmax) device::store_word(to, std::bit_cast<std::uint32_t>(low));
    device::store_word(to + header_bytes(set_.scale) - 4, std::bit_cast<std::uint32_t>(high));
  }

  //! The codes of elements 8k … 8k + 7 of a tile, packed; 0 for those from n on. Leaves what was lost in the tile. One
  //! block of random numbers serves them all.
  __device__ std::uint64_t encode_octet(grid const& g, random_key key, blocks::block const& block, std::size_t at,
                                        unsigned k, unsigned n, float* tile) const {
    if (8 * k >= n) return 0;
    float x[8] = {};
    unsigned const count = device::part_width(n - 8 * k, 8);
    device::load_elements(x, tile + 8 * k, count);
    bool const is_stochastic = set_.round == rounding::stochastic;
    std::array<std::uint32_t, 4> words{};
    if (is_stochastic) words = random_block<random_rounds>(key, block.tensor_id, (block.first + at) / 8 + k);
    std::uint64_t packed = 0;
#pragma unroll
    for (unsigned j = 0; j < 8; ++j) {
      std::uint32_t const number = (words[j / 2] >> (16 * (j % 2))) & random_mask;
      std::int32_t const code =
          is_stochastic ? code_stochastic(g, set_.is_centred, x[j], number) : code_nearest(g, set_.is_centred, x[j]);
      std::uint32_t const field = static_cast<std::uint32_t>(code) & ((1u << set_.bits) - 1u);
      if (j < count) packed |= std::uint64_t{field} << (set_.bits * j);
      x[j] = x[j] - level(g, set_.is_centred, code);
    }
    device::store_elements(tile + 8 * k, x, count);
    return packed;
  }

  //! Eight codes fill whole bytes.
  __device__ void stage(std::uint64_t packed, unsigned k, std::uint32_t* staging) const {
    auto* const to = reinterpret_cast<std::uint8_t*>(staging) + std::size_t{k} * set_.bits;
    for (unsigned i = 0; i < set_.bits; ++i) to[i] = static_cast<std::uint8_t>(packed >> (8 * i));
  }

  settings set_;
};

}  // namespace quant

namespace registry {

codec_functions const& quant_cuda() { return device::on_cuda<quant::device_coder>::functions; }

}  // namespace registry
}  // namespace gradwire
