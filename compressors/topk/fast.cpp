#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "compressors/topk/fast.cpp"
#include <hwy/foreach_target.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <cstring>
#include <limits>
#include <vector>

#include <hwy/cache_control.h>
#include <hwy/highway.h>

#include "compressors/gradient.hpp"
#include "compressors/simd_load-inl.hpp"
#include "compressors/topk/select.hpp"
#include "compressors/topk/topk.hpp"

HWY_BEFORE_NAMESPACE();
namespace gradwire::topk::HWY_NAMESPACE {
namespace {

namespace hn = hwy::HWY_NAMESPACE;
namespace simd = gradwire::HWY_NAMESPACE;
using lanes_tag = hn::ScalableTag<float>;
static_assert(run_elements % (HWY_MAX_BYTES / sizeof(float)) == 0);
using run_masks = std::array<std::uint64_t, run_elements / 64>;

// How far ahead of the core memory is asked for: the processor's own prefetcher stops at the end of a page, and takes
// a while to start again. EPYC (Zen 3), 64 MiB, gradient and residual: 13.2 ms without, 11.5 with 256 elements, 12.6
// with 1024 (one core, 2026-11-30).
constexpr std::size_t ahead = 256;
constexpr std::size_t line_elements = 16;

// ---- Sources: what is selected from, one run after another; all indices are those of the segment.
// `load` gives Lanes(d) elements or, at the end of the segment, `load_some` fewer and zeros. `at` gives one of the same
// run, `about` one of any run, for sampling.

template <class T>
struct plain_source {
  T const* grad;

  void rewind() {}
  void prepare(std::size_t) {}
  void prefetch(std::size_t i) const { hwy::Prefetch(grad + i); }
  HWY_INLINE auto load(lanes_tag d, std::size_t i) const { return simd::load(d, grad + i); }
  HWY_INLINE auto load_some(lanes_tag d, std::size_t i, std::size_t n) const { return simd::load_some(d, grad + i, n); }
  float at(std::size_t i) const { return to_float(grad[i]); }
  float about(std::size_t i) const { return at(i); }
};

template <class T>
struct corrected_source {
  T const* grad;
  float const* residual;

  void rewind() {}
  void prepare(std::size_t) {}
  void prefetch(std::size_t i) const {
    hwy::Prefetch(grad + i);
    hwy::Prefetch(residual + i);
  }
  HWY_INLINE auto load(lanes_tag d, std::size_t i) const {
    return hn::Add(simd::load(d, grad + i), hn::LoadU(d, residual + i));
  }
  HWY_INLINE auto load_some(lanes_tag d, std::size_t i, std::size_t n) const {
    return hn::Add(simd::load_some(d, grad + i, n), simd::load_some(d, residual + i, n));
  }
  float at(std::size_t i) const { return to_float(grad[i]) + residual[i]; }
  float about(std::size_t i) const { return at(i); }
};

// The sum of sparse payloads, and the residual of who owns it, or none.
template <bool Residual>
class sum_source {
 public:
  sum_source(layout const& shape, std::span<std::byte const* const> payloads, std::size_t payload_at, float scale,
             float const* residual)
      : shape_{shape}, payloads_{payloads}, payload_at_{payload_at}, scale_{scale}, residual_{residual} {
    rewind();
  }

  bool spoiled() const {
    return std::any_of(readers_.begin(), readers_.end(), [](reader const& one) { return one.spoiled(); });
  }
  void rewind() {
    readers_.clear();
    for (std::byte const* const payload : payloads_) readers_.emplace_back(shape_, payload + payload_at_);
  }
  void prepare(std::size_t base) {
    if (base != 0 && base < base_ + block_elements) return;
    base_ = base;
    std::memset(sum_, 0, sizeof(sum_));
    // In the order of the payloads. Nothing decodes to -0, so the zeros in between change no bit of the sum.
    for (reader& kept : readers_) {
      reader one = kept;  // a copy, so that it lives in registers
      for (; one.index() < base + block_elements; one.next()) sum_[one.index() - base] += one.value();
      kept = one;
    }
  }
  void prefetch(std::size_t i) const {
    if constexpr (Residual) hwy::Prefetch(residual_ + i);
  }
  HWY_INLINE auto load(lanes_tag d, std::size_t i) const {
    auto const sum = hn::Mul(hn::Set(d, scale_), hn::LoadU(d, sum_ + (i - base_)));
    if constexpr (Residual) {
      return hn::Add(sum, hn::LoadU(d, residual_ + i));
    } else {
      return sum;
    }
  }
  HWY_INLINE auto load_some(lanes_tag d, std::size_t i, std::size_t n) const {
    auto const sum = hn::Mul(hn::Set(d, scale_), hn::LoadU(d, sum_ + (i - base_)));
    if constexpr (Residual) {
      return hn::Add(sum, simd::load_some(d, residual_ + i, n));
    } else {
      return sum;
    }
  }
  float at(std::size_t i) const {
    float const sum = scale_ * sum_[i - base_];
    return Residual ? sum + residual_[i] : sum;
  }
  float about(std::size_t i) const { return Residual ? residual_[i] : 0.0f; }

 private:
  // Many runs at once: each reader goes on for longer, so that the processor finds its streams. In the second-level
  // cache.
  static constexpr std::size_t block_elements = 8 * run_elements;

  layout shape_;
  std::span<std::byte const* const> payloads_;
  std::size_t payload_at_;
  float scale_;
  float const* residual_;
  std::vector<reader> readers_{};
  std::size_t base_ = 0;
  alignas(64) float sum_[block_elements];
};

// ---- Selection

// A threshold that a little more than `wanted` elements should reach, from a sample; 0 for short segments. Groups of
// neighbours, one from each of equal parts, at places that no row length of a tensor can be in step with.
template <class Source>
std::uint32_t guess_threshold(Source const& source, std::size_t count, std::size_t wanted) {
  constexpr std::size_t group = 4;
  constexpr std::size_t most_groups = 8192;
  constexpr std::size_t part_at_least = 64;
  std::size_t const groups = std::min(most_groups, count / part_at_least);
  if (groups < 1024) return 0;
  std::vector<float> sample(groups * group);
  std::size_t const part = count / groups;
  for (std::size_t g = 0; g < groups; ++g) {
    std::uint64_t const mixed = (g + 1) * 0x9e3779b97f4a7c15u;  // Fibonacci hashing (Knuth, TAOCP 3, 6.4)
    std::size_t const at = g * part + static_cast<std::size_t>(mixed >> 32) % (part - group + 1);
    for (std::size_t i = 0; i < group; ++i) sample[g * group + i] = source.about(at + i);
  }
  // The number of sampled elements among the `wanted` best is about binomial: five deviations on top, and a few for
  // when it is small. A guess that was too high costs time, never correctness.
  double const expected = static_cast<double>(wanted) * static_cast<double>(sample.size()) / static_cast<double>(count);
  double const rank = expected + 5 * std::sqrt(expected) + 8;
  if (rank >= static_cast<double>(sample.size())) return 0;
  return std::min(find_cut(sample, static_cast<std::size_t>(rank)).magnitude, infinity_bits);
}

// Sets bit i of `masks` where the magnitude of element base + i, as a signed integer, is above `above`. `last` is the
// last element of the segment.
template <class Source>
void mark(Source const& source, std::size_t base, std::size_t count, std::size_t last, std::int32_t above,
          run_masks& masks) {
  lanes_tag const d;
  hn::RebindToSigned<lanes_tag> const di;
  std::size_t const lanes = hn::Lanes(d);
  auto const limit = hn::Set(di, above);
  auto const magnitude_bits = hn::Set(di, 0x7fffffff);
  std::uint8_t* const bytes = reinterpret_cast<std::uint8_t*>(masks.data());
  auto const put = [&](std::size_t i, auto x) {
    auto const is_above = hn::Gt(hn::And(hn::BitCast(di, x), magnitude_bits), limit);
    if (lanes >= 8) {
      hn::StoreMaskBits(di, is_above, bytes + i / 8);
    } else {
      std::uint8_t bits[8];
      hn::StoreMaskBits(di, is_above, bits);
      std::uint8_t const before = i % 8 == 0 ? std::uint8_t{0} : bytes[i / 8];
      bytes[i / 8] = static_cast<std::uint8_t>(before | bits[0] << i % 8);
    }
  };
  std::size_t i = 0;
  for (; i + lanes <= count; i += lanes) {
    if (i % line_elements == 0) source.prefetch(std::min(base + i + ahead, last));
    put(i, source.load(d, base + i));
  }
  if (i < count) put(i, source.load_some(d, base + i, count - i));
  // What lies behind the last element was never an element.
  if (count % 64 != 0) masks[count / 64] &= (std::uint64_t{1} << count % 64) - 1;
}

enum class outcome { selected, too_few, spoiled };

template <class Source>
outcome pass(Source& source, layout const& shape, std::uint32_t least, selector& best) {
  run_masks masks;
  best.start(shape.kept, least);
  source.rewind();
  for (std::size_t base = 0; base < shape.count; base += run_elements) {
    std::size_t const count = std::min(run_elements, shape.count - base);
    source.prepare(base);
    mark(source, base, count, shape.count - 1, best.above(), masks);
    auto const at = [&](std::size_t i) { return source.at(i); };
    if (!best.take(base, std::span{masks}.first((count + 63) / 64), at)) return outcome::spoiled;
  }
  return best.finish() ? outcome::selected : outcome::too_few;
}

// Fills `best` with what is kept; false: an element is not finite. `guess` never exceeds infinity_bits, so whatever is
// not finite is offered, and seen.
template <class Source>
bool select(Source& source, layout const& shape, std::uint32_t guess, selector& best) {
  outcome result = pass(source, shape, guess, best);
  if (result == outcome::too_few) result = pass(source, shape, 0, best);
  return result == outcome::selected;
}

selector make_selector(exec const& on, param_values const& params, std::span<segment const> segments) {
  std::size_t wanted = 0;
  std::size_t count = 0;
  for (segment const& one : segments) {
    wanted = std::max(wanted, kept_of(params, one.count));
    count = std::max(count, one.count);
  }
  return {wanted, count, on.memory};
}

// ---- Functions

void encode(exec const& on, param_values const& params, const_elements in, std::span<segment const> segments,
            std::byte* payload) {
  selector best = make_selector(on, params, segments);
  for_each_segment(params, segments, [&](segment const& one, layout const& shape, std::size_t at) {
    with_type(in, [&]<class T>(T const* grad) {
      plain_source<T> source{grad + one.offset};
      if (!select(source, shape, guess_threshold(source, shape.count, shape.kept), best)) {
        return write_spoiled(shape, payload + at);
      }
      write_payload(shape, payload + at, best.indices(), best.values());
    });
  });
}

// residual = source: for elements [base, base + count) of a run that is prepared.
template <class Source>
void store_run(Source const& source, std::size_t base, std::size_t count, float* residual) {
  lanes_tag const d;
  std::size_t const lanes = hn::Lanes(d);
  std::size_t i = base;
  for (; i + lanes <= base + count; i += lanes) hn::StoreU(source.load(d, i), d, residual + i);
  for (; i < base + count; ++i) residual[i] = source.at(i);
}

// What is left of the kept elements: x − sent(x), a zero with the sign of x.
void clear_kept(std::span<std::size_t const> indices, float* residual) {
  for (std::size_t const index : indices) residual[index] -= sent(residual[index]);
}

// Reads gradient and residual twice: only when all are known to be finite may the residual change, and c = g + e
// cannot be undone. The second time it starts at the end, which may still be in the cache; in long steps, because each
// one starts the prefetcher anew (64 MiB: 14.6 ms in steps of 2048 elements, 11.6 of 65536).
template <class T>
void feed_back(corrected_source<T> const& source, layout const& shape, float* residual, selector const& best) {
  constexpr std::size_t step = 65536;
  auto indices = best.indices();
  for (std::size_t end = shape.count; end > 0;) {
    std::size_t const base = (end - 1) / step * step;
    store_run(source, base, end - base, residual);
    auto const first = std::lower_bound(indices.begin(), indices.end(), base);
    clear_kept({first, indices.end()}, residual);
    indices = {indices.begin(), first};
    end = base;
  }
}

void encode_with_feedback(exec const& on, param_values const& params, const_elements in, float* residual,
                          std::span<segment const> segments, std::byte* payload) {
  selector best = make_selector(on, params, segments);
  for_each_segment(params, segments, [&](segment const& one, layout const& shape, std::size_t at) {
    float* const kept = residual + one.residual_offset;
    with_type(in, [&]<class T>(T const* grad) {
      corrected_source<T> source{grad + one.offset, kept};
      if (!select(source, shape, guess_threshold(source, shape.count, shape.kept), best)) {
        return write_spoiled(shape, payload + at);
      }
      write_payload(shape, payload + at, best.indices(), best.values());
      feed_back(source, shape, kept, best);
    });
  });
}

void reduce_encode(exec const& on, param_values const& params, std::span<std::byte const* const> payloads, float scale,
                   float* residual, std::span<segment const> segments, std::byte* payload) {
  selector best = make_selector(on, params, segments);
  for_each_segment(params, segments, [&](segment const& one, layout const& shape, std::size_t at) {
    if (residual == nullptr) {
      sum_source<false> source{shape, payloads, at, scale, nullptr};
      // Most of the sum is zero: whatever is not enters the list.
      if (source.spoiled() || !select(source, shape, 1, best)) return write_spoiled(shape, payload + at);
      return write_payload(shape, payload + at, best.indices(), best.values());
    }
    float* const kept = residual + one.residual_offset;
    sum_source<true> source{shape, payloads, at, scale, kept};
    std::uint32_t const guess = guess_threshold(source, shape.count, shape.kept);
    if (source.spoiled() || !select(source, shape, guess, best)) return write_spoiled(shape, payload + at);
    write_payload(shape, payload + at, best.indices(), best.values());
    source.rewind();
    auto indices = best.indices();
    for (std::size_t base = 0; base < shape.count; base += run_elements) {
      std::size_t const count = std::min(run_elements, shape.count - base);
      source.prepare(base);
      store_run(source, base, count, kept);
      std::size_t here = 0;
      while (here < indices.size() && indices[here] < base + count) ++here;
      clear_kept(indices.first(here), kept);
      indices = indices.subspan(here);
    }
  });
}

// out = scale·D. Zeros and then what is kept, in pieces that stay in the first-level cache in between.
void decode(param_values const& params, std::byte const* payload, std::span<segment const> segments, elements out,
            float scale) {
  for_each_segment(params, segments, [&](segment const& one, layout const& shape, std::size_t at) {
    reader kept{shape, payload + at};
    float const rest = scale * (kept.spoiled() ? std::numeric_limits<float>::quiet_NaN() : 0.0f);
    with_type(out, [&]<class T>(T* values) {
      T* const to = values + one.offset;
      for (std::size_t base = 0; base < one.count; base += 2 * run_elements) {
        std::size_t const end = std::min(base + 2 * run_elements, one.count);
        std::fill(to + base, to + end, from_float<T>(rest));
        for (; kept.index() < end; kept.next()) to[kept.index()] = from_float<T>(scale * kept.value());
      }
    });
  });
}

}  // namespace
}  // namespace gradwire::topk::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace gradwire::topk {
namespace {

HWY_EXPORT(encode);
HWY_EXPORT(encode_with_feedback);
HWY_EXPORT(reduce_encode);
HWY_EXPORT(decode);

void dispatch_encode(exec const& on, param_values const& params, const_elements in, std::span<segment const> segments,
                     random_key, std::byte* payload) {
  HWY_DYNAMIC_DISPATCH(encode)(on, params, in, segments, payload);
}

void dispatch_encode_with_feedback(exec const& on, param_values const& params, const_elements grad, float* residual,
                                   std::span<segment const> segments, random_key, std::byte* payload) {
  HWY_DYNAMIC_DISPATCH(encode_with_feedback)(on, params, grad, residual, segments, payload);
}

void dispatch_reduce_encode(exec const& on, param_values const& params, std::span<std::byte const* const> payloads,
                            float scale, float* residual, std::span<segment const> segments, random_key,
                            std::byte* payload) {
  HWY_DYNAMIC_DISPATCH(reduce_encode)(on, params, payloads, scale, residual, segments, payload);
}

void dispatch_decode(exec const&, param_values const& params, std::byte const* payload,
                     std::span<segment const> segments, elements out, float scale) {
  HWY_DYNAMIC_DISPATCH(decode)(params, payload, segments, out, scale);
}

}  // namespace

// decode_add touches only what is kept: its reference loop is the fast one.
constinit codec_functions const fast{dispatch_encode, dispatch_encode_with_feedback, dispatch_decode, nullptr,
                                     dispatch_reduce_encode};

}  // namespace gradwire::topk
#endif
