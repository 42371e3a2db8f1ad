#pragma once

#include <cstddef>
#include <type_traits>

#include <gradwire/dtype.hpp>
#include <gradwire/error.hpp>
#include <gradwire/macros.hpp>

namespace gradwire {

//! Gradients as float: what every codec computes in.
[[nodiscard]] GW_HD constexpr float to_float(float value) noexcept { return value; }

template <class T>
[[nodiscard]] GW_HD constexpr T from_float(float value) noexcept {
  if constexpr (std::is_same_v<T, f16>) {
    return to_f16(value);
  } else if constexpr (std::is_same_v<T, bf16>) {
    return to_bf16(value);
  } else {
    static_assert(std::is_same_v<T, float>);
    return value;
  }
}

//! Calls `with(T const*)` with the element type that `in` holds: with_type(in, [&](auto const* x) { … x[i] … }).
template <class F>
void with_type(const_elements in, F&& with) {
  switch (in.type) {
    case dtype::f32: return with(static_cast<float const*>(in.data));
    case dtype::f16: return with(static_cast<f16 const*>(in.data));
    case dtype::bf16: return with(static_cast<bf16 const*>(in.data));
  }
  throw error{errc::unsupported, "gradients of an unknown dtype: use f32, f16 or bf16"};
}

template <class F>
void with_type(elements out, F&& with) {
  switch (out.type) {
    case dtype::f32: return with(static_cast<float*>(out.data));
    case dtype::f16: return with(static_cast<f16*>(out.data));
    case dtype::bf16: return with(static_cast<bf16*>(out.data));
  }
  throw error{errc::unsupported, "gradients of an unknown dtype: use f32, f16 or bf16"};
}

}  // namespace gradwire
