#pragma once

#include <bit>
#include <cstddef>
#include <cstdint>

#include <gradwire/dtype.hpp>
#include <gradwire/macros.hpp>

#include "compressors/gradient.hpp"

namespace gradwire::cast {

//! One element on the wire: rounded to nearest, ties to even. Every NaN becomes the one NaN without sign and payload,
//! so that the bytes do not depend on which of two NaNs an addition kept, which differs between compilers and devices.
template <class Wire>
[[nodiscard]] GW_HD constexpr Wire pack(float value) noexcept {
  return from_float<Wire>(value == value ? value : std::bit_cast<float>(std::uint32_t{0x7fc00000u}));
}

//! Bytes of `count` elements: back to back, and zero bytes up to a multiple of 4.
template <class Wire>
[[nodiscard]] constexpr std::size_t encoded_bytes(std::size_t count) noexcept {
  return (count * sizeof(Wire) + 3) / 4 * 4;
}

//! Cuts fall where the bytes are a multiple of 4.
template <class Wire>
inline constexpr std::size_t granule = 4 / sizeof(Wire);

}  // namespace gradwire::cast
