#pragma once

#include <algorithm>
#include <bit>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <span>
#include <type_traits>

#include <gradwire/codec.hpp>

#include "compressors/blocks.hpp"
#include "compressors/feedback/format.hpp"
#include "compressors/quant/format.hpp"
#include "compressors/quant/settings.hpp"

namespace gradwire::quant {

//! Elements whose codes and random numbers are kept at a time between the steps of encoding: they stay in the
//! first-level cache.
inline constexpr std::size_t piece = 1024;
//! Room behind them for two whole vectors of any width.
inline constexpr std::size_t slack = 128;

//! A block of a payload.
struct received {
  bool finite;
  grid levels;
  std::byte const* codes;
};

//! Throws errc::corrupt_payload where no encoder can have written the block.
[[nodiscard]] [[gnu::always_inline]] inline received read_block(settings const& set, std::byte const* from,
                                                                blocks::block const& block) {
  if (std::size_t const used = block.count * set.bits % 32; used != 0) {
    std::uint32_t last = 0;
    std::memcpy(&last, from + set.bytes(block.count) - sizeof last, sizeof last);
    if (last >> used != 0) blocks::corrupt("quant", "has code bits behind its last element", block.payload);
  }
  if (set.scale == scaling::absmax) {
    absmax_header header;
    std::memcpy(&header, from, sizeof header);
    auto const bits = std::bit_cast<std::uint32_t>(header.absmax);
    if (bits >= 0x7f800000u && bits != spoiled_bits) {
      blocks::corrupt("quant", "has a maximum that is negative or infinite", block.payload);
    }
    return {bits != spoiled_bits, make_grid(0.0f - header.absmax, header.absmax, set.is_centred, set.top),
            from + sizeof header};
  }
  minmax_header header;
  std::memcpy(&header, from, sizeof header);
  bool const spoiled = std::bit_cast<std::uint32_t>(header.min) == spoiled_bits &&
                       std::bit_cast<std::uint32_t>(header.max) == spoiled_bits;
  if (!spoiled && !(finite(header.min) && finite(header.max) && header.min <= header.max)) {
    blocks::corrupt("quant", "has a minimum over its maximum, or an infinite one", block.payload);
  }
  return {!spoiled, make_grid(header.min, header.max, false, set.top), from + sizeof header};
}

//! Code i of a bit string.
[[nodiscard]] inline std::int32_t read_code(std::byte const* codes, std::size_t i, bool is_centred,
                                            unsigned bits) noexcept {
  std::size_t const bit = i * bits;
  std::uint32_t field = std::to_integer<std::uint32_t>(codes[bit / 8]) >> (bit % 8);
  if (bit % 8 + bits > 8) field |= std::to_integer<std::uint32_t>(codes[bit / 8 + 1]) << (8 - bit % 8);
  return code_of_field(field, is_centred, bits);
}

//! The plain loops: the definition of the bytes. encode and decode return how many elements, from the first on, they
//! have done: loops in vectors leave the last ones to these, out of line. (A call of these at the end of a function
//! with AVX code would be a jump, before which GCC 12 does not clear the upper halves of the registers, and SSE code
//! then crawls.)
struct reference_loops : blocks::conversions {
  //! Looks at each element once.
  template <bool AbsMax, class Source>
  static extent find_extent(Source const& source, std::size_t count) {
    bool all_finite = true;
    float low = 0;
    float high = 0;
    float most = 0;
    for (std::size_t i = 0; i < count; ++i) {
      float const x = source.at(i);
      all_finite = all_finite && finite(x);
      most = magnitude(x) > most ? magnitude(x) : most;
      low = i == 0 || x < low ? x : low;
      high = i == 0 || x > high ? x : high;
    }
    if constexpr (AbsMax) return {0.0f - most, most, all_finite};
    return {low + 0.0f, high + 0.0f, all_finite};
  }

  //! `numbers`: the random numbers of `count` elements, 16 bits each; of elements first … in the tensor.
  static void draw(random_key key, std::uint32_t tensor_id, std::size_t first, std::size_t count,
                   std::uint16_t* numbers) {
    for (std::size_t i = 0; i < count; ++i) {
      numbers[i] = static_cast<std::uint16_t>(random_number(key, tensor_id, first + i));
    }
  }

  //! Writes one byte per element: the code's lower bits, those in `mask`. `numbers` is read with Stochastic only.
  //! `residual` (null: none) = x − level(code).
  template <bool Centred, bool Stochastic>
  [[gnu::noinline]] static std::size_t encode(float const* x, std::size_t count, grid const& g, unsigned mask,
                                              std::uint16_t const* numbers, std::uint8_t* codes, float* residual,
                                              blocks::upcoming) {
    for (std::size_t i = 0; i < count; ++i) {
      std::int32_t const code =
          Stochastic ? code_stochastic(g, Centred, x[i], numbers[i] & random_mask) : code_nearest(g, Centred, x[i]);
      codes[i] = static_cast<std::uint8_t>(static_cast<unsigned>(code) & mask);
      if (residual != nullptr) residual[i] = x[i] - level(g, Centred, code);
    }
    return count;
  }

  //! `count` codes as a bit string of code_bytes(count, bits) bytes. `codes` has `slack` more bytes, to be overwritten.
  [[gnu::noinline]] static void pack(std::uint8_t* codes, std::size_t count, unsigned bits, std::byte* to,
                                     std::byte const*) {
    std::uint64_t pending = 0;
    unsigned held = 0;
    for (std::size_t i = 0; i < count; ++i) {
      pending |= std::uint64_t{codes[i]} << held;
      held += bits;
      if (held >= 32 || i + 1 == count) {
        auto const word = static_cast<std::uint32_t>(pending);
        std::memcpy(to, &word, sizeof word);
        to += sizeof word;
        pending >>= 32;
        held = held >= 32 ? held - 32 : 0;
        if (i + 1 == count && held != 0) {
          auto const last = static_cast<std::uint32_t>(pending);
          std::memcpy(to, &last, sizeof last);
        }
      }
    }
  }

  //! x = Σ level over the payloads, for as many elements of the block as it returns: there are only faster ways, which
  //! leave blocks alone that have no numbers in a payload or a grid whose factor is not 1.
  static std::size_t sum(settings const&, blocks::shards const&, float*) { return 0; }

  //! x = scale·level, or x += scale·level, for a block's elements from `begin` on.
  template <bool Centred, bool Add>
  [[gnu::noinline]] static std::size_t decode(std::byte const* codes, std::byte const*, std::size_t count,
                                              unsigned bits, grid const& g, float scale, float* x,
                                              std::size_t begin = 0) {
    for (std::size_t i = begin; i < count; ++i) {
      float const one = level(g, Centred, read_code(codes, i, Centred, bits));
      x[i] = Add ? feedback::add(x[i], scale, one) : scale * one;
    }
    return count;
  }
};

//! blocks::functions' Coder: what happens to a block, with the loops left open.
template <class Loops>
class coder {
 public:
  using loops = Loops;

  explicit coder(param_values const& params) : set_{params} {}

  [[nodiscard]] std::size_t size() const noexcept { return set_.block; }
  [[nodiscard]] std::size_t bytes(std::size_t count) const noexcept { return set_.bytes(count); }

  template <class Source>
  void encode(Source const& source, float const* values, blocks::block const& block, random_key key, std::byte* to,
              std::byte const* end, float* residual, blocks::upcoming next) const {
    encode_between(look(source, block.count), values, block, key, to, end, residual, next);
  }

  void reduce_encode(blocks::shards const& shards, float scale, random_key key, std::byte* to, std::byte const* end,
                     float* residual, float* sums) const {
    blocks::block const& block = shards.block;
    std::size_t const done = Loops::sum(set_, shards, sums);
    if (done != block.count && !sum_rest(shards, done, sums)) {
      write_spoiled(block.count, to);
      return;
    }
    if (residual == nullptr) {
      Loops::template put<false>(sums, scale, block.count, sums);
      encode(blocks::plain{sums}, sums, block, key, to, end, residual, {});
    } else {
      encode(blocks::corrected{sums, scale, residual, sums}, sums, block, key, to, end, residual, {});
    }
  }

  template <bool Add, class T>
  void decode(std::byte const* from, std::byte const* end, blocks::block const& block, T* out, float scale) const {
    received const what = read_block(set_, from, block);
    if (!what.finite) {
      std::fill_n(out, block.count, from_float<T>(std::bit_cast<float>(spoiled_bits)));
      return;
    }
    if constexpr (std::is_same_v<T, float>) {
      levels<Add>(what, 0, block.count, end, scale, out);
    } else {
      alignas(64) float x[piece];
      for (std::size_t at = 0; at < block.count; at += piece) {
        std::size_t const count = std::min(piece, block.count - at);
        levels<false>(what, at, count, end, 1.0f, x);
        Loops::template put<Add>(x, scale, count, out + at);
      }
    }
  }

 private:
  template <class Source>
  extent look(Source const& source, std::size_t count) const {
    return set_.scale == scaling::absmax ? Loops::template find_extent<true>(source, count)
                                         : Loops::template find_extent<false>(source, count);
  }

  void encode_between(extent found, float const* values, blocks::block const& block, random_key key, std::byte* to,
                      std::byte const* end, float* residual, blocks::upcoming next) const {
    if (!found.finite()) {
      write_spoiled(block.count, to);
      return;
    }
    write_header(found.low(), found.high(), to);
    grid const g = make_grid(found.low(), found.high(), set_.is_centred, set_.top);
    to += header_bytes(set_.scale);
    // The fast loops leave the factor out; Loops may be the reference itself.
    if (g.factor == 1.0f) {  // NOLINT(bugprone-branch-clone)
      encode_codes<Loops>(values, block, key, g, to, end, residual, next);
    } else {
      encode_codes<reference_loops>(values, block, key, g, to, end, residual, next);
    }
  }

  template <class With>
  void encode_codes(float const* values, blocks::block const& block, random_key key, grid const& g, std::byte* to,
                    std::byte const* end, float* residual, blocks::upcoming next) const {
    alignas(64) std::uint8_t codes[piece + slack];
    alignas(64) std::uint16_t numbers[piece + slack];
    bool const is_stochastic = set_.round == rounding::stochastic;
    for (std::size_t at = 0; at < block.count; at += piece) {
      std::size_t const count = std::min(piece, block.count - at);
      std::byte* const packed = to + code_bytes(at, set_.bits);
      // Codes of 8 bits need no packing.
      std::uint8_t* const bytes = set_.bits == 8 ? reinterpret_cast<std::uint8_t*>(packed) : codes;
      float* const lost = residual == nullptr ? nullptr : residual + at;
      if (is_stochastic) With::draw(key, block.tensor_id, block.first + at, count, numbers);
      auto const encode = [&]<bool Centred, bool Stochastic>() {
        unsigned const mask = (1u << set_.bits) - 1u;
        float const* const x = values + at;
        std::size_t const done =
            With::template encode<Centred, Stochastic>(x, count, g, mask, numbers, bytes, lost, next);
        if (done == count) return;
        reference_loops::encode<Centred, Stochastic>(x + done, count - done, g, mask, numbers + done, bytes + done,
                                                     lost == nullptr ? nullptr : lost + done, {});
      };
      if (set_.is_centred) {
        is_stochastic ? encode.template operator()<true, true>() : encode.template operator()<true, false>();
      } else {
        is_stochastic ? encode.template operator()<false, true>() : encode.template operator()<false, false>();
      }
      if (set_.bits == 8) {
        std::fill(packed + count, packed + code_bytes(count, 8), std::byte{0});
      } else {
        With::pack(codes, count, set_.bits, packed, end);
      }
      next.gradient += count * next.element_bytes;
    }
  }

  //! x = or x += scale times the levels of elements `at` to at + count of a block that has numbers.
  template <bool Add>
  void levels(received const& block, std::size_t at, std::size_t count, std::byte const* end, float scale,
              float* x) const {
    grid const& g = block.levels;
    std::byte const* const codes = block.codes + code_bytes(at, set_.bits);
    // The fast loops leave the factor out; Loops may be the reference itself. NOLINTNEXTLINE(bugprone-branch-clone)
    g.factor == 1.0f ? levels_by<Loops, Add>(codes, end, count, g, scale, x)
                     : levels_by<reference_loops, Add>(codes, end, count, g, scale, x);
  }

  template <class With, bool Add>
  void levels_by(std::byte const* codes, std::byte const* end, std::size_t count, grid const& g, float scale,
                 float* x) const {
    auto const run = [&]<bool Centred>() {
      std::size_t const done = With::template decode<Centred, Add>(codes, end, count, set_.bits, g, scale, x);
      if (done == count) return;
      reference_loops::decode<Centred, Add>(codes, end, count, set_.bits, g, scale, x, done);
    };
    set_.is_centred ? run.template operator()<true>() : run.template operator()<false>();
  }

  //! Sums the elements from `begin` on. False where a payload has no numbers.
  [[gnu::noinline]] bool sum_rest(blocks::shards const& shards, std::size_t begin, float* x) const {
    blocks::block const& block = shards.block;
    bool all_finite = true;
    bool first = true;
    for (std::byte const* const payload : shards.payloads) {
      received const one = read_block(set_, payload + block.payload, block);
      all_finite = all_finite && one.finite;
      auto const add = [&]<bool Centred>() {
        first ? reference_loops::decode<Centred, false>(one.codes, nullptr, block.count, set_.bits, one.levels, 1.0f, x,
                                                        begin)
              : reference_loops::decode<Centred, true>(one.codes, nullptr, block.count, set_.bits, one.levels, 1.0f, x,
                                                       begin);
      };
      set_.is_centred ? add.template operator()<true>() : add.template operator()<false>();
      first = false;
    }
    return all_finite;
  }

  [[gnu::noinline]] void write_spoiled(std::size_t count, std::byte* to) const {
    std::memset(to, 0, bytes(count));
    write_header(std::bit_cast<float>(spoiled_bits), std::bit_cast<float>(spoiled_bits), to);
  }

  void write_header(float low, float high, std::byte* to) const {
    if (set_.scale == scaling::absmax) {
      absmax_header const header{high};
      std::memcpy(to, &header, sizeof header);
    } else {
      minmax_header const header{low, high};
      std::memcpy(to, &header, sizeof header);
    }
  }

  settings set_;
};

//! The Highway path: the same bytes.
extern codec_functions const fast;

}  // namespace gradwire::quant
