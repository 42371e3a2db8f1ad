#include "compressors/onebit/coder.hpp"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "compressors/onebit/fast.cpp"
#include <hwy/foreach_target.h>
#include <hwy/highway.h>

#include "compressors/blocks-inl.hpp"

HWY_BEFORE_NAMESPACE();
namespace gradwire::onebit {
namespace HWY_NAMESPACE {

namespace hn = hwy::HWY_NAMESPACE;
using gradwire::HWY_NAMESPACE::load;
using gradwire::HWY_NAMESPACE::load_from;
using gradwire::HWY_NAMESPACE::prefetch;
using gradwire::HWY_NAMESPACE::store;
using gradwire::HWY_NAMESPACE::unrolled;

using f32_tag = hn::CappedTag<float, 8>;  // what gradwire::HWY_NAMESPACE::sixteen can look up
using u32_tag = hn::RebindToUnsigned<f32_tag>;
using i32_tag = hn::RebindToSigned<f32_tag>;
using f32_vector = hn::Vec<f32_tag>;
using i32_vector = hn::Vec<i32_tag>;
using u32_vector = hn::Vec<u32_tag>;
// A group is the 32 elements of one sign word: `vectors` vectors of `width` lanes.
constexpr std::size_t width = hn::MaxLanes(f32_tag{});
constexpr std::size_t vectors = lanes / width;

//! Writes the sign word of a group.
HWY_INLINE void store_signs(f32_vector const (&x)[vectors], std::byte* signs) {
  f32_tag const d;
  f32_vector const zero = hn::Zero(d);
  std::uint32_t word = 0;
  unrolled<vectors>([&](auto v) HWY_ATTR {
    std::uint8_t bits[8];
    hn::StoreMaskBits(d, hn::Lt(x[v], zero), bits);
    word |= std::uint32_t{bits[0]} << (v * width);
  });
  std::memcpy(signs, &word, sizeof word);
}

struct sign_shifts {
  u32_vector by[vectors];
};

//! Shift counts that move the bit of each element of a group to the top of its lane.
HWY_INLINE sign_shifts make_shifts() {
  u32_tag const du;
  sign_shifts shifts;
  unrolled<vectors>([&](auto v) HWY_ATTR {
    shifts.by[v] = hn::Sub(hn::Set(du, static_cast<std::uint32_t>(lanes - 1 - v * width)), hn::Iota(du, 0));
  });
  return shifts;
}

HWY_INLINE u32_vector load_word(std::byte const* signs) {
  std::uint32_t word;
  std::memcpy(&word, signs, sizeof word);
  return hn::Set(u32_tag{}, word);
}

//! ±value (plus, minus), with the signs of a group's vector whose shift is given. Integers: as floats, the words may be
//! NaN or negative zero, which Highway's scalar target does not count as negative.
HWY_INLINE f32_vector with_signs(u32_vector word, u32_vector shift, i32_vector plus, i32_vector minus) {
  auto const top = hn::BitCast(i32_tag{}, hn::Shl(word, shift));
  return hn::BitCast(f32_tag{}, hn::IfNegativeThenElse(top, minus, plus));
}

HWY_INLINE i32_vector bits_of(float value) { return hn::BitCast(i32_tag{}, hn::Set(f32_tag{}, value)); }

//! What is ready before the groups of a source are loaded: how signs get to the top of their lanes …
template <class Source>
struct prepared {
  sign_shifts shifts;
  explicit HWY_INLINE prepared(Source const&) : shifts{make_shifts()} {}
};

//! The group that begins at element i.
template <class Source>
HWY_INLINE void load_group(Source const& source, prepared<Source> const&, std::size_t i, f32_vector (&x)[vectors]) {
  unrolled<vectors>([&](auto v) HWY_ATTR { x[v] = load_from(f32_tag{}, source, i + v * width); });
}

//! The group of the sums, payload by payload, scaled.
template <bool Few>
HWY_INLINE void add_group(summed<Few> const& source, sign_shifts const& shifts, std::size_t i,
                          f32_vector (&x)[vectors]) {
  for (std::size_t p = 0; p < source.payloads.size(); ++p) {
    std::byte const* const from = source.payloads[p] + source.offset;
    float const value = read_header(from).scale;
    i32_vector const plus = bits_of(value);
    i32_vector const minus = bits_of(-value);
    u32_vector const word = load_word(from + sizeof(block_header) + i / 8);
    unrolled<vectors>([&](auto v) HWY_ATTR {
      f32_vector const one = with_signs(word, shifts.by[v], plus, minus);
      x[v] = p == 0 ? one : hn::Add(x[v], one);
    });
  }
  f32_vector const scale = hn::Set(f32_tag{}, source.scale);
  unrolled<vectors>([&](auto v) HWY_ATTR { x[v] = hn::Mul(scale, x[v]); });
}

#if HWY_TARGET != HWY_SCALAR

//! Where the signs of a group are, in the order in which sums are looked up, 4 vectors at a time.
struct place_table {
  static constexpr std::size_t size = width * 4;
  alignas(64) std::uint8_t bytes[lanes];
  alignas(64) std::uint8_t bits[lanes];

  constexpr place_table() : bytes{}, bits{} {
    for (std::size_t i = 0; i < lanes; ++i) {
      std::size_t const element = i / size * size + gradwire::HWY_NAMESPACE::sixteen<f32_tag>::lane(i % size);
      bytes[i] = static_cast<std::uint8_t>(element / 8);
      bits[i] = static_cast<std::uint8_t>(1u << element % 8);
    }
  }
};
constexpr place_table places;

//! … and what the signs of few payloads can add up to, scaled.
template <>
struct prepared<summed<true>> {
  explicit HWY_INLINE prepared(summed<true> const& source) {
    u32_tag const d;
    std::size_t const count = source.payloads.size();
    // What is missing repeats the first: the sums do not depend on it.
    for (std::size_t p = 0; p < few; ++p) {
      signs_[p] = source.payloads[p < count ? p : 0] + source.offset + sizeof(block_header);
    }
    alignas(64) float sums[16];
    for (std::size_t i = 0; i < 16; i += width) {
      u32_vector const signs = hn::Iota(d, static_cast<std::uint32_t>(i));
      f32_vector total = hn::Zero(f32_tag{});
      for (std::size_t p = 0; p < count; ++p) {
        float const value = read_header(source.payloads[p] + source.offset).scale;
        u32_vector const to_top = hn::Set(d, static_cast<std::uint32_t>(31 - p));
        f32_vector const one = with_signs(signs, to_top, bits_of(value), bits_of(-value));
        total = p == 0 ? one : hn::Add(total, one);
      }
      hn::Store(hn::Mul(hn::Set(f32_tag{}, source.scale), total), f32_tag{}, sums + i);
    }
    sums_.set(sums);
  }

  HWY_INLINE void look_up(std::size_t i, f32_vector (&x)[vectors]) const {
    hn::Repartition<std::uint8_t, f32_tag> const d;
    unrolled<lanes / place_table::size>([&](auto part) HWY_ATTR {
      constexpr std::size_t begin = part * place_table::size;
      auto const bytes = hn::Load(d, places.bytes + begin);
      auto const bits = hn::Load(d, places.bits + begin);
      auto indices = hn::Zero(d);
      unrolled<few>([&](auto p) HWY_ATTR {
        auto const word = hn::BitCast(d, load_word(signs_[p] + i / 8));
        auto const is_set = hn::VecFromMask(d, hn::TestBit(hn::TableLookupBytes(word, bytes), bits));
        indices = hn::Or(indices, hn::And(is_set, hn::Set(d, std::uint8_t{1u << p})));
      });
      sums_.look_up(indices, x + begin / width);
    });
  }

 private:
  std::byte const* signs_[few];
  gradwire::HWY_NAMESPACE::sixteen<f32_tag> sums_;
};

HWY_INLINE void sum_group(summed<true> const&, prepared<summed<true>> const& ready, std::size_t i,
                          f32_vector (&x)[vectors]) {
  ready.look_up(i, x);
}

#else

HWY_INLINE void sum_group(summed<true> const& source, prepared<summed<true>> const& ready, std::size_t i,
                          f32_vector (&x)[vectors]) {
  add_group(source, ready.shifts, i, x);
}

#endif

HWY_INLINE void sum_group(summed<false> const& source, prepared<summed<false>> const& ready, std::size_t i,
                          f32_vector (&x)[vectors]) {
  add_group(source, ready.shifts, i, x);
}

template <bool Few>
HWY_INLINE void load_group(summed<Few> const& source, prepared<summed<Few>> const& ready, std::size_t i,
                           f32_vector (&x)[vectors]) {
  f32_tag const d;
  // Adding is what takes the time here, so this is where the memory has some to spare.
  if (source.residual != nullptr) prefetch(source.residual, i + source.count);
  sum_group(source, ready, i, x);
  unrolled<vectors>([&](auto v) HWY_ATTR {
    if (source.residual != nullptr) x[v] = hn::Add(load(d, source.residual + i + v * width), x[v]);
    store(d, x[v], source.sums + i + v * width);
  });
}

struct loops : gradwire::HWY_NAMESPACE::conversions {
  template <class Source>
  static HWY_NOINLINE HWY_FLATTEN float sum_and_signs(Source const& from, std::size_t count, std::byte* signs) {
    f32_tag const d;
    Source const source = from;  // for all that the compiler knows, `from` might lie in what is written
    prepared<Source> const ready{source};
    f32_vector sums[vectors];
    unrolled<vectors>([&](auto v) HWY_ATTR { sums[v] = hn::Zero(d); });
    std::size_t i = 0;
    for (; i + lanes <= count; i += lanes) {
      f32_vector x[vectors];
      load_group(source, ready, i, x);
      unrolled<vectors>([&](auto v) HWY_ATTR { sums[v] = hn::Add(sums[v], hn::Abs(x[v])); });
      store_signs(x, signs + i / 8);
    }
    HWY_ALIGN float lane[lanes];
    unrolled<vectors>([&](auto v) HWY_ATTR { hn::Store(sums[v], d, lane + v * width); });
    if (i < count) {
      std::uint32_t word = 0;
      for (std::size_t j = 0; i + j < count; ++j) {
        float const x = source.at(i + j);
        lane[j] += magnitude(x);
        word |= static_cast<std::uint32_t>(negative(x)) << j;
      }
      std::memcpy(signs + i / 8, &word, sizeof word);
    }
    return sum_lanes(lane);
  }

  static HWY_NOINLINE HWY_FLATTEN void keep_loss(float const* values, std::size_t count, float scale, float* residual,
                                                 blocks::upcoming next) {
    f32_tag const d;
    f32_vector const zero = hn::Zero(d);
    f32_vector const plus = hn::Set(d, scale);
    f32_vector const minus = hn::Set(d, -scale);
    std::size_t i = 0;
    for (; i + lanes <= count; i += lanes) {
      prefetch(next, i);
      prefetch(residual, i + count);
      unrolled<vectors>([&](auto v) HWY_ATTR {
        f32_vector const x = load(d, values + i + v * width);
        f32_vector const sent = hn::IfThenElse(hn::Lt(x, zero), minus, plus);
        store(d, hn::Sub(x, sent), residual + i + v * width);
      });
    }
    reference_loops::keep_loss(values + i, count - i, scale, residual + i, next);
  }

  template <bool Add>
  static HWY_NOINLINE HWY_FLATTEN void decode(std::byte const* signs, std::size_t count, float value, float* out) {
    f32_tag const d;
    i32_vector const plus = bits_of(value);
    i32_vector const minus = bits_of(-value);
    sign_shifts const shifts = make_shifts();
    std::size_t i = 0;
    for (; i + lanes <= count; i += lanes) {
      auto const word = load_word(signs + i / 8);
      for (std::size_t v = 0; v < vectors; ++v) {
        float* const to = out + i + v * width;
        f32_vector const x = with_signs(word, shifts.by[v], plus, minus);
        store(d, Add ? hn::Add(load(d, to), x) : x, to);
      }
    }
    reference_loops::decode<Add>(signs + i / 8, count - i, value, out + i);
  }
};

codec_functions functions() { return blocks::functions<coder<loops>>::table; }

}  // namespace HWY_NAMESPACE
}  // namespace gradwire::onebit
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace gradwire::onebit {

HWY_EXPORT(functions);

namespace {

// Looks up the target at each call, so that tests can walk through all of them.
template <auto Member, class... Args>
void dispatch(Args... args) {
  (HWY_DYNAMIC_DISPATCH(functions)().*Member)(args...);
}

}  // namespace

constinit codec_functions const fast{
    .encode = dispatch<&codec_functions::encode>,
    .encode_with_feedback = dispatch<&codec_functions::encode_with_feedback>,
    .decode = dispatch<&codec_functions::decode>,
    .decode_add = dispatch<&codec_functions::decode_add>,
    .reduce_encode = dispatch<&codec_functions::reduce_encode>,
};

}  // namespace gradwire::onebit
#endif
