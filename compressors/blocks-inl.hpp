//! blocks.hpp's sources as lanes of f32. Included inside Highway's foreach_target, once for every target.
#if defined(GRADWIRE_BLOCKS_INL_HPP) == defined(HWY_TARGET_TOGGLE)
#ifdef GRADWIRE_BLOCKS_INL_HPP
#undef GRADWIRE_BLOCKS_INL_HPP
#else
#define GRADWIRE_BLOCKS_INL_HPP
#endif

#include <cstddef>
#include <type_traits>
#include <utility>

#include <hwy/cache_control.h>
#include <hwy/highway.h>

#include "compressors/blocks.hpp"
#include "compressors/simd_load-inl.hpp"

HWY_BEFORE_NAMESPACE();
namespace gradwire {
namespace HWY_NAMESPACE {

namespace hn = hwy::HWY_NAMESPACE;

//! Elements i … i + Lanes(d) − 1 of the source.
template <class D>
HWY_INLINE hn::Vec<D> load_from(D d, blocks::plain const& source, std::size_t i) {
  return load(d, source.values + i);
}
template <class D>
HWY_INLINE hn::Vec<D> load_from(D d, blocks::corrected const& source, std::size_t i) {
  auto const scaled = hn::Mul(hn::Set(d, source.scale), load(d, source.values + i));
  auto const sum = hn::Add(load(d, source.residual + i), scaled);
  store(d, sum, source.copy + i);
  return sum;
}

//! blocks::conversions in vectors.
struct conversions {
  template <class T>
  static HWY_NOINLINE HWY_FLATTEN void widen(T const* from, std::size_t count, float* to) {
    hn::ScalableTag<float> const d;
    std::size_t i = 0;
    for (; i + hn::Lanes(d) <= count; i += hn::Lanes(d)) store(d, load(d, from + i), to + i);
    for (; i < count; ++i) to[i] = to_float(from[i]);
  }

  template <bool Add, class T>
  static HWY_NOINLINE HWY_FLATTEN void put(float const* x, float scale, std::size_t count, T* out) {
    hn::ScalableTag<float> const d;
    auto const factor = hn::Set(d, scale);
    std::size_t i = 0;
    for (; i + hn::Lanes(d) <= count; i += hn::Lanes(d)) {
      auto const scaled = hn::Mul(factor, load(d, x + i));
      store(d, Add ? hn::Add(load(d, out + i), scaled) : scaled, out + i);
    }
    blocks::conversions::put<Add>(x + i, scale, count - i, out + i);
  }
};

//! f(0), f(1), … f(Count − 1) with constants, so that arrays of vectors stay in registers.
template <std::size_t Count, class F>
HWY_INLINE void unrolled(F&& f) {
  [&]<std::size_t... I>(std::index_sequence<I...>) HWY_ATTR { (f(std::integral_constant<std::size_t, I>{}), ...); }
  (std::make_index_sequence<Count>{});
}

//! Fetches the 32 elements from i on, which may lie behind the source. Processors stop fetching ahead at the end of a
//! page, and the second look at a block leaves the memory idle: it is the time to ask for what the next block reads.
template <class T>
HWY_INLINE void prefetch(T const* from, std::size_t i) {
  hwy::Prefetch(from + i);
  hwy::Prefetch(from + i + 16);
}
HWY_INLINE void prefetch(blocks::upcoming next, std::size_t i) {
  hwy::Prefetch(next.gradient + i * next.element_bytes);
  hwy::Prefetch(next.gradient + (i + 16) * next.element_bytes);
}

}  // namespace HWY_NAMESPACE
}  // namespace gradwire
HWY_AFTER_NAMESPACE();

#endif  // per-target include guard
