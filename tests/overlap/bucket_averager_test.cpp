#include <gradwire/bucket_averager.hpp>

#include <cmath>
#include <functional>
#include <limits>
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include <gradwire/error.hpp>
#include <gradwire/inproc.hpp>

#include "overlap/state.hpp"
#include "tests/overlap/scripted_communicator.hpp"
#include "tests/overlap/toy_model.hpp"

namespace gradwire {
namespace {

using namespace test;

reducer_options options_for(char const* method) {
  return {.method = spec::parse(method), .min_numel = 64, .chunk_bytes = 2500, .seed = 11};
}

using layout = std::vector<std::vector<std::size_t>>;  // the parameters of each bucket
layout const one_bucket{{6, 5, 4, 3, 2, 1, 0}};
layout const three_buckets{{6, 5}, {4, 3}, {2, 1, 0}};
layout const other_buckets{{5, 6, 2}, {4, 0, 3, 1}};

// Buckets as DistributedDataParallel has them: flat, without gaps.
class handed_buckets {
 public:
  handed_buckets(bucket_averager& with, std::vector<parameter> const& parameters, layout const& of)
      : with_{with}, parameters_{parameters}, layout_{of} {}

  void step(std::size_t rank, std::size_t step, std::function<void(std::vector<std::byte>&, std::size_t)> spoil = {}) {
    std::vector<event> points;
    memory_.assign(layout_.size(), {});  // somewhere else in each step
    for (std::size_t b = 0; b < layout_.size(); ++b) {
      std::vector<bucket_slot> slots;
      std::size_t offset = 0;
      for (std::size_t const index : layout_[b]) {
        slots.push_back({index, offset});
        offset += count_of(parameters_[index]);
      }
      memory_[b].resize(offset * size_of(type()));
      for (auto const& slot : slots) {
        for (std::size_t i = 0; i < count_of(parameters_[slot.index]); ++i) {
          store(memory_[b].data(), type(), slot.offset + i, toy_gradient(rank, step, slot.index, i));
        }
      }
      if (spoil) spoil(memory_[b], b);
      points.push_back(with_.average({memory_[b].data(), type()}, slots, b + 1 == layout_.size()));
    }
    for (event const& each : points) each.wait();
  }

  // Of all parameters in their order, as f32.
  [[nodiscard]] std::vector<float> means() const {
    std::vector<std::vector<float>> by_parameter(parameters_.size());
    for (std::size_t b = 0; b < layout_.size(); ++b) {
      std::size_t offset = 0;
      for (std::size_t const index : layout_[b]) {
        for (std::size_t i = 0; i < count_of(parameters_[index]); ++i) {
          by_parameter[index].push_back(load(memory_[b].data(), type(), offset++));
        }
      }
    }
    std::vector<float> result;
    for (auto const& each : by_parameter) result.insert(result.end(), each.begin(), each.end());
    return result;
  }

 private:
  [[nodiscard]] dtype type() const { return parameters_.front().type; }

  bucket_averager& with_;
  std::vector<parameter> const& parameters_;
  layout const& layout_;
  std::vector<std::vector<std::byte>> memory_;
};

std::vector<float> residuals_of(bucket_averager const& with, std::size_t parameters) {
  std::vector<float> result;
  for (std::size_t i = 0; i < parameters; ++i) {
    auto const residual = with.residual(i);
    result.insert(result.end(), residual.begin(), residual.end());
  }
  return result;
}

TEST(BucketAverager, GivesWhatTheReducerGivesWhateverTheBuckets) {
  for (char const* const method : {"none", "f16+ef", "onebit+ef", "quant(bits=4,round=stochastic)",
                                   "topk(ratio=0.05)+ef+via(two_shot)+warmup(steps=2)"}) {
    for (dtype const type : {dtype::f32, dtype::bf16}) {
      for (layout const* const buckets : {&one_bucket, &three_buckets, &other_buckets}) {
        SCOPED_TRACE(testing::Message() << method << " " << to_string(type) << " " << buckets->size());
        run_ranks(2, [&](communicator& comm) {
          auto const other = comm.split(0, static_cast<std::uint32_t>(comm.rank()));
          auto const parameters = toy_parameters(type);
          reducer expected{comm, parameters, options_for(method)};
          bucket_averager with{*other, parameters, options_for(method)};
          handed_buckets handed{with, parameters, *buckets};
          for (std::size_t step = 0; step < 4; ++step) {
            toy_step(expected, parameters, comm.rank(), step);
            handed.step(comm.rank(), step);
            EXPECT_TRUE(handed.means() == all_gradients(expected, parameters)) << "step " << step;
            EXPECT_TRUE(residuals_of(with, parameters.size()) == all_residuals(expected, parameters.size()));
          }
          EXPECT_EQ(with.stats().steps, 4U);
          EXPECT_EQ(with.stats().raw_bytes, expected.stats().raw_bytes);
          EXPECT_EQ(with.stats().buckets, buckets->size());
        });
      }
    }
  }
}

// (1/n)·Σ worker residuals + Σ owner residuals + Σ means = Σ mean gradients (docs/design.md §8).
TEST(BucketAverager, LosesNothingWhenBucketsAreLaidOutAnew) {
  constexpr std::size_t ranks = 2;
  constexpr std::size_t steps = 6;
  auto const parameters = toy_parameters();
  std::size_t total = 0;
  std::vector<std::size_t> starts;
  for (auto const& each : parameters) starts.push_back(std::exchange(total, total + count_of(each)));
  std::vector<double> kept(total);
  std::vector<std::vector<std::byte>> states(ranks);
  run_ranks(ranks, [&](communicator& comm) {
    bucket_averager with{comm, parameters, options_for("quant(bits=4)+ef")};
    std::vector<double> sum(total);
    for (std::size_t step = 0; step < steps; ++step) {
      handed_buckets handed{with, parameters, step == 0 ? one_bucket : step < 3 ? three_buckets : other_buckets};
      handed.step(comm.rank(), step);
      auto const means = handed.means();
      for (std::size_t i = 0; i < total; ++i) sum[i] += double{means[i]};
    }
    states[comm.rank()] = with.save_state();
    if (comm.rank() == 0) kept = sum;
  });
  for (auto const& bytes : states) {
    auto const state = overlap::read_state(bytes);
    for (std::size_t p = 0; p < parameters.size(); ++p) {
      for (std::size_t i = 0; i < state.parameters[p].residual.size(); ++i) {
        kept[starts[p] + i] += double{state.parameters[p].residual[i]} / ranks;
      }
    }
    for (auto const& run : state.owner_runs) {
      for (std::size_t i = 0; i < run.values.size(); ++i)
        kept[starts[run.parameter] + run.first + i] += double{run.values[i]};
    }
  }
  for (std::size_t p = 0; p < parameters.size(); ++p) {
    for (std::size_t i = 0; i < count_of(parameters[p]); ++i) {
      double expected = 0;
      for (std::size_t step = 0; step < steps; ++step) expected += toy_mean(ranks, step, p, i);
      // Per step and rank some nine roundings of numbers under 8, as in the test of the reducer.
      ASSERT_NEAR(kept[starts[p] + i], expected, steps * ranks * 9 * 8 * 6e-8) << parameters[p].name << " " << i;
    }
  }
}

TEST(BucketAverager, ASkippedStepLeavesAllResidualsAsTheyWere) {
  run_ranks(3, [&](communicator& comm) {
    auto const parameters = toy_parameters();
    bucket_averager with{comm, parameters, options_for("onebit+ef")};
    handed_buckets handed{with, parameters, three_buckets};
    for (std::size_t step = 0; step < 2; ++step) handed.step(comm.rank(), step);
    auto const before = with.save_state();
    handed.step(comm.rank(), 2, [&](std::vector<std::byte>& memory, std::size_t bucket) {
      if (comm.rank() == 1 && bucket == 1) store(memory.data(), dtype::f32, 7, std::numeric_limits<float>::infinity());
    });
    auto const means = handed.means();
    EXPECT_FALSE(std::all_of(means.begin(), means.end(), [](float each) { return std::isfinite(each); }));
    auto const state = overlap::read_state(before);
    auto const after = overlap::read_state(with.save_state());
    for (std::size_t p = 0; p < parameters.size(); ++p) {
      EXPECT_TRUE(after.parameters[p].residual == state.parameters[p].residual) << parameters[p].name;
    }
    for (std::size_t i = 0; i < state.owner_runs.size(); ++i) {
      EXPECT_TRUE(after.owner_runs[i].values == state.owner_runs[i].values);
    }
  });
}

TEST(BucketAverager, RestoredGoesOnBitForBit) {
  std::vector<std::vector<std::byte>> middle(3);
  std::vector<std::vector<float>> whole(3);
  run_ranks(3, [&](communicator& comm) {
    auto const parameters = toy_parameters();
    bucket_averager with{comm, parameters, options_for("quant(bits=4)+ef")};
    handed_buckets handed{with, parameters, three_buckets};
    for (std::size_t step = 0; step < 5; ++step) {
      if (step == 3) middle[comm.rank()] = with.save_state();
      handed.step(comm.rank(), step);
    }
    whole[comm.rank()] = handed.means();
  });
  run_ranks(3, [&](communicator& comm) {
    auto const parameters = toy_parameters();
    auto options = options_for("quant(bits=4)+ef");
    options.seed = 99;  // the state's own seed counts
    bucket_averager with{comm, parameters, options};
    with.load_state(middle);
    EXPECT_EQ(with.save_state(), middle[comm.rank()]);
    handed_buckets handed{with, parameters, three_buckets};
    for (std::size_t step = 3; step < 5; ++step) handed.step(comm.rank(), step);
    EXPECT_TRUE(handed.means() == whole[comm.rank()]);
  });
}

TEST(BucketAverager, AFailureComesOutOfTheEventsOfEveryRank) {
  run_ranks(3, [&](communicator& inner) {
    scripted_communicator comm{inner};
    auto const parameters = toy_parameters();
    bucket_averager with{comm, parameters, options_for("f16+ef")};
    handed_buckets handed{with, parameters, three_buckets};
    handed.step(comm.rank(), 0);
    if (comm.rank() == 1) comm.fail_after(1);
    EXPECT_THROW(handed.step(comm.rank(), 1), error);
    EXPECT_THROW(handed.step(comm.rank(), 2), error);
  });
}

TEST(BucketAverager, RefusesSlotsThatDoNotFit) {
  run_ranks(1, [&](communicator& comm) {
    auto const parameters = toy_parameters();
    bucket_averager with{comm, parameters, options_for("none")};
    std::vector<float> memory(5000);
    auto const refused = [&](std::vector<bucket_slot> const& slots, dtype type, std::string const& word) {
      try {
        static_cast<void>(with.average({memory.data(), type}, slots, false));
        ADD_FAILURE() << "was accepted";
      } catch (error const& why) {
        EXPECT_EQ(why.code(), errc::invalid_argument);
        EXPECT_NE(std::string{why.what()}.find(word), std::string::npos) << why.what();
      }
    };
    refused({{7, 0}}, dtype::f32, "there are 7");
    refused({{4, 0}}, dtype::bf16, "'layer1.weight' is f32");
    refused({{4, 0}, {4, 0}}, dtype::f32, "twice in one step");
    with.average({memory.data(), dtype::f32}, std::vector<bucket_slot>{{5, 0}}, false).wait();
    refused({{5, 0}}, dtype::f32, "'layer1.bias' was handed over twice");
    with.average({memory.data(), dtype::f32}, std::vector<bucket_slot>{{2, 0}}, true).wait();

    std::vector<parameter> own = parameters;
    own[0].gradient = memory.data();
    EXPECT_THROW((bucket_averager{comm, own, options_for("none")}), error);
  });
}

}  // namespace
}  // namespace gradwire
