//! blocks.hpp's sources as lanes of f32. Included inside Highway's foreach_target, once for every target.
#if defined(GRADWIRE_BLOCKS_INL_HPP) == defined(HWY_TARGET_TOGGLE)
#ifdef GRADWIRE_BLOCKS_INL_HPP
#undef GRADWIRE_BLOCKS_INL_HPP
#else
#define GRADWIRE_BLOCKS_INL_HPP
#endif

#include <cstddef>
#include <cstdint>
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

#if HWY_TARGET != HWY_SCALAR

//! 16 floats to be looked up by indices that are bytes, for four vectors at once: in less time than it takes to compute
//! them. `D` is a tag of 4 or 8 floats. Kept as byte 0 of all floats, byte 1, 2 and 3.
template <class D>
class sixteen {
 public:
  using bytes_tag = hn::Repartition<std::uint8_t, D>;
  using bytes = hn::Vec<bytes_tag>;

  //! Which lane of which vector the index in byte i serves: lane % Lanes(D) of vector lane / Lanes(D).
  static constexpr std::size_t lane(std::size_t i) { return i % 16 / 4 * hn::MaxLanes(D{}) + i / 16 * 4 + i % 4; }

  HWY_INLINE void set(float const* values) {
    bytes_tag const d8;
    hn::Repartition<std::uint32_t, D> const d32;
    hn::Repartition<std::uint64_t, D> const d64;
    alignas(64) constexpr std::uint8_t apart[16] = {0, 4, 8, 12, 1, 5, 9, 13, 2, 6, 10, 14, 3, 7, 11, 15};
    auto const four = [&](std::size_t i) HWY_ATTR {
      auto const some = hn::LoadDup128(d8, reinterpret_cast<std::uint8_t const*>(values + i));
      return hn::BitCast(d32, hn::TableLookupBytes(some, hn::LoadDup128(d8, apart)));
    };
    auto const lower0 = hn::BitCast(d64, hn::InterleaveLower(d32, four(0), four(4)));
    auto const lower1 = hn::BitCast(d64, hn::InterleaveLower(d32, four(8), four(12)));
    auto const upper0 = hn::BitCast(d64, hn::InterleaveUpper(d32, four(0), four(4)));
    auto const upper1 = hn::BitCast(d64, hn::InterleaveUpper(d32, four(8), four(12)));
    bytes_[0] = hn::BitCast(d8, hn::InterleaveLower(d64, lower0, lower1));
    bytes_[1] = hn::BitCast(d8, hn::InterleaveUpper(d64, lower0, lower1));
    bytes_[2] = hn::BitCast(d8, hn::InterleaveLower(d64, upper0, upper1));
    bytes_[3] = hn::BitCast(d8, hn::InterleaveUpper(d64, upper0, upper1));
  }

  //! Four vectors to x.
  HWY_INLINE void look_up(bytes indices, hn::Vec<D>* x) const {
    D const d;
    bytes_tag const d8;
    hn::Repartition<std::uint16_t, D> const d16;
    auto const even0 = hn::TableLookupBytes(bytes_[0], indices);
    auto const even1 = hn::TableLookupBytes(bytes_[1], indices);
    auto const odd0 = hn::TableLookupBytes(bytes_[2], indices);
    auto const odd1 = hn::TableLookupBytes(bytes_[3], indices);
    auto const lower0 = hn::BitCast(d16, hn::InterleaveLower(d8, even0, even1));
    auto const lower1 = hn::BitCast(d16, hn::InterleaveLower(d8, odd0, odd1));
    auto const upper0 = hn::BitCast(d16, hn::InterleaveUpper(d8, even0, even1));
    auto const upper1 = hn::BitCast(d16, hn::InterleaveUpper(d8, odd0, odd1));
    x[0] = hn::BitCast(d, hn::InterleaveLower(d16, lower0, lower1));
    x[1] = hn::BitCast(d, hn::InterleaveUpper(d16, lower0, lower1));
    x[2] = hn::BitCast(d, hn::InterleaveLower(d16, upper0, upper1));
    x[3] = hn::BitCast(d, hn::InterleaveUpper(d16, upper0, upper1));
  }

 private:
  bytes bytes_[4];
};

#endif

//! Fetches the 32 elements from i on, which may lie behind the source. Processors stop fetching ahead at the end of a
//! page, and the second look at a block leaves the memory idle: it is the time to ask for what the next block reads.
template <class T>
HWY_INLINE void prefetch(T const* from, std::size_t i) {
  hwy::Prefetch(from + i);
  hwy::Prefetch(from + i + 16);
}
HWY_INLINE void prefetch(blocks::upcoming next, std::size_t i) {
  if (next.gradient == nullptr) return;
  hwy::Prefetch(next.gradient + i * next.element_bytes);
  hwy::Prefetch(next.gradient + (i + 16) * next.element_bytes);
}

}  // namespace HWY_NAMESPACE
}  // namespace gradwire
HWY_AFTER_NAMESPACE();

#endif  // per-target include guard
