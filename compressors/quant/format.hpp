#pragma once
//! quant's bytes and arithmetic, for host and device. A block of m elements with b bits each:
//!   absmax_header or minmax_header
//!   ⌈b·m/32⌉ words   a bit string, lowest bit of the lowest byte first: code i in bits b·i … b·i + b − 1; then 0

#include <bit>
#include <cstddef>
#include <cstdint>

#include <gradwire/codec.hpp>
#include <gradwire/macros.hpp>

#include "core/random.hpp"

namespace gradwire::quant {

enum class scaling : std::uint8_t { absmax, minmax };
enum class rounding : std::uint8_t { nearest, stochastic };

struct absmax_header {
  float absmax;
};
struct minmax_header {
  float min;
  float max;
};
static_assert(sizeof(absmax_header) == 4 && sizeof(minmax_header) == 8);

[[nodiscard]] GW_HD constexpr std::size_t header_bytes(scaling scale) noexcept {
  return scale == scaling::absmax ? sizeof(absmax_header) : sizeof(minmax_header);
}
[[nodiscard]] GW_HD constexpr std::size_t code_bytes(std::size_t count, unsigned bits) noexcept {
  return (count * bits + 31) / 32 * 4;
}

//! In the header of a spoiled block, in each field; its codes are 0.
inline constexpr std::uint32_t spoiled_bits = 0x7fc00000u;

//! What the first look at a block finds: lowest and highest element (absmax: −max|x| and max|x|), zeros positive. In
//! one register: compilers return a pair of floats by way of memory, written in halves and read as a whole, and a
//! processor lets such a read wait until all stores before it, those of the block before as well, have reached the
//! cache.
class extent {
 public:
  GW_HD constexpr extent(float low, float high, bool is_finite) noexcept
      : bits_{is_finite ? std::bit_cast<std::uint32_t>(low) | std::uint64_t{std::bit_cast<std::uint32_t>(high)} << 32
                        : spoiled_bits | std::uint64_t{spoiled_bits} << 32} {}

  [[nodiscard]] GW_HD constexpr float low() const noexcept {
    return std::bit_cast<float>(static_cast<std::uint32_t>(bits_));
  }
  [[nodiscard]] GW_HD constexpr float high() const noexcept {
    return std::bit_cast<float>(static_cast<std::uint32_t>(bits_ >> 32));
  }
  [[nodiscard]] GW_HD constexpr bool finite() const noexcept {
    return static_cast<std::uint32_t>(bits_) != spoiled_bits;
  }

 private:
  std::uint64_t bits_;
};

//! The levels of a block. Codes are q = −top … top, level q·unit (absmax with 2 bits and more: "centred"), or
//! q = 0 … top, level low + q·unit. The levels at both ends are exactly low and high. `unit` is that of numbers
//! multiplied by `factor`, a power of two that keeps the arithmetic from overflow and from subnormal numbers.
struct grid {
  float factor;
  float low;
  float high;
  float unit;
  float top;
};

//! absmax with one bit has no room for a zero: its two levels are −max|x| and max|x|, a grid from low to high.
[[nodiscard]] GW_HD constexpr bool centred(scaling scale, unsigned bits) noexcept {
  return scale == scaling::absmax && bits > 1;
}

[[nodiscard]] GW_HD constexpr unsigned top_code(scaling scale, unsigned bits) noexcept {
  return (1u << (centred(scale, bits) ? bits - 1u : bits)) - 1u;
}

[[nodiscard]] GW_HD constexpr float magnitude(float x) noexcept {
  return std::bit_cast<float>(std::bit_cast<std::uint32_t>(x) & 0x7fffffffu);
}

[[nodiscard]] GW_HD constexpr float factor_for(float most) noexcept {
  // Nearly all blocks have 2^-64 ≤ most < 2^64, which one comparison of bits tells.
  constexpr std::uint32_t least = std::bit_cast<std::uint32_t>(0x1p-64f);
  constexpr std::uint32_t range = std::bit_cast<std::uint32_t>(0x1p64f) - least;
  if (std::bit_cast<std::uint32_t>(most) - least < range) return 1.0f;
  return most >= 0x1p64f ? 0x1p-64f : (most > 0.0f ? 0x1p64f : 1.0f);
}

//! `top`: top_code() as a number.
[[nodiscard]] [[gnu::always_inline]] GW_HD constexpr grid make_grid(float low, float high, bool is_centred,
                                                                    float top) noexcept {
  float const most = is_centred || magnitude(low) < magnitude(high) ? magnitude(high) : magnitude(low);
  float const factor = factor_for(most);
  if (!is_centred) return {factor, low, high, (high * factor - low * factor) / top, top};
  // The next float above the quotient where top·unit < high, so that the clamp of level() gives the ends exactly. No
  // branch, which would depend on the last bits of the numbers.
  float const end = high * factor;
  float const quotient = end / top;
  auto const above = static_cast<std::uint32_t>(quotient * top < end);
  return {factor, low, high, std::bit_cast<float>(std::bit_cast<std::uint32_t>(quotient) + above), top};
}

//! 1/unit, to encode with, taken from the ends so that they get the codes at the ends.
[[nodiscard]] GW_HD constexpr float inverse(grid const& g, bool is_centred) noexcept {
  float const high = g.high * g.factor;
  float const span = is_centred ? high : high - g.low * g.factor;
  return span > 0.0f ? g.top / span : 0.0f;
}

//! To nearest, ties to even, for |x| ≤ 2^22: the last place of 1.5·2^23 + x counts ones.
inline constexpr float to_integer = 0x1.8p23f;
[[nodiscard]] GW_HD constexpr std::int32_t nearest(float x) noexcept {
  return std::bit_cast<std::int32_t>(x + to_integer) - std::bit_cast<std::int32_t>(to_integer);
}

//! Stochastic rounding works on multiples of 2^-14 of a unit and draws 14 bits: the expected value is off by at most
//! 2^-15 of a unit, and what lies on a level stays there.
inline constexpr unsigned random_bits = 14;
inline constexpr std::uint32_t random_mask = (1u << random_bits) - 1u;
inline constexpr float random_scale = 0x1p14f;
static_assert(random_scale == 1u << random_bits);

//! One block of random numbers serves 8 elements, in order: 16 bits each, of which the lower 14 are used. Rounding asks
//! less of them than a simulation does, and they are most of the time that encoding takes: the fewest good rounds.
inline constexpr std::size_t elements_per_random_block = 8;
inline constexpr unsigned random_rounds = 7;

[[nodiscard]] GW_HD inline std::uint32_t random_number(random_key key, std::uint32_t tensor_id, std::uint64_t element) {
  std::uint32_t const word = random_block<random_rounds>(key, tensor_id, element / 8)[element % 8 / 2];
  return (element % 2 == 0 ? word : word >> 16) & random_mask;
}

[[nodiscard]] GW_HD constexpr std::int32_t code_nearest(grid const& g, bool is_centred, float x) noexcept {
  float const scaled = x * g.factor;
  return nearest((is_centred ? scaled : scaled - g.low * g.factor) * inverse(g, is_centred));
}

[[nodiscard]] GW_HD constexpr std::int32_t code_stochastic(grid const& g, bool is_centred, float x,
                                                           std::uint32_t number) noexcept {
  float const scaled = x * g.factor;
  float const fixed = (is_centred ? scaled : scaled - g.low * g.factor) * (inverse(g, is_centred) * random_scale);
  return (nearest(fixed) + static_cast<std::int32_t>(number)) >> random_bits;
}

//! What a receiver makes of a code.
[[nodiscard]] GW_HD constexpr float level(grid const& g, bool is_centred, std::int32_t code) noexcept {
  float const q = static_cast<float>(code);
  // Without the factor, under which a small end can vanish beside a huge one.
  if (!is_centred && q == 0.0f) return g.low;
  if (!is_centred && q == g.top) return g.high;
  float const low = g.low * g.factor;
  float const high = g.high * g.factor;
  float value = q * g.unit;
  value = is_centred ? (value < low ? low : (high < value ? high : value)) : low + value;
  return value * (1.0f / g.factor);
}

//! A b-bit field as a code: centred ones are two's complement.
[[nodiscard]] GW_HD constexpr std::int32_t code_of_field(std::uint32_t field, bool is_centred, unsigned bits) noexcept {
  std::uint32_t const left = field << (32u - bits);
  return is_centred ? static_cast<std::int32_t>(left) >> (32u - bits) : static_cast<std::int32_t>(left >> (32u - bits));
}

[[nodiscard]] GW_HD constexpr bool finite(float x) noexcept {
  return (std::bit_cast<std::uint32_t>(x) & 0x7f800000u) != 0x7f800000u;
}

}  // namespace gradwire::quant
