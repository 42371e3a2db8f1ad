#pragma once

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <span>
#include <type_traits>

#include <gradwire/codec.hpp>

#include "compressors/blocks.hpp"
#include "compressors/feedback/format.hpp"
#include "compressors/onebit/format.hpp"

namespace gradwire::onebit {

//! Elements that are decoded at a time to gradients of another type than float: they stay in the first-level cache.
inline constexpr std::size_t piece = 1024;

[[nodiscard]] inline bool sign(std::byte const* signs, std::size_t i) noexcept {
  return (std::to_integer<unsigned>(signs[i / 8]) >> (i % 8) & 1u) != 0;
}

[[nodiscard]] inline block_header read_header(std::byte const* from) noexcept {
  block_header header;
  std::memcpy(&header, from, sizeof header);
  return header;
}

//! Payloads whose sums are few enough to be looked up.
inline constexpr std::size_t few = 4;

//! A source: scale·ΣD + residual (null: none) over one block of several payloads, of `few` and less or of more. An
//! element goes to `sums` when it is looked at.
template <bool Few>
struct summed {
  std::span<std::byte const* const> payloads;
  std::size_t offset;  //!< of the block in each payload
  std::size_t count;   //!< elements of the block
  float scale;
  float const* residual;
  float* sums;

  [[nodiscard]] float at(std::size_t i) const noexcept {
    float total = 0;
    for (std::size_t p = 0; p < payloads.size(); ++p) {
      std::byte const* const from = payloads[p] + offset;
      float const x = decoded(read_header(from).scale, sign(from + sizeof(block_header), i));
      total = p == 0 ? x : total + x;
    }
    return sums[i] = residual == nullptr ? scale * total : feedback::add(residual[i], scale, total);
  }
};

//! The plain loops: the definition of the bytes.
struct reference_loops : blocks::conversions {
  //! Writes the sign words of `count` elements to `signs`; returns ‖factor·x‖₁. `factor` is a power of two.
  template <class Source>
  static float sum_and_signs(Source const& source, std::size_t count, std::byte* signs, float factor = 1.0f) {
    float lane[lanes] = {};
    std::uint32_t word = 0;
    for (std::size_t i = 0; i < count; ++i) {
      float const x = source.at(i);
      lane[i % lanes] += magnitude(x) * factor;
      word |= static_cast<std::uint32_t>(negative(x)) << (i % lanes);
      if (i % lanes == lanes - 1 || i + 1 == count) {
        std::memcpy(signs + i / lanes * sizeof word, &word, sizeof word);
        word = 0;
      }
    }
    return sum_lanes(lane);
  }

  //! residual = x − D(x).
  static void keep_loss(float const* x, std::size_t count, float scale, float* residual, blocks::upcoming) {
    for (std::size_t i = 0; i < count; ++i) residual[i] = x[i] - decoded(scale, negative(x[i]));
  }

  //! out = ±value, or out += ±value.
  template <bool Add>
  static void decode(std::byte const* signs, std::size_t count, float value, float* out) {
    for (std::size_t i = 0; i < count; ++i) {
      float const x = decoded(value, sign(signs, i));
      out[i] = Add ? out[i] + x : x;
    }
  }
};

//! blocks::functions' Coder: what happens to a block, with the loops left open.
template <class Loops>
class coder {
 public:
  using loops = Loops;

  explicit coder(param_values const& params) : size_{params.integer(block_key)}, unit_{params.given(scale_key)} {}

  [[nodiscard]] std::size_t size() const noexcept { return size_; }
  [[nodiscard]] std::size_t bytes(std::size_t count) const noexcept { return block_bytes(count); }

  template <class Source>
  void encode(Source const& source, float const* values, blocks::block const& block, random_key, std::byte* to,
              std::byte const*, float* residual, blocks::upcoming next) const {
    std::size_t const count = block.count;
    std::byte* const signs = to + sizeof(block_header);
    float const sum = Loops::sum_and_signs(source, count, signs);
    block_header header{mean(sum, count)};
    blocks::plain const again{values};
    if (std::isinf(header.scale)) {
      float const shrunk = reference_loops::sum_and_signs(again, count, signs, shrink);
      header.scale = finite(shrunk) ? unshrunk_mean(shrunk, count) : shrunk;
    }
    if (!finite(header.scale)) {
      write_spoiled(count, to);
      return;
    }
    if (unit_) {
      header.scale = sum > 0.0f ? 1.0f : 0.0f;
    } else if (nearly_equal(header.scale, magnitude(values[0])) && has_one_magnitude(values, count)) {
      header.scale = magnitude(values[0]);
    }
    std::memcpy(to, &header, sizeof header);
    if (residual != nullptr) Loops::keep_loss(values, count, header.scale, residual, next);
  }

  void reduce_encode(blocks::shards const& parts, float scale, random_key key, std::byte* to, std::byte const* end,
                     float* residual, float* sums) const {
    blocks::block const& block = parts.block;
    for (std::byte const* const payload : parts.payloads) {
      if (!finite(read(payload + block.payload, block).scale)) {
        write_spoiled(block.count, to);
        return;
      }
    }
    auto const encode_sums = [&]<bool Few>() {
      summed<Few> const source{parts.payloads, block.payload, block.count, scale, residual, sums};
      encode(source, sums, block, key, to, end, residual, {});
    };
    parts.payloads.size() <= few ? encode_sums.template operator()<true>() : encode_sums.template operator()<false>();
  }

  template <bool Add, class T>
  void decode(std::byte const* from, std::byte const*, blocks::block const& block, T* out, float scale) const {
    block_header const header = read(from, block);
    if (!finite(header.scale)) {
      std::fill_n(out, block.count, from_float<T>(header.scale));
      return;
    }
    std::byte const* const signs = from + sizeof header;
    float const value = scale * header.scale;
    if constexpr (std::is_same_v<T, float>) {
      Loops::template decode<Add>(signs, block.count, value, out);
    } else {
      alignas(64) float x[piece];
      for (std::size_t at = 0; at < block.count; at += piece) {
        std::size_t const count = std::min(piece, block.count - at);
        Loops::template decode<false>(signs + at / 8, count, value, x);
        Loops::template put<Add>(x, 1.0f, count, out + at);
      }
    }
  }

 private:
  static bool has_one_magnitude(float const* x, std::size_t count) {
    for (std::size_t begin = 0; begin < count; begin += lanes) {
      bool equal = true;
      for (std::size_t i = begin; i < std::min(begin + lanes, count); ++i) equal &= magnitude(x[i]) == magnitude(x[0]);
      if (!equal) return false;
    }
    return true;
  }

  static void write_spoiled(std::size_t count, std::byte* to) {
    block_header const header{std::bit_cast<float>(spoiled_bits)};
    std::memcpy(to, &header, sizeof header);
    std::memset(to + sizeof header, 0, block_bytes(count) - sizeof header);
  }

  static block_header read(std::byte const* from, blocks::block const& block) {
    block_header const header = read_header(from);
    if (!valid_scale(header.scale))
      blocks::corrupt("onebit", "has a scale that is negative or infinite", block.payload);
    if (std::size_t const used = block.count % lanes; used != 0) {
      std::uint32_t last;
      std::memcpy(&last, from + block_bytes(block.count) - sizeof last, sizeof last);
      if (last >> used != 0) blocks::corrupt("onebit", "has sign bits behind its last element", block.payload);
    }
    return header;
  }

  std::size_t size_;
  bool unit_;  // the scale is 1
};

//! The Highway path: the same bytes.
extern codec_functions const fast;

}  // namespace gradwire::onebit
