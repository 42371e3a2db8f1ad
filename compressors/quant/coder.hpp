#pragma once

#include <algorithm>
#include <bit>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <span>

#include <gradwire/codec.hpp>

#include "compressors/blocks.hpp"
#include "compressors/feedback/format.hpp"
#include "compressors/quant/format.hpp"

namespace gradwire::quant {

//! Positions in codec_entry::keys.
inline constexpr std::size_t bits_key = 0;
inline constexpr std::size_t block_key = 1;
inline constexpr std::size_t scale_key = 2;
inline constexpr std::size_t round_key = 3;

//! The keys' values.
struct settings {
  unsigned bits;
  std::size_t block;
  scaling scale;
  rounding round;

  explicit settings(param_values const& params)
      : bits{static_cast<unsigned>(params.integer(bits_key))},
        block{params.integer(block_key)},
        scale{static_cast<scaling>(params.integer(scale_key))},
        round{static_cast<rounding>(params.integer(round_key))} {}

  [[nodiscard]] bool is_centred() const noexcept { return centred(scale, bits); }
  [[nodiscard]] std::size_t bytes(std::size_t count) const noexcept {
    return header_bytes(scale) + code_bytes(count, bits);
  }
};

//! Elements whose codes and random numbers are kept at a time between the steps of encoding: they stay in the
//! first-level cache.
inline constexpr std::size_t piece = 1024;
//! Room behind them for a whole vector of any width.
inline constexpr std::size_t slack = 64;

//! A source: the sum of decoded blocks, at most four at a time, on top of `before` (null: nothing); with Last: scaled,
//! and `residual` (null: none) added. An element goes to `sums` when it is looked at.
template <bool Centred, bool Last>
struct summed {
  //! What levels of a factor of 1 depend on.
  struct part {
    std::byte const* codes;
    float low;
    float high;
    float unit;
    float top;
  };
  static constexpr std::size_t most = 4;

  part parts[most];
  std::size_t size;
  std::size_t count;  //!< elements of the block
  unsigned bits;
  std::size_t readable;  //!< bytes from `codes` to the end of the payload
  float const* before;
  float scale;
  float const* residual;
  float* sums;

  [[nodiscard]] float at(std::size_t i) const noexcept;
};

//! Code i of a bit string.
[[nodiscard]] inline std::int32_t read_code(std::byte const* codes, std::size_t i, bool is_centred,
                                            unsigned bits) noexcept {
  std::size_t const bit = i * bits;
  std::uint32_t field = std::to_integer<std::uint32_t>(codes[bit / 8]) >> (bit % 8);
  if (bit % 8 + bits > 8) field |= std::to_integer<std::uint32_t>(codes[bit / 8 + 1]) << (8 - bit % 8);
  return code_of_field(field, is_centred, bits);
}

template <bool Centred, bool Last>
float summed<Centred, Last>::at(std::size_t i) const noexcept {
  float total = before == nullptr ? 0 : before[i];
  for (std::size_t p = 0; p < size; ++p) {
    part const& one = parts[p];
    grid const levels{1.0f, one.low, one.high, one.unit, one.top, extent{one.low, one.high, true}};
    float const x = level(levels, Centred, read_code(one.codes, i, Centred, bits));
    total = p == 0 && before == nullptr ? x : total + x;
  }
  if constexpr (Last) total = residual == nullptr ? scale * total : feedback::add(residual[i], scale, total);
  return sums[i] = total;
}

//! The plain loops: the definition of the bytes. encode and decode return how many elements, from the first on, they
//! have done: loops in vectors leave the last ones to these. (A call of these at the end of a function with AVX code
//! would be a jump, before which GCC 12 does not clear the upper halves of the registers, and SSE code then crawls.)
struct reference_loops {
  static constexpr bool sums_in_registers = false;

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
  static std::size_t encode(float const* x, std::size_t count, grid const& g, unsigned mask,
                            std::uint16_t const* numbers, std::uint8_t* codes, float* residual, blocks::upcoming) {
    for (std::size_t i = 0; i < count; ++i) {
      std::int32_t const code =
          Stochastic ? code_stochastic(g, Centred, x[i], numbers[i] & random_mask) : code_nearest(g, Centred, x[i]);
      codes[i] = static_cast<std::uint8_t>(static_cast<unsigned>(code) & mask);
      if (residual != nullptr) residual[i] = x[i] - level(g, Centred, code);
    }
    return count;
  }

  //! `count` codes as a bit string of code_bytes(count, bits) bytes. `codes` has `slack` more bytes, to be overwritten.
  static void pack(std::uint8_t* codes, std::size_t count, unsigned bits, std::byte* to, std::byte const*) {
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

  //! out = scale·level, or out += scale·level, for a block's elements from `begin` on.
  template <bool Centred, bool Add, class T>
  static std::size_t decode(std::byte const* codes, std::byte const*, std::size_t count, unsigned bits, grid const& g,
                            float scale, T* out, std::size_t begin = 0) {
    for (std::size_t i = begin; i < count; ++i) {
      float const x = level(g, Centred, read_code(codes, i, Centred, bits));
      out[i] = from_float<T>(Add ? feedback::add(to_float(out[i]), scale, x) : scale * x);
    }
    return count;
  }
};

//! blocks::functions' Coder: what happens to a block, with the loops left open.
template <class Loops>
class coder {
 public:
  explicit coder(param_values const& params) : set_{params} {}

  [[nodiscard]] std::size_t size() const noexcept { return set_.block; }
  [[nodiscard]] std::size_t bytes(std::size_t count) const noexcept { return set_.bytes(count); }

  template <class Source>
  void encode(Source const& source, float const* values, blocks::block const& block, random_key key, std::byte* to,
              std::byte const* end, float* residual, blocks::upcoming next) const {
    encode_between(look(source, block.count), values, block, key, to, end, residual, next);
  }

  void reduce_encode(blocks::shards const& parts, float scale, random_key key, std::byte* to, std::byte const* end,
                     float* residual, float* sums) const {
    extent const found = sum(parts, scale, residual, sums);
    encode_between(found, sums, parts.block, key, to, end, residual, {});
  }

  template <bool Add, class T>
  void decode(std::byte const* from, std::byte const* end, blocks::block const& block, T* out, float scale) const {
    extent const found = read(from, block);
    if (!found.finite()) {
      for (std::size_t i = 0; i < block.count; ++i) out[i] = from_float<T>(std::bit_cast<float>(spoiled_bits));
      return;
    }
    grid const g = make_grid(found, set_.scale, set_.bits);
    from += header_bytes(set_.scale);
    if (g.factor == 1.0f) {
      decode_codes<Loops, Add>(from, end, block, g, scale, out);
    } else {
      decode_codes<reference_loops, Add>(from, end, block, g, scale, out);
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
      std::memset(to, 0, bytes(block.count));
      write_header(std::bit_cast<float>(spoiled_bits), std::bit_cast<float>(spoiled_bits), to);
      return;
    }
    write_header(found.low(), found.high(), to);
    grid const g = make_grid(found, set_.scale, set_.bits);
    to += header_bytes(set_.scale);
    // The fast loops leave the factor out.
    if (g.factor == 1.0f) {
      encode_codes<Loops>(values, block, key, g, to, end, residual, next);
    } else {
      encode_codes<reference_loops>(values, block, key, g, to, end, residual, next);
    }
  }

  //! sums = scale·ΣD + residual (null: none); returns what a look at them finds.
  extent sum(blocks::shards const& parts, float scale, float const* residual, float* sums) const {
    if constexpr (Loops::sums_in_registers) {
      extent found{0, 0, true};
      if (set_.is_centred() ? sum_in_registers<true>(parts, scale, residual, sums, found)
                            : sum_in_registers<false>(parts, scale, residual, sums, found)) {
        return found;
      }
    }
    blocks::block const& block = parts.block;
    bool first = true;
    for (std::byte const* const payload : parts.payloads) {
      std::byte const* const from = payload + block.payload;
      first ? decode<false>(from, payload + parts.bytes, block, sums, 1.0f)
            : decode<true>(from, payload + parts.bytes, block, sums, 1.0f);
      first = false;
    }
    for (std::size_t i = 0; i < block.count; ++i) {
      sums[i] = residual == nullptr ? scale * sums[i] : feedback::add(residual[i], scale, sums[i]);
    }
    return look(blocks::plain<float>{sums}, block.count);
  }

  //! False when a block has no numbers, or has numbers that need a factor.
  template <bool Centred>
  bool sum_in_registers(blocks::shards const& shards, float scale, float const* residual, float* sums,
                        extent& found) const {
    constexpr std::size_t most = summed<Centred, false>::most;
    std::size_t const header = header_bytes(set_.scale);
    auto const sum_some = [&]<bool Last>(std::size_t begin, std::size_t size) {
      summed<Centred, Last> source;
      source.size = size;
      source.count = shards.block.count;
      source.bits = set_.bits;
      source.readable = shards.bytes - shards.block.payload - header;
      source.before = begin == 0 ? nullptr : sums;
      source.scale = scale;
      source.residual = residual;
      source.sums = sums;
      for (std::size_t p = 0; p < size; ++p) {
        std::byte const* const from = shards.payloads[begin + p] + shards.block.payload;
        extent const one = read(from, shards.block);
        grid const g = make_grid(one, set_.scale, set_.bits);
        if (!one.finite() || g.factor != 1.0f) return false;
        source.parts[p] = {from + header, g.low, g.high, g.unit, g.top};
      }
      found = look(source, shards.block.count);
      return true;
    };
    std::size_t const size = shards.payloads.size();
    std::size_t begin = 0;
    for (; begin + most < size; begin += most) {
      if (!sum_some.template operator()<false>(begin, most)) return false;
    }
    return sum_some.template operator()<true>(begin, size - begin);
  }

  template <class With>
  void encode_codes(float const* values, blocks::block const& block, random_key key, grid const& g, std::byte* to,
                    std::byte const* end, float* residual, blocks::upcoming next) const {
    alignas(64) std::uint8_t codes[piece + slack];
    alignas(64) std::uint16_t numbers[piece + slack];
    bool const is_stochastic = set_.round == rounding::stochastic;
    for (std::size_t at = 0; at < block.count; at += piece) {
      std::size_t const count = std::min(piece, block.count - at);
      float* const lost = residual == nullptr ? nullptr : residual + at;
      if (is_stochastic) With::draw(key, block.tensor_id, block.first + at, count, numbers);
      auto const encode = [&]<bool Centred, bool Stochastic>() {
        unsigned const mask = (1u << set_.bits) - 1u;
        float const* const x = values + at;
        std::size_t const done =
            With::template encode<Centred, Stochastic>(x, count, g, mask, numbers, codes, lost, next);
        if (done == count) return;
        reference_loops::encode<Centred, Stochastic>(x + done, count - done, g, mask, numbers + done, codes + done,
                                                     lost == nullptr ? nullptr : lost + done, {});
      };
      if (set_.is_centred()) {
        is_stochastic ? encode.template operator()<true, true>() : encode.template operator()<true, false>();
      } else {
        is_stochastic ? encode.template operator()<false, true>() : encode.template operator()<false, false>();
      }
      With::pack(codes, count, set_.bits, to + code_bytes(at, set_.bits), end);
      next.gradient += count * next.element_bytes;
    }
  }

  template <class With, bool Add, class T>
  void decode_codes(std::byte const* codes, std::byte const* end, blocks::block const& block, grid const& g,
                    float scale, T* out) const {
    auto const decode = [&]<bool Centred>() {
      std::size_t const done = With::template decode<Centred, Add>(codes, end, block.count, set_.bits, g, scale, out);
      if (done == block.count) return;
      reference_loops::decode<Centred, Add>(codes, end, block.count, set_.bits, g, scale, out, done);
    };
    set_.is_centred() ? decode.template operator()<true>() : decode.template operator()<false>();
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

  extent read(std::byte const* from, blocks::block const& block) const {
    std::size_t const used = block.count * set_.bits % 32;
    std::uint32_t last = 0;
    if (used != 0) std::memcpy(&last, from + bytes(block.count) - sizeof last, sizeof last);
    if (used != 0 && last >> used != 0)
      blocks::corrupt("quant", "has code bits behind its last element", block.payload);
    if (set_.scale == scaling::absmax) {
      absmax_header header;
      std::memcpy(&header, from, sizeof header);
      auto const bits = std::bit_cast<std::uint32_t>(header.absmax);
      if (bits >= 0x7f800000u && bits != spoiled_bits) {
        blocks::corrupt("quant", "has a maximum that is negative or infinite", block.payload);
      }
      return {0.0f - header.absmax, header.absmax, bits != spoiled_bits};
    }
    minmax_header header;
    std::memcpy(&header, from, sizeof header);
    bool const spoiled = std::bit_cast<std::uint32_t>(header.min) == spoiled_bits &&
                         std::bit_cast<std::uint32_t>(header.max) == spoiled_bits;
    if (!spoiled && !(finite(header.min) && finite(header.max) && header.min <= header.max)) {
      blocks::corrupt("quant", "has a minimum over its maximum, or an infinite one", block.payload);
    }
    return {header.min, header.max, !spoiled};
  }

  settings set_;
};

//! The Highway path: the same bytes.
extern codec_functions const fast;

}  // namespace gradwire::quant
