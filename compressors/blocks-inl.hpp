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
template <class D, class T>
HWY_INLINE hn::Vec<D> load_from(D d, blocks::plain<T> const& source, std::size_t i) {
  return load(d, source.values + i);
}
template <class D, class T>
HWY_INLINE hn::Vec<D> load_from(D d, blocks::corrected<T> const& source, std::size_t i) {
  return hn::Add(load(d, source.values + i), load(d, source.residual + i));
}

template <class D, class Source>
HWY_INLINE hn::Vec<D> load_from(D d, blocks::kept<Source> const& source, std::size_t i) {
  auto const values = load_from(d, source.source, i);
  store(d, values, source.copy + i);
  return values;
}

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
