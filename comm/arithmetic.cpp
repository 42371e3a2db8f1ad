#include "comm/arithmetic.hpp"

#include <bit>
#include <cstdint>

#include <gradwire/error.hpp>

namespace gradwire {
namespace {

// As a mask: from ?: the compiler makes branches, which it cannot turn into vector code where they guard float sums.
std::uint32_t select(bool condition, std::uint32_t yes, std::uint32_t no) {
  std::uint32_t const mask = 0u - static_cast<std::uint32_t>(condition);
  return (yes & mask) | (no & ~mask);
}

// Without branches, so that the loops below become vector code; the numbers are those of to_float and to_f16.
float widen(float value) { return value; }
float widen(bf16 value) { return to_float(value); }
float widen(f16 value) {
  std::uint32_t const magnitude = value.bits & 0x7fffu;
  // The f16 exponent, read as an f32 one, is 112 too small; the product is exact, also for subnormal numbers.
  auto const scaled = std::bit_cast<std::uint32_t>(std::bit_cast<float>(magnitude << 13) * 0x1p112F);
  std::uint32_t const not_finite = select(magnitude >= 0x7c00u, 0x7f800000u, 0u);
  return std::bit_cast<float>(scaled | not_finite | (std::uint32_t{value.bits} & 0x8000u) << 16);
}

template <class T>
T narrow(float value);
template <>
float narrow<float>(float value) {
  return value;
}
template <>
bf16 narrow<bf16>(float value) {
  return to_bf16(value);
}
template <>
f16 narrow<f16>(float value) {
  auto const bits = std::bit_cast<std::uint32_t>(value);
  std::uint32_t const magnitude = bits & 0x7fffffffu;
  std::uint32_t const normal = (magnitude - 0x38000000u + 0xfffu + ((magnitude >> 13) & 1u)) >> 13;
  // Adding 0.5 leaves the number rounded to 2^-24, the unit of subnormal f16, in the low bits.
  std::uint32_t const subnormal =
      std::bit_cast<std::uint32_t>(std::bit_cast<float>(magnitude) + 0.5F) - std::bit_cast<std::uint32_t>(0.5F);
  std::uint32_t const quiet = 0x7e00u | ((magnitude >> 13) & 0x1ffu);
  auto result = select(magnitude < 0x38800000u, subnormal, normal);
  result = select(magnitude >= 0x47800000u, 0x7c00u, result);
  result = select(magnitude > 0x7f800000u, quiet, result);
  return {static_cast<std::uint16_t>(result | ((bits >> 16) & 0x8000u))};
}

template <class T, class Operation>
void loop(void* out, void const* a, void const* b, std::size_t count, Operation operation) {
  auto* const to = static_cast<T*>(out);
  auto const* const left = static_cast<T const*>(a);
  auto const* const right = static_cast<T const*>(b);
  for (std::size_t i = 0; i < count; ++i) to[i] = narrow<T>(operation(widen(left[i]), widen(right[i])));
}

template <class T>
void dispatch(void* out, void const* a, void const* b, std::size_t count, reduce_op op) {
  switch (op) {
    case reduce_op::sum: return loop<T>(out, a, b, count, [](float x, float y) { return x + y; });
    // A comparison with NaN is false: the right NaN is taken as it stands, the left one by x != x.
    case reduce_op::max: return loop<T>(out, a, b, count, [](float x, float y) { return x > y || x != x ? x : y; });
    case reduce_op::min: return loop<T>(out, a, b, count, [](float x, float y) { return x < y || x != x ? x : y; });
  }
  throw error{errc::invalid_argument, "unknown reduce_op: use sum, max or min"};
}

}  // namespace

void combine(void* out, void const* a, void const* b, std::size_t count, dtype type, reduce_op op) {
  switch (type) {
    case dtype::f32: return dispatch<float>(out, a, b, count, op);
    case dtype::f16: return dispatch<f16>(out, a, b, count, op);
    case dtype::bf16: return dispatch<bf16>(out, a, b, count, op);
  }
  throw error{errc::invalid_argument, "unknown dtype: use f32, f16 or bf16"};
}

}  // namespace gradwire
