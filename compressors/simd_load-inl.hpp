//! Gradients and payloads as lanes of f32, for the fast path of any codec. Included inside Highway's foreach_target, so
//! once for every target: hence no #pragma once. All loads and stores take any alignment; the bits are those of
//! to_float and from_float of compressors/gradient.hpp on every target.
#if defined(GRADWIRE_SIMD_LOAD_INL_HPP) == defined(HWY_TARGET_TOGGLE)
#ifdef GRADWIRE_SIMD_LOAD_INL_HPP
#undef GRADWIRE_SIMD_LOAD_INL_HPP
#else
#define GRADWIRE_SIMD_LOAD_INL_HPP
#endif

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <type_traits>

#include <hwy/highway.h>

#include <gradwire/dtype.hpp>

HWY_BEFORE_NAMESPACE();
namespace gradwire {
namespace HWY_NAMESPACE {

namespace hn = hwy::HWY_NAMESPACE;

// Highway 1.0.3 truncates instead of rounding, and knows no infinity, where the processor has no f16 conversions; so
// those targets get integer code of our own.
#undef GRADWIRE_NATIVE_F16
#if HWY_ARCH_X86 && HWY_TARGET <= HWY_AVX2 && !defined(HWY_DISABLE_F16C)
#define GRADWIRE_NATIVE_F16 1
#else
#define GRADWIRE_NATIVE_F16 0
#endif

template <class D>
using half_words = hn::Vec<hn::Rebind<std::uint16_t, D>>;

//! Half words with f16 bits to f32 lanes; `D` is a tag of float.
template <class D>
HWY_INLINE hn::Vec<D> widen_f16(D d, half_words<D> words) {
#if GRADWIRE_NATIVE_F16
  return hn::PromoteTo(d, hn::BitCast(hn::Rebind<hwy::float16_t, D>{}, words));
#else
  hn::RebindToUnsigned<D> const du;
  hn::RebindToSigned<D> const di;
  auto const bits = hn::PromoteTo(du, words);
  auto const sign = hn::ShiftLeft<16>(hn::And(bits, hn::Set(du, 0x8000u)));
  auto const mantissa = hn::And(bits, hn::Set(du, 0x3ffu));
  auto const exponent = hn::And(bits, hn::Set(du, 0x7c00u));
  auto const normal = hn::Add(hn::ShiftLeft<13>(hn::Or(exponent, mantissa)), hn::Set(du, 112u << 23));
  auto const subnormal = hn::BitCast(du, hn::Mul(hn::ConvertTo(d, hn::BitCast(di, mantissa)), hn::Set(d, 0x1p-24f)));
  auto const quiet = hn::IfThenZeroElse(hn::Eq(mantissa, hn::Zero(du)), hn::Set(du, 0x400000u));
  auto const special = hn::Or(hn::Or(hn::Set(du, 0x7f800000u), quiet), hn::ShiftLeft<13>(mantissa));
  auto const magnitude = hn::IfThenElse(hn::Eq(exponent, hn::Zero(du)), subnormal,
                                        hn::IfThenElse(hn::Eq(exponent, hn::Set(du, 0x7c00u)), special, normal));
  return hn::BitCast(d, hn::Or(sign, magnitude));
#endif
}

//! f32 lanes to half words with f16 bits.
template <class D>
HWY_INLINE half_words<D> narrow_f16(D d, hn::Vec<D> values) {
  hn::Rebind<std::uint16_t, D> const d16;
#if GRADWIRE_NATIVE_F16
  static_cast<void>(d);
  return hn::BitCast(d16, hn::DemoteTo(hn::Rebind<hwy::float16_t, D>{}, values));
#else
  hn::RebindToUnsigned<D> const du;
  hn::RebindToSigned<D> const di;
  auto const bits = hn::BitCast(du, values);
  auto const magnitude = hn::AndNot(hn::Set(du, 0x80000000u), bits);
  auto const sign = hn::ShiftRight<16>(hn::And(bits, hn::Set(du, 0x80000000u)));
  auto const odd = hn::And(hn::ShiftRight<13>(magnitude), hn::Set(du, 1u));
  // The exponent falls by 112; 0xfff and the last kept bit round to even. All that is too large ends at infinity.
  auto const shifted = hn::Add(hn::Sub(magnitude, hn::Set(du, 0x38000000u - 0xfffu)), odd);
  auto const normal = hn::Min(hn::ShiftRight<13>(shifted), hn::Set(du, 0x7c00u));
  // One unit in the last place of numbers in [0.5, 1) is the smallest f16: the addition rounds to a multiple of it.
  auto const in_half = hn::BitCast(du, hn::Add(hn::BitCast(d, magnitude), hn::Set(d, 0.5f)));
  auto const subnormal = hn::Sub(in_half, hn::Set(du, 0x3f000000u));
  auto const payload = hn::And(hn::ShiftRight<13>(magnitude), hn::Set(du, 0x1ffu));
  auto const nan = hn::Or(hn::Set(du, 0x7e00u), payload);
  auto const ordered = hn::BitCast(di, magnitude);  // not negative, so that signed comparisons, which are cheaper, hold
  auto const is_small = hn::RebindMask(du, hn::Lt(ordered, hn::Set(di, 0x38800000)));
  auto const is_nan = hn::RebindMask(du, hn::Gt(ordered, hn::Set(di, 0x7f800000)));
  auto const result = hn::IfThenElse(is_nan, nan, hn::IfThenElse(is_small, subnormal, normal));
  return hn::DemoteTo(d16, hn::BitCast(di, hn::Or(sign, result)));
#endif
}

template <class D>
HWY_INLINE hn::Vec<D> widen_bf16(D d, half_words<D> words) {
  return hn::BitCast(d, hn::ShiftLeft<16>(hn::PromoteTo(hn::RebindToUnsigned<D>{}, words)));
}

//! The bf16 bits in the upper half of each lane, and what is left over below, where no NaN has bits that rounding would
//! carry out of its mantissa.
template <class D>
HWY_INLINE hn::Vec<hn::RebindToUnsigned<D>> round_bf16(D, hn::Vec<D> values) {
  hn::RebindToUnsigned<D> const du;
  auto const bits = hn::BitCast(du, values);
  auto const odd = hn::And(hn::ShiftRight<16>(bits), hn::Set(du, 1u));
  return hn::Add(hn::Add(bits, hn::Set(du, 0x7fffu)), odd);
}

template <class D>
HWY_INLINE half_words<D> narrow_bf16(D d, hn::Vec<D> values) {
  hn::RebindToUnsigned<D> const du;
  auto const nan = hn::Or(hn::BitCast(du, values), hn::Set(du, 0x400000u));
  auto const result = hn::IfThenElse(hn::RebindMask(du, hn::IsNaN(values)), nan, round_bf16(d, values));
  return hn::DemoteTo(hn::Rebind<std::uint16_t, D>{}, hn::BitCast(hn::RebindToSigned<D>{}, hn::ShiftRight<16>(result)));
}

//! Lanes of f32 to the words of a 16-bit T and back.
template <class T, class D>
HWY_INLINE half_words<D> narrow(D d, hn::Vec<D> values) {
  if constexpr (std::is_same_v<T, f16>) {
    return narrow_f16(d, values);
  } else {
    static_assert(std::is_same_v<T, bf16>);
    return narrow_bf16(d, values);
  }
}
template <class T, class D>
HWY_INLINE hn::Vec<D> widen(D d, half_words<D> words) {
  if constexpr (std::is_same_v<T, f16>) {
    return widen_f16(d, words);
  } else {
    static_assert(std::is_same_v<T, bf16>);
    return widen_bf16(d, words);
  }
}

//! Lanes(d) words to `to`.
template <class D>
HWY_INLINE void store_words(D, half_words<D> words, std::byte* to) {
  hn::Rebind<std::uint16_t, D> const d16;
#if HWY_TARGET == HWY_SCALAR
  std::uint16_t word = 0;  // the scalar target's StoreU wants aligned pointers
  hn::StoreU(words, d16, &word);
  std::memcpy(to, &word, sizeof word);
#else
  hn::StoreU(words, d16, reinterpret_cast<std::uint16_t*>(to));
#endif
}

//! Twice Lanes(d) words to `to`, as one vector: half the stores, so that twice as many lines are on their way at once.
template <class D>
HWY_INLINE void store_words(D d, half_words<D> first, half_words<D> second, std::byte* to) {
#if HWY_TARGET == HWY_SCALAR
  store_words(d, first, to);
  store_words(d, second, to + sizeof(std::uint16_t));
#else
  static_cast<void>(d);
  hn::Repartition<std::uint16_t, D> const d16;
  hn::StoreU(hn::Combine(d16, second, first), d16, reinterpret_cast<std::uint16_t*>(to));
#endif
}

//! The upper halves of the lanes of both vectors to `to`.
template <class D, class V>
HWY_INLINE void store_upper_words(D d, V first, V second, std::byte* to) {
#if HWY_TARGET == HWY_SCALAR
  hn::Rebind<std::uint16_t, D> const d16;
  hn::RebindToSigned<D> const di;
  auto const narrowed = [&](V lane) { return hn::DemoteTo(d16, hn::BitCast(di, hn::ShiftRight<16>(lane))); };
  store_words(d, narrowed(first), narrowed(second), to);
#else
  static_cast<void>(d);
  hn::Repartition<std::uint16_t, D> const d16;
  auto const words = hn::ConcatOdd(d16, hn::BitCast(d16, second), hn::BitCast(d16, first));
  hn::StoreU(words, d16, reinterpret_cast<std::uint16_t*>(to));
#endif
}

//! Lanes(d) elements of type T at `from` as f32.
template <class T, class D>
HWY_INLINE hn::Vec<D> load_as(D d, std::byte const* from) {
#if HWY_TARGET == HWY_SCALAR
  T value;  // the scalar target's LoadU wants aligned pointers
  std::memcpy(&value, from, sizeof value);
  auto const* const at = &value;
#else
  auto const* const at = from;
#endif
  if constexpr (sizeof(T) == sizeof(float)) {
    return hn::LoadU(d, reinterpret_cast<float const*>(at));
  } else {
    return widen<T>(d, hn::LoadU(hn::Rebind<std::uint16_t, D>{}, reinterpret_cast<std::uint16_t const*>(at)));
  }
}

//! Lanes(d) elements of type T, rounded to nearest even, to `to`.
template <class T, class D>
HWY_INLINE void store_as(D d, hn::Vec<D> values, std::byte* to) {
  if constexpr (std::is_same_v<T, float>) {
#if HWY_TARGET == HWY_SCALAR
    float const value = hn::GetLane(values);
    std::memcpy(to, &value, sizeof value);
#else
    hn::StoreU(values, d, reinterpret_cast<float*>(to));
#endif
  } else {
    store_words(d, narrow<T>(d, values), to);
  }
}

//! The first `count` < Lanes(d) elements; zero in the other lanes. Reads nothing behind them.
template <class T, class D>
HWY_INLINE hn::Vec<D> load_some_as(D d, std::byte const* from, std::size_t count) {
  HWY_ALIGN std::byte lanes[HWY_MAX_BYTES] = {};
  std::memcpy(lanes, from, count * sizeof(T));
  return load_as<T>(d, lanes);
}
//! The same three for arrays of gradients (T = float, f16 or bf16).
template <class T, class D>
HWY_INLINE hn::Vec<D> load(D d, T const* from) {
  return load_as<T>(d, reinterpret_cast<std::byte const*>(from));
}
template <class T, class D>
HWY_INLINE void store(D d, hn::Vec<D> values, T* to) {
  store_as<T>(d, values, reinterpret_cast<std::byte*>(to));
}
template <class T, class D>
HWY_INLINE hn::Vec<D> load_some(D d, T const* from, std::size_t count) {
  return load_some_as<T>(d, reinterpret_cast<std::byte const*>(from), count);
}
}  // namespace HWY_NAMESPACE
}  // namespace gradwire
HWY_AFTER_NAMESPACE();

#endif  // per-target include guard
