//! blocks.hpp's sources as lanes of f32. Included inside Highway's foreach_target, once for every target.
#if defined(GRADWIRE_BLOCKS_INL_HPP) == defined(HWY_TARGET_TOGGLE)
#ifdef GRADWIRE_BLOCKS_INL_HPP
#undef GRADWIRE_BLOCKS_INL_HPP
#else
#define GRADWIRE_BLOCKS_INL_HPP
#endif

#include <cstddef>

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

//! Fetches the 32 elements from i on, which may lie behind the source. Processors stop fetching ahead at the end of a
//! page, and the second look at a block leaves the memory idle: it is the time to ask for what the next block reads.
template <class T>
HWY_INLINE void prefetch(T const* from, std::size_t i) {
  hwy::Prefetch(from + i);
  hwy::Prefetch(from + i + 16);
}
template <class T>
HWY_INLINE void prefetch(blocks::plain<T> const& source, std::size_t i) {
  prefetch(source.values, i);
}
template <class T>
HWY_INLINE void prefetch(blocks::corrected<T> const& source, std::size_t i) {
  prefetch(source.values, i);
}

}  // namespace HWY_NAMESPACE
}  // namespace gradwire
HWY_AFTER_NAMESPACE();

#endif  // per-target include guard
