// Every way to the same bytes: fast and reference on each Highway target, fused and generic, whole and cut.
#include <hwy/targets.h>

#include <limits>

#include "compressors/feedback/feedback.hpp"
#include "tests/compressors/conformance.hpp"

namespace gradwire::test {
namespace {

class ConformancePaths : public ConformanceSuite {};
GRADWIRE_FOR_EVERY_CODEC(ConformancePaths);

// Runs `check` with dispatch held to one target after another. On other devices than the CPU there is but one way.
template <class F>
void on_every_target(F&& check) {
  if (running_on != &cpu()) return check();
  for (std::int64_t const target : hwy::SupportedAndGeneratedTargets()) {
    SCOPED_TRACE(hwy::TargetName(target));
    hwy::SetSupportedTargetsForTest(target);
    hwy::GetChosenTarget().Update(target);
    check();
    hwy::SetSupportedTargetsForTest(0);
    hwy::GetChosenTarget().DeInit();
  }
}

// Gaussian numbers with the ones between them that conversions and comparisons get wrong.
std::vector<float> awkward(std::size_t count, std::uint32_t seed) {
  constexpr float infinity = std::numeric_limits<float>::infinity();
  constexpr std::array specials{0.0f,     -0.0f,     1e-40f,    -1e-45f,     6e-8f,      2.98e-8f,    -6.1e-5f,
                                65504.0f, 65519.99f, -65520.0f, 1.00048828f, 1.0014648f, 3.3e38f,     -3.4e38f,
                                infinity, -infinity, 5.9e-8f,   1e30f,       -1e-30f,    0.33325195f, 2.0019531f};
  auto values = gaussian(count, seed);
  for (std::size_t i = seed % 3; i < count; i += 37) values[i] = specials[(i / 37 + seed) % specials.size()];
  for (std::size_t i = 900; i < count; i += 1201) values[i] = std::numeric_limits<float>::quiet_NaN();
  return values;
}

struct results {
  bytes payload;
  fed with_feedback;
  std::vector<std::uint32_t> decoded;
  std::vector<std::uint32_t> added;
  fed reduced;
  fed reduced_without_residual;
};

results run_all(setup const& s, std::uint32_t seed, bool is_awkward) {
  auto const make = [&](std::size_t count, std::uint32_t n) {
    return is_awkward ? awkward(count, seed + n) : gaussian(count, seed + n);
  };
  auto const values = make(s.where.gradients, 0);
  auto const residual = gaussian(s.where.residuals, seed + 1);
  results r;
  r.payload = encode(s, values);
  r.with_feedback = encode_with_feedback(s, values, residual);
  r.decoded = comparable(s.type, decode_into<false>(s, r.payload, values, 0.7f));
  auto const before = gaussian(s.where.gradients, seed + 2);
  r.added = comparable(s.type, decode_into<true>(s, r.with_feedback.payload, before, -0.3f));
  std::vector<bytes> const sources{r.payload, r.with_feedback.payload, encode(s, make(s.where.gradients, 3))};
  r.reduced = reduce_encode(s, sources, 1.0f / 3, residual);
  r.reduced_without_residual = reduce_encode(s, sources, 0.25f, std::nullopt);
  return r;
}

void expect_same(results const& found, results const& expected) {
  EXPECT_EQ(found.payload == expected.payload, true) << "encode";
  EXPECT_EQ(found.with_feedback.payload == expected.with_feedback.payload, true) << "encode_with_feedback, payload";
  EXPECT_EQ(found.with_feedback.residual == expected.with_feedback.residual, true) << "encode_with_feedback, residual";
  EXPECT_EQ(found.decoded == expected.decoded, true) << "decode";
  EXPECT_EQ(found.added == expected.added, true) << "decode_add";
  EXPECT_EQ(found.reduced.payload == expected.reduced.payload, true) << "reduce_encode, payload";
  EXPECT_EQ(found.reduced.residual == expected.reduced.residual, true) << "reduce_encode, residual";
  EXPECT_EQ(found.reduced_without_residual == expected.reduced_without_residual, true) << "reduce_encode, no residual";
}

TEST_P(ConformancePaths, FastGivesTheBytesOfTheReferenceOnEveryTarget) {
  for (codec const& fast : variants(*GetParam(), implementation::fast)) {
    SCOPED_TRACE(fast.text());
    codec const reference{fast.entry(), fast.params(), implementation::reference};
    for (dtype const type : all_types) {
      for (std::size_t const n : small_sizes()) {
        // One misalignment per size and type here; every misalignment with every size below.
        std::size_t const shift = (n + static_cast<std::size_t>(type)) % 4;
        auto const where = make_layout({n, 70, n / 3});
        bool const is_awkward = n >= 255;
        auto const expected = run_all(on_cpu({reference, type, where, 0}), 5, is_awkward);
        on_every_target([&] {
          SCOPED_TRACE(testing::Message() << to_string(type) << ", " << n << " elements, shift " << shift);
          expect_same(run_all({fast, type, where, shift}, 5, is_awkward), expected);
        });
      }
    }
  }
}

TEST_P(ConformancePaths, FastGivesTheBytesOfTheReferenceAtEveryMisalignment) {
  codec const fast = codec::parse(GetParam()->name);
  codec const reference = codec::parse(GetParam()->name, implementation::reference);
  for (dtype const type : all_types) {
    for (std::size_t const n : small_sizes()) {
      auto const where = make_layout({n});
      auto const expected = run_all(on_cpu({reference, type, where, 0}), 9, false);
      on_every_target([&] {
        for (std::size_t shift = 0; shift < 8; ++shift) {
          SCOPED_TRACE(testing::Message() << to_string(type) << ", " << n << " elements, shift " << shift);
          expect_same(run_all({fast, type, where, shift}, 9, false), expected);
        }
      });
    }
  }
}

TEST_P(ConformancePaths, FastGivesTheBytesOfTheReferenceForMoreThanAMillionElements) {
  codec const fast = codec::parse(GetParam()->name);
  codec const reference = codec::parse(GetParam()->name, implementation::reference);
  auto const where = make_layout({sizes().back()});
  expect_same(run_all({fast, dtype::f32, where, 1}, 3, false),
              run_all(on_cpu({reference, dtype::f32, where, 0}), 3, false));
}

// ---- Against the definitions, worked out here

TEST_P(ConformancePaths, KeepsWhatEncodingLostAndNothingElse) {
  for_each_variant([](codec const& codec) {
    for (dtype const type : all_types) {
      for (std::size_t const n : small_sizes()) {
        SCOPED_TRACE(testing::Message() << to_string(type) << ", " << n);
        setup const s{codec, type, make_layout({n, 40})};
        // What the codec sees: numbers that the type can hold.
        bytes const raw = to_bytes(type, gaussian(s.where.gradients, 31));
        auto const grad = read_as(type, raw.data(), s.where.gradients);
        auto const residual = gaussian(s.where.residuals, 32, 0.1f);
        fed const found = encode_with_feedback(s, grad, residual);

        std::vector<float> corrected = grad;
        for (segment const& one : s.where.segments) {
          for (std::size_t i = 0; i < one.count; ++i) {
            corrected[one.offset + i] = grad[one.offset + i] + residual[one.residual_offset + i];
          }
        }
        setup const plain{codec, dtype::f32, s.where};
        EXPECT_EQ(found.payload, encode(plain, corrected));
        bytes const decoded = decode_into<false>(plain, found.payload, corrected, 1);
        auto const d = read_as(dtype::f32, decoded.data(), corrected.size());
        std::vector<float> expected = residual;
        for (segment const& one : s.where.segments) {
          for (std::size_t i = 0; i < one.count; ++i) {
            expected[one.residual_offset + i] = corrected[one.offset + i] - d[one.offset + i];
          }
        }
        EXPECT_EQ(found.residual, to_bytes(dtype::f32, expected));
      }
    }
  });
}

float rounded(dtype type, float value) {
  bytes const raw = to_bytes(type, {&value, 1});
  return read_as(type, raw.data(), 1)[0];
}

TEST_P(ConformancePaths, DecodesWithAScaleAndAddsWithOneRounding) {
  for_each_variant([](codec const& codec) {
    for (dtype const type : all_types) {
      setup const s{codec, type, make_layout({257, 33})};
      setup const plain{codec, dtype::f32, s.where};
      bytes const payload = encode(s, gaussian(s.where.gradients, 41));
      auto const before = read_as(type, to_bytes(type, gaussian(s.where.gradients, 42)).data(), s.where.gradients);
      auto const d = read_as(dtype::f32, decode_into<false>(plain, payload, before, 1).data(), before.size());
      std::vector<float> set = before;
      std::vector<float> sum = before;
      constexpr float scale = 0.3f;
      for (segment const& one : s.where.segments) {
        for (std::size_t i = one.offset; i < one.offset + one.count; ++i) {
          float const product = scale * d[i];
          set[i] = rounded(type, product);
          sum[i] = rounded(type, before[i] + product);
        }
      }
      EXPECT_EQ(read_as(type, decode_into<false>(s, payload, before, scale).data(), before.size()), set);
      EXPECT_EQ(read_as(type, decode_into<true>(s, payload, before, scale).data(), before.size()), sum);
    }
  });
}

TEST_P(ConformancePaths, ReducesByAddingInOrderThenScalingThenAddingTheResidual) {
  for_each_variant([](codec const& codec) {
    for (std::size_t const ranks : {std::size_t{1}, std::size_t{4}, std::size_t{9}}) {
      for (std::size_t const n : {std::size_t{1}, std::size_t{33}, std::size_t{257}, std::size_t{1025}}) {
        SCOPED_TRACE(testing::Message() << ranks << " ranks, " << n);
        setup const s{codec, dtype::f32, make_layout({n, 20})};
        std::vector<bytes> payloads;
        std::vector<float> sum;
        for (std::uint32_t rank = 0; rank < ranks; ++rank) {
          payloads.push_back(encode(s, gaussian(s.where.gradients, 50 + rank)));
          std::vector<float> const before(s.where.gradients, 0.0f);
          auto const d = read_as(dtype::f32, decode_into<false>(s, payloads.back(), before, 1).data(), before.size());
          if (rank == 0) sum = d;
          for (std::size_t i = 0; rank > 0 && i < sum.size(); ++i) sum[i] += d[i];
        }
        float const scale = 1.0f / static_cast<float>(ranks);
        for (float& value : sum) value = scale * value;
        // The sum plus the residual is encoded as encode_with_feedback encodes a gradient.
        auto const residual = gaussian(s.where.residuals, 60, 0.1f);
        EXPECT_EQ(reduce_encode(s, payloads, scale, residual) == encode_with_feedback(s, sum, residual), true);
        EXPECT_EQ(reduce_encode(s, payloads, scale, std::nullopt).payload == encode(s, sum), true);
      }
    }
  });
}

// The generic paths, also where a codec has fused ones.
TEST_P(ConformancePaths, FusedAndGenericGiveTheSameBits) {
  for_each_variant([](codec const& codec) {
    codec_functions const& table = codec.entry().reference;
    feedback::basis const basis{&codec.entry(), table.encode, table.decode, nullptr};
    for (std::size_t const n : {std::size_t{0}, std::size_t{33}, std::size_t{4097}, std::size_t{20000}}) {
      SCOPED_TRACE(n);
      setup const s{codec, dtype::f32, make_layout({n, 50})};
      auto const& segments = s.where.segments;
      auto const values = awkward(s.where.gradients, 71);
      auto const residual = gaussian(s.where.residuals, 72);
      const_elements const grad{values.data(), dtype::f32};

      fed const fused = encode_with_feedback(s, values, residual);
      std::vector<float> kept = residual;
      bytes payload(fused.payload.size());
      feedback::encode_with_feedback(basis, {}, codec.params(), grad, kept.data(), segments, s.key, payload.data());
      EXPECT_EQ(payload == fused.payload, true) << "encode_with_feedback";
      EXPECT_EQ(to_bytes(dtype::f32, kept) == fused.residual, true) << "encode_with_feedback";

      std::vector<float> out = gaussian(s.where.gradients, 73);
      bytes const added = decode_into<true>(s, payload, out, 0.5f);
      feedback::decode_add(basis, {}, codec.params(), payload.data(), segments, {out.data(), dtype::f32}, 0.5f);
      EXPECT_EQ(comparable(dtype::f32, to_bytes(dtype::f32, out)) == comparable(dtype::f32, added), true);

      std::vector<bytes> const payloads{payload, encode(s, values), payload};
      fed const reduced = reduce_encode(s, payloads, 0.5f, residual);
      std::vector<std::byte const*> sources;
      for (bytes const& one : payloads) sources.push_back(one.data());
      kept = residual;
      feedback::reduce_encode(basis, {}, codec.params(), sources, 0.5f, kept.data(), segments, s.key, payload.data());
      EXPECT_EQ(payload == reduced.payload, true) << "reduce_encode";
      EXPECT_EQ(to_bytes(dtype::f32, kept) == reduced.residual, true) << "reduce_encode";
    }
  });
}

// ---- Segments

TEST_P(ConformancePaths, EncodesTheSameBytesWhenASegmentIsCutAtTheGranule) {
  for_each_variant([](codec const& codec) {
    std::size_t const granule = codec.granule();
    if (granule == 0) return;
    std::size_t const n = 5 * granule + 7;
    auto const x = gaussian(n, 81);
    for (std::vector<std::size_t> const& cuts :
         {std::vector<std::size_t>{0, granule, n}, {0, 2 * granule, 3 * granule, n}, {0, 0, 4 * granule, n}}) {
      std::vector<segment> parts;
      for (std::size_t i = 0; i + 1 < cuts.size(); ++i) {
        parts.push_back({cuts[i], cuts[i], cuts[i + 1] - cuts[i], cuts[i], 7});
      }
      setup const whole{codec, dtype::f32, {{{0, 0, n, 0, 7}}, n, n}};
      setup const cut{codec, dtype::f32, {parts, n, n}};
      auto const residual = gaussian(n, 82);
      EXPECT_EQ(encode(cut, x) == encode(whole, x), true);
      EXPECT_EQ(encode_with_feedback(cut, x, residual) == encode_with_feedback(whole, x, residual), true);
      bytes const payload = encode(whole, x);
      EXPECT_EQ(decode_into<false>(cut, payload, x, 1) == decode_into<false>(whole, payload, x, 1), true);
    }
  });
}

TEST_P(ConformancePaths, EncodesASegmentTheSameWhereverItLies) {
  for_each_variant([](codec const& codec) {
    setup const all{codec, dtype::f32, make_layout({257, 1, 0, 600})};
    auto const values = gaussian(all.where.gradients, 91);
    auto const residual = gaussian(all.where.residuals, 92);
    fed const together = encode_with_feedback(all, values, residual);
    bytes apart;
    for (segment const& one : all.where.segments) {
      setup const alone{codec, dtype::f32, {{{0, 0, one.count, 0, one.tensor_id}}, one.count, one.count}};
      fed const part = encode_with_feedback(alone, std::span{values}.subspan(one.offset, one.count),
                                            std::span{residual}.subspan(one.residual_offset, one.count));
      apart.insert(apart.end(), part.payload.begin(), part.payload.end());
    }
    EXPECT_EQ(apart == together.payload, true);
  });
}

}  // namespace
}  // namespace gradwire::test
