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

using f32_tag = hn::CappedTag<float, lanes>;
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
    std::uint8_t bits[8] = {};
    hn::StoreMaskBits(d, hn::Lt(x[v], zero), bits);
    std::uint32_t some;
    std::memcpy(&some, bits, sizeof some);
    word |= some << (v * width);
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

//! The group that begins at element i.
template <class Source>
HWY_INLINE void load_group(Source const& source, sign_shifts const&, std::size_t i, f32_vector (&x)[vectors]) {
  unrolled<vectors>([&](auto v) HWY_ATTR { x[v] = load_from(f32_tag{}, source, i + v * width); });
}

HWY_INLINE void load_group(summed const& source, sign_shifts const& shifts, std::size_t i, f32_vector (&x)[vectors]) {
  f32_tag const d;
  // Adding is what takes the time here, so this is where the memory has some to spare.
  if (source.residual != nullptr) prefetch(source.residual, i + source.count);
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
  f32_vector const scale = hn::Set(d, source.scale);
  unrolled<vectors>([&](auto v) HWY_ATTR {
    x[v] = hn::Mul(scale, x[v]);
    if (source.residual != nullptr) x[v] = hn::Add(load(d, source.residual + i + v * width), x[v]);
    store(d, x[v], source.sums + i + v * width);
  });
}

struct loops : gradwire::HWY_NAMESPACE::conversions {
  template <class Source>
  static HWY_NOINLINE HWY_FLATTEN float sum_and_signs(Source const& from, std::size_t count, std::byte* signs) {
    f32_tag const d;
    Source const source = from;  // for all that the compiler knows, `from` might lie in what is written
    sign_shifts const shifts = make_shifts();
    f32_vector sums[vectors];
    unrolled<vectors>([&](auto v) HWY_ATTR { sums[v] = hn::Zero(d); });
    std::size_t i = 0;
    for (; i + lanes <= count; i += lanes) {
      f32_vector x[vectors];
      load_group(source, shifts, i, x);
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
