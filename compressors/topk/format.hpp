#pragma once
//! Byte layout of a topk payload and the arithmetic around it, for host and device. README.md has the picture.

#include <bit>
#include <cstddef>
#include <cstdint>
#include <cstring>

#include <gradwire/macros.hpp>

namespace gradwire::topk {

static_assert(std::endian::native == std::endian::little, "payloads are little-endian");

inline constexpr std::uint32_t header_plain = 0;
inline constexpr std::uint32_t header_spoiled = 1;  //!< a NaN or Inf was in the segment: all of it decodes to NaN
inline constexpr std::uint32_t infinity_bits = 0x7f800000u;

//! |x| as an integer: in the order of the magnitudes for all finite numbers, and `infinity_bits` or more for the rest.
[[nodiscard]] GW_HD constexpr std::uint32_t magnitude(float x) noexcept {
  return std::bit_cast<std::uint32_t>(x) & 0x7fffffffu;
}

//! What is sent for a kept element: itself, but +0 for -0, so that nothing ever decodes to -0.
[[nodiscard]] GW_HD constexpr float sent(float x) noexcept { return x + 0.0f; }

//! Where things lie in the payload of one segment, in 32-bit words. All is fixed by (count, kept).
//!
//! Elias (1974) and Fano (1971): `kept` increasing indices below `count` are cut into low_width = ⌊log₂(count/kept)⌋
//! low bits, packed one behind the other, and the rest, index ≫ low_width, which sets bit (rest + i) of a bitmap for
//! the i-th index: kept ones and at most ⌊(count − 1)/2^low_width⌋ zeros.
struct layout {
  std::size_t count = 0;
  std::size_t kept = 0;
  unsigned low_width = 0;
  std::size_t low_words = 0;
  std::size_t upper_words = 0;

  [[nodiscard]] GW_HD constexpr std::size_t values_at() const noexcept { return 1; }
  [[nodiscard]] GW_HD constexpr std::size_t low_at() const noexcept { return 1 + kept; }
  [[nodiscard]] GW_HD constexpr std::size_t upper_at() const noexcept { return 1 + kept + low_words; }
  [[nodiscard]] GW_HD constexpr std::size_t words() const noexcept {
    return count == 0 ? 0 : 1 + kept + low_words + upper_words;
  }
  [[nodiscard]] GW_HD constexpr std::size_t bytes() const noexcept { return 4 * words(); }
};

//! `kept` is 1 to `count`, or both are 0.
[[nodiscard]] GW_HD constexpr layout layout_of(std::size_t count, std::size_t kept) noexcept {
  layout result;
  if (count == 0) return result;
  result.count = count;
  result.kept = kept;
  // ⌊log₂(count/kept)⌋ = ⌊log₂⌊count/kept⌋⌋, so integers are enough.
  for (std::size_t rest = count / kept; rest > 1; rest >>= 1) ++result.low_width;
  std::size_t const low_bits = kept * result.low_width;  // kept·log₂(count/kept) < count: no overflow
  std::size_t const upper_bits = kept + ((count - 1) >> result.low_width);
  result.low_words = low_bits / 32 + (low_bits % 32 != 0);
  result.upper_words = upper_bits / 32 + (upper_bits % 32 != 0);
  return result;
}

//! Payloads have any alignment.
[[nodiscard]] GW_HD inline std::uint32_t load_word(std::byte const* payload, std::size_t word) noexcept {
  std::uint32_t value;
  std::memcpy(&value, payload + 4 * word, sizeof(value));
  return value;
}

GW_HD inline void store_word(std::byte* payload, std::size_t word, std::uint32_t value) noexcept {
  std::memcpy(payload + 4 * word, &value, sizeof(value));
}

//! `width` (0 to 63) bits that begin at bit `at` of the words from `first` on; reads no word that holds none of them.
[[nodiscard]] GW_HD inline std::uint64_t load_bits(std::byte const* payload, std::size_t first, std::size_t at,
                                                   unsigned width) noexcept {
  if (width == 0) return 0;
  std::size_t word = first + at / 32;
  unsigned const shift = static_cast<unsigned>(at % 32);
  std::uint64_t value = load_word(payload, word) >> shift;
  for (unsigned have = 32 - shift; have < width; have += 32) value |= std::uint64_t{load_word(payload, ++word)} << have;
  return value & ((std::uint64_t{1} << width) - 1);
}

//! Sets bits that were zero.
GW_HD inline void store_bits(std::byte* payload, std::size_t first, std::size_t at, unsigned width,
                             std::uint64_t value) noexcept {
  if (width == 0) return;
  std::size_t word = first + at / 32;
  unsigned const shift = static_cast<unsigned>(at % 32);
  store_word(payload, word, load_word(payload, word) | static_cast<std::uint32_t>(value << shift));
  for (unsigned done = 32 - shift; done < width; done += 32) {
    ++word;
    store_word(payload, word, load_word(payload, word) | static_cast<std::uint32_t>(value >> done));
  }
}

}  // namespace gradwire::topk
