#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "compressors/cast/fast.cpp"
#include <hwy/foreach_target.h>
// Highway wants foreach_target.h first.
#include <hwy/cache_control.h>
#include <hwy/highway.h>

#include <span>
#include <type_traits>

#include "compressors/cast/fast.hpp"
#include "compressors/cast/reference.hpp"
#include "compressors/simd_load-inl.hpp"

HWY_BEFORE_NAMESPACE();
namespace gradwire::cast {
namespace HWY_NAMESPACE {

namespace hn = hwy::HWY_NAMESPACE;
using namespace gradwire::HWY_NAMESPACE;  // NOLINT(google-build-using-namespace): one name for each target

using lanes = hn::ScalableTag<float>;
using vector = hn::Vec<lanes>;

HWY_INLINE vector one_nan(lanes d, vector values) {
  auto const nan = hn::BitCast(d, hn::Set(hn::RebindToUnsigned<lanes>{}, 0x7fc00000u));
  return hn::IfThenElse(hn::IsNaN(values), nan, values);
}

// pack() and back for two vectors: writes their wire elements and makes them what a receiver will read.
template <class Wire>
HWY_INLINE void put(lanes d, vector& first, vector& second, std::byte* to) {
  first = one_nan(d, first);
  second = one_nan(d, second);
  if constexpr (std::is_same_v<Wire, float>) {
    store_as<float>(d, first, to);
    store_as<float>(d, second, to + hn::Lanes(d) * sizeof(float));
  } else if constexpr (std::is_same_v<Wire, bf16>) {
    // The one NaN rounds to itself, and the upper half of what was rounded is what a receiver reads.
    hn::RebindToUnsigned<lanes> const du;
    auto const rounded0 = round_bf16(d, first);
    auto const rounded1 = round_bf16(d, second);
    store_upper_words(d, rounded0, rounded1, to);
    first = hn::BitCast(d, hn::And(rounded0, hn::Set(du, 0xffff0000u)));
    second = hn::BitCast(d, hn::And(rounded1, hn::Set(du, 0xffff0000u)));
  } else {
    auto const words0 = narrow<Wire>(d, first);
    auto const words1 = narrow<Wire>(d, second);
    store_words(d, words0, words1, to);
    first = widen<Wire>(d, words0);
    second = widen<Wire>(d, words1);
  }
}

HWY_INLINE vector keep(vector corrected, vector decoded, vector old) {
  return hn::IfThenElse(hn::IsFinite(decoded), hn::Sub(corrected, decoded), old);
}

// The runs take `count` elements, a multiple of this many vectors.
constexpr std::size_t vectors = 4;

// Elements from what is worked on to what is fetched.
constexpr std::size_t ahead = 512;

// Encodes two vectors of corrected gradients and keeps what that lost.
template <class Wire>
HWY_INLINE void put_and_keep(lanes d, vector corrected0, vector corrected1, vector old0, vector old1, float* residual,
                             std::byte* to) {
  vector decoded0 = corrected0;
  vector decoded1 = corrected1;
  put<Wire>(d, decoded0, decoded1, to);
  store(d, keep(corrected0, decoded0, old0), residual);
  store(d, keep(corrected1, decoded1, old1), residual + hn::Lanes(d));
}

template <class Wire, class T>
void encode_run(T const* in, std::size_t count, std::byte* payload) {
  lanes const d;
  std::size_t const n = hn::Lanes(d);
  for (std::size_t i = 0; i < count; i += 2 * n) {
    vector first = load(d, in + i);
    vector second = load(d, in + i + n);
    put<Wire>(d, first, second, payload + i * sizeof(Wire));
  }
}

template <class Wire, class T>
void feedback_run(T const* grad, float* residual, std::size_t count, std::byte* payload) {
  lanes const d;
  std::size_t const n = hn::Lanes(d);
  for (std::size_t i = 0; i < count; i += 2 * n) {
    // Processors stop fetching ahead at the end of a page, to which two streams of floats come often.
    hwy::Prefetch(grad + i + ahead);
    hwy::Prefetch(residual + i + ahead);
    vector const old0 = load(d, residual + i);
    vector const old1 = load(d, residual + i + n);
    put_and_keep<Wire>(d, hn::Add(load(d, grad + i), old0), hn::Add(load(d, grad + i + n), old1), old0, old1,
                       residual + i, payload + i * sizeof(Wire));
  }
}

template <class Wire, class T>
void decode_run(std::byte const* payload, std::size_t count, T* out, float scale) {
  lanes const d;
  vector const factor = hn::Set(d, scale);
  for (std::size_t i = 0; i < count; i += hn::Lanes(d)) {
    store(d, hn::Mul(factor, load_as<Wire>(d, payload + i * sizeof(Wire))), out + i);
  }
}

template <class Wire, class T>
void decode_add_run(std::byte const* payload, std::size_t count, T* out, float scale) {
  lanes const d;
  vector const factor = hn::Set(d, scale);
  for (std::size_t i = 0; i < count; i += hn::Lanes(d)) {
    vector const product = hn::Mul(factor, load_as<Wire>(d, payload + i * sizeof(Wire)));
    store(d, hn::Add(load(d, out + i), product), out + i);
  }
}

// What is left to do with two vectors of scaled sums; `residual` may be null.
template <class Wire>
HWY_INLINE void put_sums(lanes d, vector first, vector second, float* residual, std::byte* to) {
  if (residual == nullptr) {
    put<Wire>(d, first, second, to);
    return;
  }
  vector const old0 = load(d, residual);
  vector const old1 = load(d, residual + hn::Lanes(d));
  put_and_keep<Wire>(d, hn::Add(old0, first), hn::Add(old1, second), old0, old1, residual, to);
}

// The payloads begin `at` bytes behind their pointers. `vectors` vectors at a time, so that the walk over the payloads
// costs little beside the loads.
template <class Wire>
void reduce_run(std::span<std::byte const* const> payloads, std::size_t at, float scale, float* residual,
                std::size_t count, std::byte* payload) {
  lanes const d;
  vector const factor = hn::Set(d, scale);
  std::size_t const n = hn::Lanes(d);
  std::size_t const bytes = n * sizeof(Wire);
  for (std::size_t i = 0; i < count; i += vectors * n) {
    std::size_t const byte = i * sizeof(Wire);
    std::byte const* from = payloads[0] + at + byte;
    vector sum0 = load_as<Wire>(d, from);
    vector sum1 = load_as<Wire>(d, from + bytes);
    vector sum2 = load_as<Wire>(d, from + 2 * bytes);
    vector sum3 = load_as<Wire>(d, from + 3 * bytes);
    hwy::Prefetch(from + ahead * sizeof(Wire));
    for (std::size_t p = 1; p < payloads.size(); ++p) {
      from = payloads[p] + at + byte;
      hwy::Prefetch(from + ahead * sizeof(Wire));
      sum0 = hn::Add(sum0, load_as<Wire>(d, from));
      sum1 = hn::Add(sum1, load_as<Wire>(d, from + bytes));
      sum2 = hn::Add(sum2, load_as<Wire>(d, from + 2 * bytes));
      sum3 = hn::Add(sum3, load_as<Wire>(d, from + 3 * bytes));
    }
    float* const kept = residual == nullptr ? nullptr : residual + i;
    std::byte* const to = payload + byte;
    if (kept != nullptr) {
      hwy::Prefetch(kept + ahead);
      hwy::Prefetch(kept + ahead + 2 * n);
    }
    put_sums<Wire>(d, hn::Mul(factor, sum0), hn::Mul(factor, sum1), kept, to);
    put_sums<Wire>(d, hn::Mul(factor, sum2), hn::Mul(factor, sum3), kept == nullptr ? nullptr : kept + 2 * n,
                   to + 2 * bytes);
  }
}

// A segment, how many of its elements whole vectors take, what is left for the reference loop, and where both payloads
// begin.
struct share {
  segment of;
  std::size_t whole;
  segment rest;
  std::size_t at;
  std::size_t rest_at;
};

template <class Wire, class F>
void for_each_share(std::span<segment const> segments, F&& work) {
  // Also a multiple of the granule, so that the reference loop sees every odd end and sets the padding.
  std::size_t const step = hn::Lanes(lanes{}) * vectors;
  std::size_t at = 0;
  for (segment const& one : segments) {
    std::size_t const whole = one.count - one.count % step;
    segment const rest{one.offset + whole, one.residual_offset + whole, one.count - whole, one.first + whole,
                       one.tensor_id};
    work(share{one, whole, rest, at, at + whole * sizeof(Wire)});
    at += encoded_bytes<Wire>(one.count);
  }
}

template <class Wire>
struct fast_loops {
  using slow = reference<Wire>;

  static void encode(exec const& on, param_values const& params, const_elements in, std::span<segment const> segments,
                     random_key key, std::byte* payload) {
    for_each_share<Wire>(segments, [&](share const& s) {
      with_type(in, [&](auto const* x) { encode_run<Wire>(x + s.of.offset, s.whole, payload + s.at); });
      slow::encode(on, params, in, {&s.rest, 1}, key, payload + s.rest_at);
    });
  }

  static void encode_with_feedback(exec const& on, param_values const& params, const_elements grad, float* residual,
                                   std::span<segment const> segments, random_key key, std::byte* payload) {
    for_each_share<Wire>(segments, [&](share const& s) {
      with_type(grad, [&](auto const* x) {
        feedback_run<Wire>(x + s.of.offset, residual + s.of.residual_offset, s.whole, payload + s.at);
      });
      slow::encode_with_feedback(on, params, grad, residual, {&s.rest, 1}, key, payload + s.rest_at);
    });
  }

  static void decode(exec const& on, param_values const& params, std::byte const* payload,
                     std::span<segment const> segments, elements out, float scale) {
    for_each_share<Wire>(segments, [&](share const& s) {
      with_type(out, [&](auto* x) { decode_run<Wire>(payload + s.at, s.whole, x + s.of.offset, scale); });
      slow::decode(on, params, payload + s.rest_at, {&s.rest, 1}, out, scale);
    });
  }

  static void decode_add(exec const& on, param_values const& params, std::byte const* payload,
                         std::span<segment const> segments, elements out, float scale) {
    for_each_share<Wire>(segments, [&](share const& s) {
      with_type(out, [&](auto* x) { decode_add_run<Wire>(payload + s.at, s.whole, x + s.of.offset, scale); });
      slow::decode_add(on, params, payload + s.rest_at, {&s.rest, 1}, out, scale);
    });
  }

  static void reduce_encode(exec const&, param_values const&, std::span<std::byte const* const> payloads, float scale,
                            float* residual, std::span<segment const> segments, random_key, std::byte* payload) {
    for_each_share<Wire>(segments, [&](share const& s) {
      float* const kept = residual == nullptr ? nullptr : residual + s.of.residual_offset;
      reduce_run<Wire>(payloads, s.at, scale, kept, s.whole, payload + s.at);
      slow::reduce(payloads, s.rest_at, scale, kept == nullptr ? nullptr : kept + s.whole, s.rest.count,
                   payload + s.rest_at);
    });
  }

  static constexpr codec_functions functions{encode, encode_with_feedback, decode, decode_add, reduce_encode};
};

codec_functions const* functions(dtype wire) {
  switch (wire) {
    case dtype::f32: return &fast_loops<float>::functions;
    case dtype::f16: return &fast_loops<f16>::functions;
    case dtype::bf16: return &fast_loops<bf16>::functions;
  }
  return nullptr;
}

}  // namespace HWY_NAMESPACE
}  // namespace gradwire::cast
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace gradwire::cast {
namespace {

HWY_EXPORT(functions);

codec_functions const& chosen(dtype wire) { return *HWY_DYNAMIC_DISPATCH(functions)(wire); }

// The entry's pointers are the same on every machine; the choice is made when they are called.
template <dtype Wire>
struct dispatched {
  static void encode(exec const& on, param_values const& params, const_elements in, std::span<segment const> segments,
                     random_key key, std::byte* payload) {
    chosen(Wire).encode(on, params, in, segments, key, payload);
  }
  static void encode_with_feedback(exec const& on, param_values const& params, const_elements grad, float* residual,
                                   std::span<segment const> segments, random_key key, std::byte* payload) {
    chosen(Wire).encode_with_feedback(on, params, grad, residual, segments, key, payload);
  }
  static void decode(exec const& on, param_values const& params, std::byte const* payload,
                     std::span<segment const> segments, elements out, float scale) {
    chosen(Wire).decode(on, params, payload, segments, out, scale);
  }
  static void decode_add(exec const& on, param_values const& params, std::byte const* payload,
                         std::span<segment const> segments, elements out, float scale) {
    chosen(Wire).decode_add(on, params, payload, segments, out, scale);
  }
  static void reduce_encode(exec const& on, param_values const& params, std::span<std::byte const* const> payloads,
                            float scale, float* residual, std::span<segment const> segments, random_key key,
                            std::byte* payload) {
    chosen(Wire).reduce_encode(on, params, payloads, scale, residual, segments, key, payload);
  }
  static constexpr codec_functions functions{encode, encode_with_feedback, decode, decode_add, reduce_encode};
};

}  // namespace

codec_functions fast(dtype wire) {
  switch (wire) {
    case dtype::f32: return dispatched<dtype::f32>::functions;
    case dtype::f16: return dispatched<dtype::f16>::functions;
    case dtype::bf16: return dispatched<dtype::bf16>::functions;
  }
  return {};
}

}  // namespace gradwire::cast
#endif
