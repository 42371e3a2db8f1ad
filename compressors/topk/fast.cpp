#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "compressors/topk/fast.cpp"
#include <hwy/foreach_target.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <cstring>
#include <limits>
#include <vector>

#include <hwy/highway.h>

#include "compressors/gradient.hpp"
#include "compressors/simd_load-inl.hpp"
#include "compressors/topk/select.hpp"
#include "compressors/topk/topk.hpp"

#ifndef GRADWIRE_TOPK_RUN
#define GRADWIRE_TOPK_RUN
namespace gradwire::topk {

//! One run of elements in f32, zeros behind the last up to a whole vector.
struct alignas(64) run_buffer {
  float x[run_elements];
};
using run_masks = std::array<std::uint64_t, run_elements / 64>;

}  // namespace gradwire::topk
#endif

HWY_BEFORE_NAMESPACE();
namespace gradwire::topk::HWY_NAMESPACE {
namespace {

namespace hn = hwy::HWY_NAMESPACE;
namespace simd = gradwire::HWY_NAMESPACE;
using lanes_tag = hn::ScalableTag<float>;
static_assert(run_elements % (HWY_MAX_BYTES / sizeof(float)) == 0);

// Sets bit i of `masks` where the magnitude of x[i], as a signed integer, is above `above`; x is count elements long,
// rounded up to whole vectors.
void mark(float const* x, std::size_t count, std::int32_t above, run_masks& masks) {
  lanes_tag const d;
  hn::RebindToSigned<lanes_tag> const di;
  std::size_t const lanes = hn::Lanes(d);
  auto const limit = hn::Set(di, above);
  auto const magnitude_bits = hn::Set(di, 0x7fffffff);
  auto const above_limit = [&](std::size_t i) {
    return hn::Gt(hn::And(hn::BitCast(di, hn::LoadU(d, x + i)), magnitude_bits), limit);
  };
  std::uint8_t* const bytes = reinterpret_cast<std::uint8_t*>(masks.data());
  std::size_t i = 0;
  if (lanes >= 8) {
    for (; i < count; i += lanes) hn::StoreMaskBits(di, above_limit(i), bytes + i / 8);
  } else {
    masks.fill(0);
    for (; i < count; i += lanes) {
      std::uint8_t bits[8] = {};
      hn::StoreMaskBits(di, above_limit(i), bits);
      bytes[i / 8] = static_cast<std::uint8_t>(bytes[i / 8] | bits[0] << i % 8);
    }
  }
  // What lies behind the last element was never an element.
  if (count % 64 != 0) masks[count / 64] &= (std::uint64_t{1} << count % 64) - 1;
}

// x = grad
template <class T>
void load_run(T const* grad, std::size_t count, float* x) {
  lanes_tag const d;
  std::size_t const lanes = hn::Lanes(d);
  std::size_t i = 0;
  for (; i + lanes <= count; i += lanes) hn::Store(simd::load(d, grad + i), d, x + i);
  if (i < count) hn::Store(simd::load_some(d, grad + i, count - i), d, x + i);
}

// x = grad + residual
template <class T>
void correct_run(T const* grad, float const* residual, std::size_t count, float* x) {
  lanes_tag const d;
  std::size_t const lanes = hn::Lanes(d);
  std::size_t i = 0;
  for (; i + lanes <= count; i += lanes) {
    hn::Store(hn::Add(simd::load(d, grad + i), hn::LoadU(d, residual + i)), d, x + i);
  }
  if (i < count) {
    std::size_t const rest = count - i;
    hn::Store(hn::Add(simd::load_some(d, grad + i, rest), simd::load_some(d, residual + i, rest)), d, x + i);
  }
}

// residual = grad + residual
template <class T>
void advance_run(T const* grad, float* residual, std::size_t count) {
  lanes_tag const d;
  std::size_t const lanes = hn::Lanes(d);
  std::size_t i = 0;
  for (; i + lanes <= count; i += lanes) {
    hn::StoreU(hn::Add(simd::load(d, grad + i), hn::LoadU(d, residual + i)), d, residual + i);
  }
  for (; i < count; ++i) residual[i] = to_float(grad[i]) + residual[i];
}

// x = scale·x + residual, without the sum where there is no residual
void scale_run(float const* residual, float scale, std::size_t count, float* x) {
  lanes_tag const d;
  std::size_t const lanes = hn::Lanes(d);
  auto const factor = hn::Set(d, scale);
  for (std::size_t i = 0; i < count; i += lanes) {
    auto value = hn::Mul(factor, hn::Load(d, x + i));
    if (residual != nullptr) {
      value =
          hn::Add(value, i + lanes <= count ? hn::LoadU(d, residual + i) : simd::load_some(d, residual + i, count - i));
    }
    hn::Store(value, d, x + i);
  }
}

// ---- Sources: what is selected from, one run after another. `at` is for sampling and may be approximate.

template <class T>
struct plain_source {
  T const* grad;

  void rewind() {}
  float at(std::size_t i) const { return to_float(grad[i]); }
  float const* run(std::size_t base, std::size_t count, run_buffer& scratch) {
    if constexpr (std::is_same_v<T, float>) {
      if (count == run_elements) return grad + base;
    }
    load_run(grad + base, count, scratch.x);
    return scratch.x;
  }
};

template <class T>
struct corrected_source {
  T const* grad;
  float const* residual;

  void rewind() {}
  float at(std::size_t i) const { return to_float(grad[i]) + residual[i]; }
  float const* run(std::size_t base, std::size_t count, run_buffer& scratch) {
    correct_run(grad + base, residual + base, count, scratch.x);
    return scratch.x;
  }
};

// The sum of sparse payloads, and the residual of who owns it.
struct sum_source {
  layout shape;
  std::span<std::byte const* const> payloads;
  std::size_t payload_at;
  float scale;
  float const* residual;
  std::vector<reader> readers{};

  void rewind() {
    readers.clear();
    for (std::byte const* const payload : payloads) readers.emplace_back(shape, payload + payload_at);
  }
  bool spoiled() const {
    return std::any_of(readers.begin(), readers.end(), [](reader const& one) { return one.spoiled(); });
  }
  float at(std::size_t i) const { return residual[i]; }
  float const* run(std::size_t base, std::size_t count, run_buffer& scratch) {
    std::memset(scratch.x, 0, sizeof(scratch.x));
    // In the order of the payloads. Nothing decodes to -0, so the zeros in between change no bit of the sum.
    for (reader& one : readers) {
      for (; one.index() < base + count; one.next()) scratch.x[one.index() - base] += one.value();
    }
    scale_run(residual == nullptr ? nullptr : residual + base, scale, count, scratch.x);
    return scratch.x;
  }
};

// ---- Selection

// A threshold that a little more than `wanted` elements should reach, from a sample; 0 for short segments. Groups of
// neighbours, one from each of equal parts, at places that no row length of a tensor can be in step with.
template <class Source>
std::uint32_t guess_threshold(Source const& source, std::size_t count, std::size_t wanted) {
  constexpr std::size_t group = 4;
  constexpr std::size_t most_groups = 16384;
  constexpr std::size_t part_at_least = 64;
  std::size_t const groups = std::min(most_groups, count / part_at_least);
  if (groups < most_groups / 16) return 0;
  std::vector<float> sample(groups * group);
  std::size_t const part = count / groups;
  for (std::size_t g = 0; g < groups; ++g) {
    std::uint64_t const mixed = (g + 1) * 0x9e3779b97f4a7c15u;  // Fibonacci hashing (Knuth, TAOCP 3, 6.4)
    std::size_t const at = g * part + static_cast<std::size_t>(mixed >> 32) % (part - group + 1);
    for (std::size_t i = 0; i < group; ++i) sample[g * group + i] = source.at(at + i);
  }
  // The number of sampled elements among the `wanted` best is about binomial: five deviations on top, and a few for
  // when it is small. A guess that was too high costs time, never correctness.
  double const expected = static_cast<double>(wanted) * static_cast<double>(sample.size()) / static_cast<double>(count);
  double const rank = expected + 5 * std::sqrt(expected) + 8;
  if (rank >= static_cast<double>(sample.size())) return 0;
  return std::min(find_cut(sample, static_cast<std::size_t>(rank)).magnitude, infinity_bits);
}

enum class outcome { selected, too_few, spoiled };

template <class Source>
outcome pass(Source& source, layout const& shape, std::uint32_t least, selector& best) {
  run_buffer scratch;
  run_masks masks;
  best.start(shape.kept, least);
  source.rewind();
  for (std::size_t base = 0; base < shape.count; base += run_elements) {
    std::size_t const count = std::min(run_elements, shape.count - base);
    float const* const x = source.run(base, count, scratch);
    mark(x, count, best.above(), masks);
    if (!best.take(base, x, std::span{masks}.first((count + 63) / 64))) return outcome::spoiled;
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

// What is left of the kept elements with indices in [base, …): x − sent(x), a zero with the sign of x. `left` counts
// the kept elements that have not been met, from the back.
void clear_kept(selector const& best, std::size_t base, float* residual, std::size_t& left) {
  for (; left > 0 && best.indices()[left - 1] >= base; --left) {
    float& x = residual[best.indices()[left - 1]];
    x -= sent(x);
  }
}

// Reads gradient and residual twice: only when all are known to be finite may the residual change, and c = g + e
// cannot be undone. The second time it starts from the end, which is still in the cache.
void encode_with_feedback(exec const& on, param_values const& params, const_elements in, float* residual,
                          std::span<segment const> segments, std::byte* payload) {
  selector best = make_selector(on, params, segments);
  for_each_segment(params, segments, [&](segment const& one, layout const& shape, std::size_t at) {
    float* const kept = residual + one.residual_offset;
    with_type(in, [&]<class T>(T const* from) {
      T const* const grad = from + one.offset;
      corrected_source<T> source{grad, kept};
      if (!select(source, shape, guess_threshold(source, shape.count, shape.kept), best)) {
        return write_spoiled(shape, payload + at);
      }
      write_payload(shape, payload + at, best.indices(), best.values());
      std::size_t left = shape.kept;
      for (std::size_t end = shape.count; end > 0;) {
        std::size_t const base = (end - 1) / run_elements * run_elements;
        advance_run(grad + base, kept + base, end - base);
        clear_kept(best, base, kept, left);
        end = base;
      }
    });
  });
}

void reduce_encode(exec const& on, param_values const& params, std::span<std::byte const* const> payloads, float scale,
                   float* residual, std::span<segment const> segments, std::byte* payload) {
  selector best = make_selector(on, params, segments);
  for_each_segment(params, segments, [&](segment const& one, layout const& shape, std::size_t at) {
    float* const kept = residual == nullptr ? nullptr : residual + one.residual_offset;
    sum_source source{shape, payloads, at, scale, kept};
    source.rewind();
    // Without a residual most of the sum is zero, and what is not is rarely less than what is kept.
    std::uint32_t const guess = kept == nullptr ? 1 : guess_threshold(source, shape.count, shape.kept);
    if (source.spoiled() || !select(source, shape, guess, best)) return write_spoiled(shape, payload + at);
    write_payload(shape, payload + at, best.indices(), best.values());
    if (kept == nullptr) return;
    run_buffer scratch;
    source.rewind();
    std::size_t done = 0;
    for (std::size_t base = 0; base < shape.count; base += run_elements) {
      std::size_t const count = std::min(run_elements, shape.count - base);
      std::memcpy(kept + base, source.run(base, count, scratch), count * sizeof(float));
      for (; done < shape.kept && best.indices()[done] < base + count; ++done) {
        float& x = kept[best.indices()[done]];
        x -= sent(x);
      }
    }
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

}  // namespace

// decode and decode_add touch memory and compute next to nothing: their reference loops are the fast ones.
constinit codec_functions const fast{dispatch_encode, dispatch_encode_with_feedback, nullptr, nullptr,
                                     dispatch_reduce_encode};

}  // namespace gradwire::topk
#endif
