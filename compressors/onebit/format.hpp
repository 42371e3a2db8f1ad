#pragma once
//! onebit's bytes and arithmetic, for host and device. A block of m elements:
//!   block_header   scale = ‖x‖₁/m; exactly |x| where all elements have this magnitude
//!   ⌈m/32⌉ words   bit i mod 32 of word i div 32 is set when element i is negative; the bits behind the last are 0

#include <bit>
#include <cstddef>
#include <cstdint>
#include <limits>

#include <gradwire/macros.hpp>

namespace gradwire::onebit {

//! Positions in codec_entry::keys.
inline constexpr std::size_t block_key = 0;
inline constexpr std::size_t scale_key = 1;

struct block_header {
  float scale;
};
static_assert(sizeof(block_header) == 4);

//! Signs in a word, and partial sums of ‖x‖₁: element i goes to partial sum i mod 32, in order.
inline constexpr std::size_t lanes = 32;

[[nodiscard]] GW_HD constexpr std::size_t block_bytes(std::size_t count) noexcept {
  return sizeof(block_header) + (count + lanes - 1) / lanes * sizeof(std::uint32_t);
}

//! The scale of a spoiled block; its words are 0.
inline constexpr std::uint32_t spoiled_bits = 0x7fc00000u;

[[nodiscard]] GW_HD constexpr float magnitude(float x) noexcept {
  return std::bit_cast<float>(std::bit_cast<std::uint32_t>(x) & 0x7fffffffu);
}

//! sign(±0) = +; that of a NaN too, though it is never sent.
[[nodiscard]] GW_HD constexpr bool negative(float x) noexcept { return x < 0.0f; }

//! The 32 partial sums as one: 16 + 16, 8 + 8, … 1 + 1. A tree, so that vectors of every width and a warp can follow.
[[nodiscard]] GW_HD constexpr float sum_lanes(float (&lane)[lanes]) noexcept {
  for (std::size_t width = lanes / 2; width != 0; width /= 2) {
    for (std::size_t j = 0; j < width; ++j) lane[j] = lane[j] + lane[j + width];
  }
  return lane[0];
}

//! When the sum of a block becomes infinite it is taken again over |x|·2^-17: 2^16 elements of less than 2^128 then
//! stay under 2^127, so that it is infinite or NaN only where an element is.
inline constexpr float shrink = 0x1p-17f;

[[nodiscard]] GW_HD constexpr float mean(float sum, std::size_t count) noexcept {
  return sum / static_cast<float>(count);
}

//! The mean of a shrunk sum; rounding must not push it over the largest number.
[[nodiscard]] GW_HD constexpr float unshrunk_mean(float sum, std::size_t count) noexcept {
  float const scale = mean(sum, count) / shrink;
  return scale < std::numeric_limits<float>::max() ? scale : std::numeric_limits<float>::max();
}

[[nodiscard]] GW_HD constexpr bool finite(float x) noexcept {
  return (std::bit_cast<std::uint32_t>(x) & 0x7f800000u) != 0x7f800000u;
}

//! Where all elements of a block have the same magnitude the scale is just that, though the sum may have rounded: by
//! less than 2^-8 of itself in 2^16 additions. So only a scale this close to the first magnitude is worth a third look.
[[nodiscard]] GW_HD constexpr bool nearly_equal(float scale, float first) noexcept {
  return scale != first && magnitude(scale - first) <= first * 0x1p-7f;
}

[[nodiscard]] GW_HD constexpr float decoded(float scale, bool is_negative) noexcept {
  return is_negative ? -scale : scale;
}

//! What an encoder can have written.
[[nodiscard]] GW_HD constexpr bool valid_scale(float scale) noexcept {
  return std::bit_cast<std::uint32_t>(scale) < 0x7f800000u || std::bit_cast<std::uint32_t>(scale) == spoiled_bits;
}

}  // namespace gradwire::onebit
