#pragma once

#include <bit>
#include <cstddef>
#include <cstdint>
#include <string_view>

#include <gradwire/macros.hpp>

namespace gradwire {

//! Element types of gradients. The values are part of the frame format (docs/wire-format.md).
enum class dtype : std::uint8_t { f32 = 0, f16 = 1, bf16 = 2 };

[[nodiscard]] constexpr std::size_t size_of(dtype type) noexcept { return type == dtype::f32 ? 4 : 2; }
[[nodiscard]] std::string_view to_string(dtype type) noexcept;
//! Parses "f32", "f16" or "bf16"; throws errc::invalid_argument that lists them.
[[nodiscard]] dtype parse_dtype(std::string_view text);

//! IEEE 754 binary16 and bfloat16 as storage types: conversions only, arithmetic is done in float.
struct f16 {
  std::uint16_t bits = 0;
  friend bool operator==(f16, f16) = default;  //!< compares bits
};
struct bf16 {
  std::uint16_t bits = 0;
  friend bool operator==(bf16, bf16) = default;  //!< compares bits
};
static_assert(sizeof(f16) == 2 && sizeof(bf16) == 2);

//! Rounds to nearest, ties to even; values beyond the range become infinite; NaN keeps its sign and upper payload and
//! becomes quiet. The same bits as x86 VCVTPS2PH and CUDA __float2half_rn give for numbers.
[[nodiscard]] GW_HD constexpr f16 to_f16(float value) noexcept {
  std::uint32_t const x = std::bit_cast<std::uint32_t>(value);
  std::uint32_t const sign = (x >> 16) & 0x8000u;
  std::uint32_t const magnitude = x & 0x7fffffffu;
  if (magnitude > 0x7f800000u) {
    return {static_cast<std::uint16_t>(sign | 0x7e00u | ((magnitude >> 13) & 0x1ffu))};
  }
  if (magnitude >= 0x47800000u) return {static_cast<std::uint16_t>(sign | 0x7c00u)};  // 2^16 and more, infinity
  if (magnitude >= 0x38800000u) {                                                     // normal: 2^-14 and more
    std::uint32_t const odd = (magnitude >> 13) & 1u;
    return {static_cast<std::uint16_t>(sign | ((magnitude - 0x38000000u + 0xfffu + odd) >> 13))};
  }
  if (magnitude < 0x33000000u) return {static_cast<std::uint16_t>(sign)};  // under 2^-25: zero
  std::uint32_t const shift = 126u - (magnitude >> 23);                    // 14 .. 24
  std::uint32_t const mantissa = (magnitude & 0x7fffffu) | 0x800000u;
  std::uint32_t const kept = mantissa >> shift;
  std::uint32_t const rest = mantissa & ((1u << shift) - 1u);
  std::uint32_t const half = 1u << (shift - 1u);
  std::uint32_t const up = (rest > half || (rest == half && (kept & 1u) != 0u)) ? 1u : 0u;
  return {static_cast<std::uint16_t>(sign | (kept + up))};
}

[[nodiscard]] GW_HD constexpr float to_float(f16 value) noexcept {
  std::uint32_t const sign = (std::uint32_t{value.bits} & 0x8000u) << 16;
  std::uint32_t const exponent = (std::uint32_t{value.bits} >> 10) & 0x1fu;
  std::uint32_t const mantissa = std::uint32_t{value.bits} & 0x3ffu;
  if (exponent == 0x1fu) {  // infinity, or NaN made quiet
    std::uint32_t const quiet = mantissa != 0u ? 0x400000u : 0u;
    return std::bit_cast<float>(sign | 0x7f800000u | quiet | (mantissa << 13));
  }
  if (exponent != 0u) return std::bit_cast<float>(sign | ((exponent + 112u) << 23) | (mantissa << 13));
  float const magnitude = static_cast<float>(mantissa) * 0x1p-24f;
  return sign != 0u ? -magnitude : magnitude;
}

//! Rounds to nearest, ties to even; overflow gives infinity; NaN keeps its sign and upper payload and becomes quiet.
[[nodiscard]] GW_HD constexpr bf16 to_bf16(float value) noexcept {
  std::uint32_t const x = std::bit_cast<std::uint32_t>(value);
  if ((x & 0x7fffffffu) > 0x7f800000u) return {static_cast<std::uint16_t>((x >> 16) | 0x40u)};
  return {static_cast<std::uint16_t>((x + 0x7fffu + ((x >> 16) & 1u)) >> 16)};
}

[[nodiscard]] GW_HD constexpr float to_float(bf16 value) noexcept {
  return std::bit_cast<float>(std::uint32_t{value.bits} << 16);
}

//! `count` is not carried: segments say which elements of the buffer are meant.
struct const_elements {
  void const* data = nullptr;
  dtype type = dtype::f32;
};
struct elements {
  void* data = nullptr;
  dtype type = dtype::f32;
  operator const_elements() const noexcept { return {data, type}; }  // NOLINT(google-explicit-constructor)
};

}  // namespace gradwire
