#include "comm/arithmetic.hpp"

#include <gradwire/error.hpp>

namespace gradwire {
namespace {

float widen(float value) { return value; }
float widen(f16 value) { return to_float(value); }
float widen(bf16 value) { return to_float(value); }

template <class T>
T narrow(float value);
template <>
float narrow<float>(float value) {
  return value;
}
template <>
f16 narrow<f16>(float value) {
  return to_f16(value);
}
template <>
bf16 narrow<bf16>(float value) {
  return to_bf16(value);
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
