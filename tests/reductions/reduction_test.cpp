#include <gradwire/reduction.hpp>

#include <algorithm>
#include <array>
#include <cctype>
#include <cmath>
#include <cstring>
#include <limits>
#include <mutex>
#include <numeric>
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include <gradwire/error.hpp>
#include <gradwire/inproc.hpp>

#include "tests/reductions/serial_model.hpp"

namespace gradwire {
namespace {

using test::serial_model;

constexpr std::array<std::size_t, 5> rank_counts{1, 2, 3, 4, 7};
#if defined(GRADWIRE_INSTRUMENTED)  // ten times slower: the largest size shows nothing more there
constexpr std::array<std::size_t, 9> counts{0, 1, 2, 3, 5, 31, 33, 1000, 4097};
#else
constexpr std::array<std::size_t, 10> counts{0, 1, 2, 3, 5, 31, 33, 1000, 4097, 70000};
#endif

std::uint64_t hash(std::uint64_t z) {  // SplitMix64
  z += 0x9e3779b97f4a7c15u;
  z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9u;
  z = (z ^ (z >> 27)) * 0x94d049bb133111ebu;
  return z ^ (z >> 31);
}

// `coarse`: quarters in [-4, 4], whose sums over 7 ranks are exact in f32, f16 and bf16 alike. Otherwise uniform in
// [-1, 1), rounded to the dtype.
float value(std::size_t rank, std::size_t step, std::size_t i, dtype type, bool coarse) {
  std::uint64_t const random = hash(hash(hash(rank + 1) + step) + i);
  if (coarse) return static_cast<float>(static_cast<int>(random % 33) - 16) / 4;
  float const fine = static_cast<float>(static_cast<std::int32_t>(random >> 32)) * 0x1p-31F;
  return type == dtype::f32 ? fine : type == dtype::f16 ? to_float(to_f16(fine)) : to_float(to_bf16(fine));
}

std::vector<std::byte> stored(std::vector<float> const& values, dtype type) {
  std::vector<std::byte> bytes(values.size() * size_of(type));
  for (std::size_t i = 0; i < values.size(); ++i) {
    if (type == dtype::f32) std::memcpy(bytes.data() + 4 * i, &values[i], 4);
    if (type == dtype::f16) std::memcpy(bytes.data() + 2 * i, std::array{to_f16(values[i])}.data(), 2);
    if (type == dtype::bf16) std::memcpy(bytes.data() + 2 * i, std::array{to_bf16(values[i])}.data(), 2);
  }
  return bytes;
}

// Segments of every size with gaps between them, residuals laid out in another order than gradients.
struct layout {
  std::vector<segment> segments;
  std::size_t elements = 0;
};

layout single(std::size_t count) { return {{{3, 3, count, 0, 9}}, count + 5}; }

layout several() {
  layout result;
  std::uint32_t id = 0;
  for (std::size_t const count : counts) {
    result.segments.push_back({result.elements, 0, count, 0, id++});
    result.elements += count + id % 3;
  }
  std::size_t at = 0;
  for (auto each = result.segments.rbegin(); each != result.segments.rend(); ++each) {
    each->residual_offset = at;
    at += each->count;
  }
  return result;
}

double formula(std::string_view how, std::size_t encoded, std::size_t ranks) {
  double const c = static_cast<double>(encoded);
  double const n = static_cast<double>(ranks);
  return how == "one_shot" ? (n - 1) * c : 2 * (n - 1) / n * c;
}

// The name of what make_reduction gives to a group of this size.
std::string chosen(spec const& method, std::size_t ranks, std::vector<segment> const& segments, dtype type) {
  auto group = make_inproc_group(ranks);
  return std::string{make_reduction(*group[0], method, segments, type)->name()};
}

class Average : public testing::TestWithParam<char const*> {
 protected:
  static constexpr std::size_t steps = 2;

  static std::vector<std::vector<float>> gradients(layout const& at, dtype type, std::size_t ranks, std::size_t step,
                                                   bool coarse) {
    std::vector<std::vector<float>> result(ranks, std::vector<float>(at.elements));
    for (std::size_t rank = 0; rank < ranks; ++rank) {
      for (segment const& each : at.segments) {
        for (std::size_t i = each.offset; i < each.offset + each.count; ++i) {
          result[rank][i] = value(rank, step, i, type, coarse);
        }
      }
    }
    return result;
  }

  // Two steps over one layout: every rank has the bytes that the model has, and so those of all others.
  static void check(layout const& at, dtype type, std::size_t ranks) {
    spec const method = spec::parse(GetParam());
    std::string const how = chosen(method, ranks, at.segments, type);
    serial_model model{method, how, at.segments, type, at.elements, ranks};
    std::vector<std::vector<std::vector<float>>> inputs;
    std::vector<std::vector<std::byte>> expected;
    for (std::size_t step = 0; step < steps; ++step) {
      inputs.push_back(gradients(at, type, ranks, step, how == "dense"));
      expected.push_back(stored(model.step(inputs[step], {.seed = 77, .step = step}), type));
    }
    std::vector<std::size_t> sent(ranks);
    run_ranks(ranks, [&](communicator& comm) {
      std::size_t const rank = comm.rank();
      auto const reduction = make_reduction(comm, method, at.segments, type);
      EXPECT_EQ(reduction->name(), how);
      std::vector<float> residual(at.elements);
      for (std::size_t step = 0; step < steps; ++step) {
        std::vector<std::byte> buffer = stored(inputs[step][rank], type);
        std::size_t const before = comm.stats().bytes_sent;
        all_reduce_mean(*reduction, {},
                        {{buffer.data(), type}, method.error_feedback ? residual.data() : nullptr, {77, step}});
        sent[rank] = comm.stats().bytes_sent - before;
        EXPECT_EQ(sent[rank], reduction->wire_bytes());
        ASSERT_TRUE(buffer == expected[step]) << "rank " << rank << " step " << step;
      }
      EXPECT_TRUE(residual == model.worker_residual(rank));
      check_owner_residuals(*reduction, model, at);
    });
    // Over all ranks the bytes are n times the formula, exactly; dense rounds each rank's share down.
    double const total = static_cast<double>(std::accumulate(sent.begin(), sent.end(), std::size_t{0}));
    double const by_formula = formula(how, method.codec.encoded_bytes(at.segments), ranks) * static_cast<double>(ranks);
    EXPECT_LE(std::abs(total - by_formula), how == "dense" ? static_cast<double>(ranks) : 1e-9 * by_formula);
  }

  static void check_owner_residuals(reduction const& of, serial_model const& model, layout const& at) {
    for (owner_residual const& run : of.owner_residuals()) {
      segment const& whole = *std::find_if(at.segments.begin(), at.segments.end(),
                                           [&](segment const& each) { return each.tensor_id == run.tensor_id; });
      EXPECT_EQ(run.residual_offset, whole.residual_offset + run.first);
      for (std::size_t i = 0; i < run.values.size(); ++i) {
        ASSERT_EQ(run.values[i], model.owner_residual()[whole.offset + run.first + i]);
      }
    }
  }
};

TEST_P(Average, EqualsTheSerialModelOnEveryRankForEverySize) {
  for (dtype const type : {dtype::f32, dtype::f16, dtype::bf16}) {
    for (std::size_t const ranks : rank_counts) {
      for (std::size_t const count : counts) {
        SCOPED_TRACE(testing::Message() << to_string(type) << " ranks " << ranks << " count " << count);
        check(single(count), type, ranks);
        if (HasFatalFailure()) return;
      }
    }
  }
}

TEST_P(Average, EqualsTheSerialModelForManySegmentsAtOnce) {
  for (dtype const type : {dtype::f32, dtype::f16, dtype::bf16}) {
    for (std::size_t const ranks : rank_counts) {
      SCOPED_TRACE(testing::Message() << to_string(type) << " ranks " << ranks);
      check(several(), type, ranks);
      if (HasFatalFailure()) return;
    }
  }
}

std::string test_name(testing::TestParamInfo<char const*> const& of) {
  std::string name{of.param};
  for (char& letter : name) {
    if (std::isalnum(static_cast<unsigned char>(letter)) == 0) letter = '_';
  }
  return name;
}

INSTANTIATE_TEST_SUITE_P(Spec, Average,
                         testing::Values("none", "none+via(one_shot)", "none+via(two_shot)", "f16", "f16+ef", "bf16",
                                         "bf16+ef+via(two_shot)", "onebit", "onebit+ef", "onebit+ef+via(one_shot)",
                                         "quant(bits=4)", "quant(bits=3,round=stochastic)+via(two_shot)",
                                         "topk(ratio=0.05)+ef", "topk(ratio=0.05)+ef+via(two_shot)"),
                         test_name);

// ---- choice -------------------------------------------------------------------------------------------------------

TEST(Auto, SumsOnTheWireWherePayloadsCanBeAdded) {
  std::vector<segment> const large{{0, 0, 100000, 0, 0}};
  for (std::size_t const ranks : rank_counts) {
    EXPECT_EQ(chosen(spec::parse("none"), ranks, large, dtype::f32), "dense");
    EXPECT_EQ(chosen(spec::parse("f16"), ranks, large, dtype::f32), "dense");
  }
}

TEST(Auto, TakesOneShotOnlyWhereItSendsNoMoreThanTwoShot) {
  std::vector<segment> const large{{0, 0, 100000, 0, 0}};
  EXPECT_EQ(chosen(spec::parse("f16+ef"), 2, large, dtype::f32), "one_shot");  // c against 2·(1/2)·c
  EXPECT_EQ(chosen(spec::parse("f16+ef"), 3, large, dtype::f32), "two_shot");  // 2·c against 2·(2/3)·c
  // A tensor that must not be cut has one owner, who sends it to all: (n−1)·c both ways.
  EXPECT_EQ(chosen(spec::parse("topk(ratio=0.01)+ef"), 4, large, dtype::f32), "one_shot");
}

// ---- faults of others that must not happen here --------------------------------------------------------------------

TEST(MeanOverRanks, CountsOneCollectiveForDenseAndOneShotAndTwoForTwoShot) {
  struct expectation {
    char const* text;
    std::size_t collectives;
  };
  for (auto const& [text, collectives] :
       {expectation{"none", 1}, {"f16", 1}, {"none+via(one_shot)", 1}, {"none+via(two_shot)", 2}, {"f16+ef", 2}}) {
    run_ranks(3, [&, expected = collectives, name = text](communicator& comm) {
      layout const at = several();
      auto const reduction = make_reduction(comm, spec::parse(name), at.segments, dtype::f32);
      std::vector<float> buffer(at.elements);
      std::vector<float> residual(at.elements);
      std::size_t const before = comm.stats().collectives;
      all_reduce_mean(*reduction, {}, {{buffer.data()}, residual.data(), {}});
      EXPECT_EQ(comm.stats().collectives - before, expected) << name;
      EXPECT_EQ((reduction->stages() - 1) / 2, expected) << name;
    });
  }
}

TEST(MeanOverRanks, OfFortyThousandOnFourRanksIsFortyThousandInF16) {
  for (char const* const text :
       {"none", "none+via(one_shot)", "none+via(two_shot)", "f16", "f16+ef", "f16+via(one_shot)", "f16+via(two_shot)",
        "bf16", "onebit", "onebit+ef", "topk(ratio=1)", "quant(bits=8)"}) {
    SCOPED_TRACE(text);
    for (dtype const type : {dtype::f32, dtype::f16}) {
      run_ranks(4, [&](communicator& comm) {
        layout const at = single(4097);
        spec const method = spec::parse(text);
        auto const reduction = make_reduction(comm, method, at.segments, type);
        std::vector<std::byte> buffer = stored(std::vector<float>(at.elements, 40000.0F), type);
        std::vector<float> residual(at.elements);
        all_reduce_mean(*reduction, {}, {{buffer.data(), type}, residual.data(), {}});
        // 40,000 is 625·2^6: f32 and f16 hold it, bf16 with its 8 bits does not. Quantisers are exact for equal
        // elements.
        bool const narrow = method.codec.entry().name == "bf16";
        std::vector<float> expected(at.elements, 40000.0F);
        std::fill_n(expected.begin() + 3, 4097, narrow ? to_float(to_bf16(40000.0F)) : 40000.0F);
        EXPECT_TRUE(buffer == stored(expected, type)) << "rank " << comm.rank();
      });
    }
  }
}

TEST(MeanOverRanks, SpreadsANonFiniteElementToEveryRankAndNotIntoResiduals) {
  for (char const* const text : {"none", "f16", "bf16", "none+via(two_shot)", "f16+ef", "onebit+ef", "quant(bits=8)+ef",
                                 "topk(ratio=0.05)+ef"}) {
    for (float const bad : {std::numeric_limits<float>::quiet_NaN(), std::numeric_limits<float>::infinity()}) {
      run_ranks(3, [&](communicator& comm) {
        layout const at = single(5000);
        spec const method = spec::parse(text);
        auto const reduction = make_reduction(comm, method, at.segments, dtype::f32);
        std::vector<float> buffer(at.elements, 0.5F);
        std::vector<float> residual(at.elements);
        std::size_t const where = at.segments[0].offset + 4321;
        if (comm.rank() == 1) buffer[where] = bad;
        all_reduce_mean(*reduction, {}, {{buffer.data()}, residual.data(), {}});
        EXPECT_FALSE(std::isfinite(buffer[where])) << text << " rank " << comm.rank();
        EXPECT_TRUE(std::all_of(residual.begin(), residual.end(), [](float r) { return std::isfinite(r); })) << text;
        for (owner_residual const& run : reduction->owner_residuals()) {
          EXPECT_TRUE(std::all_of(run.values.begin(), run.values.end(), [](float r) { return std::isfinite(r); }))
              << text;
        }
      });
    }
  }
}

// A residual is what this rank's own encoding lost (local minus local, not local minus averaged), and the owner's what
// the mean lost: Σ applied + owner + (1/n)·Σ workers = Σ mean gradients.
TEST(MeanOverRanks, TelescopesOverTwentySteps) {
  constexpr std::size_t steps = 20;
  constexpr std::size_t ranks = 3;
  for (char const* const text : {"onebit+ef+via(two_shot)", "onebit+ef+via(one_shot)", "quant(bits=4)+ef",
                                 "topk(ratio=0.05)+ef+via(two_shot)", "bf16+ef"}) {
    SCOPED_TRACE(text);
    layout const at = several();
    std::vector<double> left(at.elements);  // Σ applied + owner + (1/n)·Σ workers
    std::vector<double> right(at.elements);
    std::mutex mutex;
    double largest = 0;  // of everything that was rounded
    run_ranks(ranks, [&](communicator& comm) {
      spec const method = spec::parse(text);
      auto const reduction = make_reduction(comm, method, at.segments, dtype::f32);
      std::vector<float> buffer(at.elements);
      std::vector<float> residual(at.elements);
      for (std::size_t step = 0; step < steps; ++step) {
        for (std::size_t i = 0; i < buffer.size(); ++i) buffer[i] = value(comm.rank(), step, i, dtype::f32, false);
        std::scoped_lock lock{mutex};
        for (segment const& each : at.segments) {
          for (std::size_t i = each.offset; i < each.offset + each.count; ++i) right[i] += double{buffer[i]} / ranks;
        }
      }
      for (std::size_t step = 0; step < steps; ++step) {
        for (std::size_t i = 0; i < buffer.size(); ++i) buffer[i] = value(comm.rank(), step, i, dtype::f32, false);
        all_reduce_mean(*reduction, {}, {{buffer.data()}, residual.data(), {.seed = 5, .step = step}});
        std::scoped_lock lock{mutex};
        for (float const each : residual) largest = std::max(largest, std::abs(double{each}));
        for (segment const& each : at.segments) {
          for (std::size_t i = each.offset; i < each.offset + each.count; ++i) {
            largest = std::max(largest, std::abs(double{buffer[i]}));
            if (comm.rank() == 0) left[i] += double{buffer[i]};
          }
        }
      }
      std::scoped_lock lock{mutex};
      for (segment const& each : at.segments) {
        for (std::size_t i = 0; i < each.count; ++i)
          left[each.offset + i] += double{residual[each.residual_offset + i]} / ranks;
      }
      for (owner_residual const& run : reduction->owner_residuals()) {
        for (float const each : run.values) largest = std::max(largest, std::abs(double{each}));
        segment const& whole = at.segments[run.tensor_id];
        for (std::size_t i = 0; i < run.values.size(); ++i) left[whole.offset + run.first + i] += double{run.values[i]};
      }
    });
    // A step rounds, per rank: gradient + residual, minus D; at the owner: n sums, the scale, plus residual, minus D.
    // Each is off by half an ulp of a number that is at most the sum of a gradient and two of the largest.
    double const ulp = std::numeric_limits<float>::epsilon() / 2 * (1 + 2 * largest) * ranks;
    double const tolerance = steps * (2 + ranks + 4) * ulp;
    for (std::size_t i = 0; i < at.elements; ++i) ASSERT_NEAR(left[i], right[i], tolerance) << "element " << i;
  }
}

TEST(MeanOverRanks, OfSizesDrawnAtRandomNeverStalls) {
  constexpr std::uint64_t seed = 20261130;
  RecordProperty("seed", std::to_string(seed));
  std::vector<char const*> const texts{"none", "f16", "f16+ef", "topk(ratio=0.1)+ef", "none+via(two_shot)"};
  run_ranks(3, [&](communicator& comm) {
    for (std::size_t call = 0; call < 1000; ++call) {
      std::uint64_t const random = hash(seed + call);
      layout const at = single(random % 700);
      spec const method = spec::parse(texts[(random >> 32) % texts.size()]);
      auto const reduction = make_reduction(comm, method, at.segments, dtype::f32);
      std::vector<float> buffer(at.elements, 1.0F);
      std::vector<float> residual(at.elements);
      all_reduce_mean(*reduction, {}, {{buffer.data()}, residual.data(), {seed, call}});
      if (method.codec.entry().name != "topk") {
        ASSERT_TRUE(buffer == std::vector<float>(at.elements, 1.0F)) << "seed " << seed << " call " << call;
      }
    }
  });
}

TEST(MakeReduction, RefusesWhatCannotWork) {
  auto group = make_inproc_group(2);
  auto const text_of = [&](auto work) -> std::string {
    try {
      work();
    } catch (error const& failure) {
      EXPECT_EQ(failure.code(), errc::invalid_argument);
      return failure.what();
    }
    return "nothing was thrown";
  };
  std::vector<segment> const middle{{0, 0, 10, 5, 4}};
  EXPECT_NE(text_of([&] {
              static_cast<void>(make_reduction(*group[0], spec::parse("topk(ratio=0.1)"), middle, dtype::f32));
            }).find("whole tensors"),
            std::string::npos);
  spec unknown = spec::parse("none");
  unknown.via = "ring";
  EXPECT_NE(text_of([&] { static_cast<void>(make_reduction(*group[0], unknown, {}, dtype::f32)); }).find("two_shot"),
            std::string::npos);
  std::array<segment, 1> const one{{{.count = 1}}};
  auto const reduction = make_reduction(*group[0], spec::parse("f16+ef"), one, dtype::f32);
  std::array<float, 1> memory{};
  EXPECT_NE(text_of([&] {
              reduction->enqueue(0, {}, {{memory.data()}, nullptr, {}});
            }).find("residual"),
            std::string::npos);
  EXPECT_NE(text_of([&] {
              reduction->enqueue(0, {}, {{memory.data(), dtype::f16}, memory.data(), {}});
            }).find("dtype"),
            std::string::npos);
}

TEST(DenseBytes, FollowTheRingFormula) {
  EXPECT_EQ(dense_bytes(1000, 1), 0);
  EXPECT_EQ(dense_bytes(1000, 4), 6000);
  EXPECT_EQ(dense_bytes(1000, 4, dtype::bf16), 3000);
}

}  // namespace
}  // namespace gradwire
