#include "program/sweep/measure.hpp"

#include <atomic>
#include <cstring>
#include <initializer_list>
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include <gradwire/codec.hpp>
#include <gradwire/inproc.hpp>
#include <gradwire/reduction.hpp>

#include "program/sweep/timing.hpp"

namespace gradwire::program::sweep {
namespace {

using sizes = std::initializer_list<std::size_t>;

constexpr std::chrono::seconds timeout{60};

case_result measured(std::string const& text, std::size_t ranks, std::size_t count, dtype type = dtype::f32,
                     bool overlap = false) {
  case_result result;
  measure_options const options{.type = type, .iterations = 2, .warmup = 1, .seed = 11, .overlap = overlap};
  run_ranks(
      ranks,
      [&](communicator& comm) {
        case_result const mine = measure_all_reduce(comm, spec::parse(text), count, options);
        if (comm.rank() == 0) result = mine;
      },
      timeout);
  return result;
}

TEST(MeasureAllReduce, FindsNoWrongElementInAnyMethod) {
  for (char const* text : {"none", "f16", "bf16", "bf16+ef", "none+via(one_shot)", "none+via(two_shot)", "onebit",
                           "onebit+ef", "onebit+via(one_shot)", "quant(bits=4)", "quant(bits=8)+ef",
                           "quant(bits=3,round=stochastic)", "topk(ratio=0.01)+ef", "topk(ratio=0.1)+via(one_shot)"}) {
    for (std::size_t const ranks : sizes{1, 2, 3}) {
      for (std::size_t const count : sizes{0, 1, 2, 1000, 5001}) {
        case_result const one = measured(text, ranks, count);
        EXPECT_EQ(one.wrong, 0U) << text << " on " << ranks << " ranks, " << count << " elements";
      }
    }
  }
}

TEST(MeasureAllReduce, ChecksNarrowGradients) {
  for (dtype const type : {dtype::f16, dtype::bf16}) {
    for (char const* text : {"none", "f16", "bf16", "onebit+ef", "quant(bits=4)+via(one_shot)"}) {
      for (std::size_t const ranks : sizes{2, 3}) {
        case_result const one = measured(text, ranks, 2051, type);
        EXPECT_EQ(one.wrong, 0U) << text << " on " << ranks << " ranks, " << to_string(type);
      }
    }
  }
}

TEST(MeasureAllReduce, FindsNoWrongElementThroughTheReducer) {
  for (dtype const type : {dtype::f32, dtype::bf16}) {
    for (char const* text : {"none", "bf16", "onebit", "onebit+ef+via(two_shot)", "quant(bits=4)+via(two_shot)",
                             "quant(bits=3,round=stochastic)", "topk(ratio=0.01)+ef"}) {
      for (std::size_t const count : sizes{0, 1, 5001, 1'200'000}) {  // the last one: more than one chunk of f32
        case_result const one = measured(text, 2, count, type, true);
        EXPECT_EQ(one.wrong, 0U) << text << ", " << count << " elements of " << to_string(type);
        EXPECT_TRUE(one.overlap);
      }
    }
  }
  EXPECT_EQ(measured("onebit+via(two_shot)", 2, 2'097'152, dtype::f32, true).wire_bytes, 2048U * 132U);
}

TEST(MeasureAllReduce, GivesTheErrorThatTheoryGives) {
  EXPECT_LT(measured("none", 2, 10'000).nmse.value(), 1e-13);  // f32: (2^-24)²
  // E of the scaled sign on Gaussian blocks: 1 − 2/π of the power stays behind; independent over two ranks.
  EXPECT_NEAR(measured("onebit(block=4096)+via(one_shot)", 2, 1 << 16).nmse.value(), 0.3634, 0.02);
  EXPECT_FALSE(measured("none", 2, 0).nmse.has_value());
}

TEST(MeasureAllReduce, CountsTheBytesOfTheFormula) {
  // onebit, block 1024: 4 + 128 bytes a block; two_shot on two ranks sends one half of the payload twice.
  EXPECT_EQ(measured("onebit+via(two_shot)", 2, 8192).wire_bytes, 8U * 132U);
  EXPECT_EQ(measured("none", 2, 8192).wire_bytes, 4U * 8192U);  // 2·(2−1)/2·S
}

// ---- planted faults -------------------------------------------------------------------------------------------------

// `none` whose fast decode is wrong in element 3 of a tensor; the model uses the reference, which is right.
void faulty_decode(exec const& on, param_values const& params, std::byte const* payload,
                   std::span<segment const> segments, elements out, float scale) {
  find_codec("none").reference.decode(on, params, payload, segments, out, scale);
  for (segment const& each : segments) {
    if (each.first <= 3 && 3 < each.first + each.count) {
      static_cast<float*>(out.data)[each.offset + 3 - each.first] += 0.5F;
    }
  }
}

void register_planted() {
  static codec_entry const entry = [] {
    codec_entry planted = find_codec("none");
    planted.name = "planted";
    planted.wire_id = 250;
    planted.cpu = {};
    planted.cpu.decode = faulty_decode;
    return planted;
  }();
  static bool const once = (register_codec(entry), true);
  static_cast<void>(once);
}

TEST(MeasureAllReduce, FindsAPlantedFault) {
  register_planted();
  EXPECT_EQ(measured("planted+via(two_shot)", 2, 3).wrong, 0U);  // no element 3
  // Every rank decodes the same wrong number: one element, in the first call and in the last.
  EXPECT_EQ(measured("planted+via(two_shot)", 2, 1000).wrong, 2U);
}

TEST(ReplaceByFirstRanks, CountsElementsThatDifferFromRankZero) {
  std::atomic<std::size_t> differing{0};
  std::size_t const count = (std::size_t{3} << 20) + 5;  // more than one piece
  run_ranks(
      3,
      [&](communicator& comm) {
        std::vector<float> mine(count, 1);
        if (comm.rank() == 2) mine[0] = mine[count - 1] = 2;
        differing += replace_by_first_ranks(comm, std::as_writable_bytes(std::span{mine}), sizeof(float));
        EXPECT_EQ(mine, std::vector<float>(count, 1));
      },
      timeout);
  EXPECT_EQ(differing, 2U);
}

// ---- raw collectives ------------------------------------------------------------------------------------------------

TEST(MeasureRaw, FindsNoWrongElementInAnyCollective) {
  for (auto const kind : {collective_kind::reduce_scatter, collective_kind::all_gather, collective_kind::all_to_all,
                          collective_kind::broadcast}) {
    for (std::size_t const ranks : sizes{1, 2, 3}) {
      for (std::size_t const count : sizes{0, 2, 1001}) {
        run_ranks(
            ranks,
            [&](communicator& comm) {
              case_result const one = measure_raw(comm, kind, count, {.iterations = 1, .warmup = 0});
              EXPECT_EQ(one.wrong, 0U) << to_string(kind) << " on " << ranks << " ranks, " << count << " elements";
              EXPECT_EQ(one.count, count);
            },
            timeout);
      }
    }
  }
}

}  // namespace
}  // namespace gradwire::program::sweep
