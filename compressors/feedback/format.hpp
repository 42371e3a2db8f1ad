#pragma once

#include <bit>
#include <cstdint>

#include <gradwire/macros.hpp>

namespace gradwire::feedback {

[[nodiscard]] GW_HD constexpr bool finite(float value) noexcept {
  return (std::bit_cast<std::uint32_t>(value) & 0x7f800000u) != 0x7f800000u;
}

//! What error feedback keeps of an element: e' = c − D(Q(c)) with c = g + e (Karimireddy et al., ICML 2019, algorithm
//! 2, the step size being the optimizer's). Where the decoded value is not finite, `old` stays, so that one bad step
//! cannot poison the following ones.
[[nodiscard]] GW_HD constexpr float residual(float corrected, float decoded, float old) noexcept {
  return finite(decoded) ? corrected - decoded : old;
}

//! decode_add for one element: the product is rounded, then the sum.
[[nodiscard]] GW_HD constexpr float add(float out, float scale, float decoded) noexcept {
  float const product = scale * decoded;
  return out + product;
}

}  // namespace gradwire::feedback
