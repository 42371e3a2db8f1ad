#include <gradwire/reducer.hpp>

#include <algorithm>
#include <cmath>
#include <limits>
#include <map>
#include <mutex>
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include <gradwire/error.hpp>
#include <gradwire/inproc.hpp>
#include <gradwire/reduction.hpp>

#include "overlap/state.hpp"
#include "tests/overlap/toy_model.hpp"

namespace gradwire {
namespace {

using namespace test;

// Many buckets, several chunks in some.
void expect_exact_means(reducer& with, std::vector<parameter> const& parameters, std::size_t ranks, std::size_t step) {
  for (std::size_t tensor = 0; tensor < parameters.size(); ++tensor) {
    for (std::size_t i = 0; i < count_of(parameters[tensor]); ++i) {
      ASSERT_EQ(load(with.gradient(tensor), parameters[tensor].type, i),
                static_cast<float>(toy_mean(ranks, step, tensor, i)))
          << parameters[tensor].name << " element " << i << " step " << step;
    }
  }
}

TEST(Reducer, GivesEveryRankTheExactMeanWithoutCompression) {
  for (std::size_t const ranks : {1U, 2U, 4U}) {
    run_ranks(ranks, [&](communicator& comm) {
      auto const parameters = toy_parameters();
      reducer with{comm, parameters, small_buckets("none")};
      for (std::size_t step = 0; step < 6; ++step) {
        toy_step(with, parameters, comm.rank(), step);
        expect_exact_means(with, parameters, ranks, step);
      }
      EXPECT_GT(with.stats().buckets, 2U);
    });
  }
}

TEST(Reducer, WritesMeansBackIntoTheCallersMemory) {
  run_ranks(2, [&](communicator& comm) {
    auto parameters = toy_parameters();
    std::vector<std::vector<float>> memory;
    for (parameter& each : parameters) memory.emplace_back(count_of(each) + 1, -7.0F);
    for (std::size_t i = 0; i < parameters.size(); ++i) parameters[i].gradient = memory[i].data();
    reducer with{comm, parameters, small_buckets("none")};
    for (std::size_t step = 0; step < 6; ++step) {
      toy_step(with, parameters, comm.rank(), step);
      expect_exact_means(with, parameters, 2, step);
    }
    for (std::size_t i = 0; i < parameters.size(); ++i) {
      EXPECT_EQ(with.gradient(i), memory[i].data());
      EXPECT_EQ(memory[i].back(), -7.0F) << "written past the end of " << parameters[i].name;
    }
    with.zero_gradients();
    EXPECT_EQ(memory[1][5], 0.0F);
  });
}

TEST(Reducer, TakesEveryDtypeWithEveryMethodAndGivesAllRanksTheSame) {
  for (char const* const method : {"none", "f16", "bf16+ef", "onebit+ef", "quant(bits=4)", "topk(ratio=0.05)+ef",
                                   "none+via(two_shot)", "f16+via(one_shot)"}) {
    for (dtype const type : {dtype::f32, dtype::f16, dtype::bf16}) {
      SCOPED_TRACE(testing::Message() << method << " " << to_string(type));
      std::vector<std::vector<float>> means(3);
      run_ranks(3, [&](communicator& comm) {
        auto const parameters = toy_parameters(type);
        reducer with{comm, parameters, small_buckets(method)};
        for (std::size_t step = 0; step < 5; ++step) toy_step(with, parameters, comm.rank(), step);
        means[comm.rank()] = all_gradients(with, parameters);
      });
      EXPECT_TRUE(means[0] == means[1] && means[0] == means[2]);
      EXPECT_TRUE(std::all_of(means[0].begin(), means[0].end(), [](float each) { return std::abs(each) <= 16; }));
    }
  }
}

TEST(Reducer, AveragesFortyThousandOnFourRanksInF16) {
  for (char const* const method : {"none", "f16", "f16+ef", "onebit+ef", "none+via(two_shot)", "topk(ratio=1)+ef"}) {
    run_ranks(4, [&](communicator& comm) {
      auto const parameters = toy_parameters(dtype::f16);
      reducer with{comm, parameters, small_buckets(method)};
      for (std::size_t i = 0; i < parameters.size(); ++i) {
        for (std::size_t k = 0; k < count_of(parameters[i]); ++k) store(with.gradient(i), dtype::f16, k, 40000.0F);
        with.mark_ready(i);
      }
      with.synchronize();
      for (float const each : all_gradients(with, parameters)) ASSERT_EQ(each, 40000.0F) << method;
    });
  }
}

TEST(Reducer, AddsMicroBatchesUnderNoSyncWithAndWithoutCompression) {
  run_ranks(2, [&](communicator& comm) {
    auto const parameters = toy_parameters();
    reducer with{comm, parameters, small_buckets("none")};
    for (std::size_t step = 0; step < 6; ++step) {
      with.zero_gradients();
      auto const add = [&](std::size_t micro) {
        for (std::size_t tensor = parameters.size(); tensor-- > 0;) {
          auto* const gradient = static_cast<float*>(with.gradient(tensor));
          for (std::size_t i = 0; i < count_of(parameters[tensor]); ++i) {
            gradient[i] += toy_gradient(comm.rank(), 2 * step + micro, tensor, i);
          }
          with.mark_ready(tensor);
        }
      };
      {
        auto const guard = with.no_sync();
        add(0);
      }
      EXPECT_EQ(with.stats().steps, step);
      add(1);
      with.synchronize();
      for (std::size_t tensor = 0; tensor < parameters.size(); ++tensor) {
        for (std::size_t i = 0; i < count_of(parameters[tensor]); ++i) {
          ASSERT_EQ(load(with.gradient(tensor), dtype::f32, i),
                    static_cast<float>(toy_mean(2, 2 * step, tensor, i) + toy_mean(2, 2 * step + 1, tensor, i)));
        }
      }
    }
  });
}

TEST(Reducer, ReducesWhatEarlierMicroBatchesAddedThroughAnotherBranch) {
  run_ranks(2, [&](communicator& comm) {
    std::vector<parameter> const parameters{{"a", {100}, dtype::f32, nullptr}, {"b", {50}, dtype::f32, nullptr}};
    reducer with{comm, parameters, {}};
    for (std::size_t step = 0; step < 5; ++step) {
      with.zero_gradients();
      {
        auto const guard = with.no_sync();  // the first micro-batch uses only a
        fill_gradient(with, parameters, 0, comm.rank(), step);
        with.mark_ready(0);
      }
      fill_gradient(with, parameters, 1, comm.rank(), step);  // the second only b, and rank 1 marks nothing at all
      if (comm.rank() == 0) with.mark_ready(1);
      with.synchronize();
      expect_exact_means(with, parameters, 2, step);
    }
  });
}

TEST(Reducer, IssuesOneCollectiveABucketForDenseAndTwoForTwoShot) {
  for (auto const& [method, each_bucket] :
       std::map<std::string, std::size_t>{{"none", 1},
                                          {"none+via(one_shot)", 1},
                                          {"none+via(two_shot)", 2},
                                          {"topk(ratio=0.1)+ef+via(two_shot)", 2}}) {
    run_ranks(3, [&, method = method, per_bucket = each_bucket](communicator& comm) {
      std::vector<parameter> const parameters{{"a", {40, 50}, dtype::f32, nullptr},
                                              {"b", {70, 60}, dtype::f32, nullptr}};
      reducer with{comm, parameters, {.method = spec::parse(method), .first_bucket_bytes = 100, .bucket_bytes = 100}};
      toy_step(with, parameters, comm.rank(), 0);
      std::size_t const before = comm.stats().collectives;
      toy_step(with, parameters, comm.rank(), 1);
      EXPECT_EQ(with.stats().buckets, 2U);
      EXPECT_EQ(comm.stats().collectives - before, 2 * per_bucket) << method;
      EXPECT_EQ(with.stats().collectives, 4 * per_bucket) << method;
    });
  }
}

TEST(Reducer, CountsTheBytesThatTheCommunicatorSends) {
  for (char const* const method : {"none", "bf16", "onebit+ef", "topk(ratio=0.05)+ef"}) {
    run_ranks(3, [&](communicator& comm) {
      auto const parameters = toy_parameters();
      reducer with{comm, parameters, small_buckets(method)};
      toy_step(with, parameters, comm.rank(), 0);
      std::size_t const sent = comm.stats().bytes_sent;
      std::size_t const counted = with.stats().wire_bytes;
      toy_step(with, parameters, comm.rank(), 1);
      EXPECT_EQ(with.stats().wire_bytes - counted, comm.stats().bytes_sent - sent) << method;
      std::size_t elements = 0;
      for (parameter const& each : parameters) elements += count_of(each);
      EXPECT_DOUBLE_EQ(with.stats().raw_bytes, 2 * dense_bytes(elements, 3));
    });
  }
}

// Σ applied + owner + (1/n)·Σ worker residuals = Σ mean gradients, although buckets are rebuilt behind the first step
// (the order of readiness is not the assumed one) and owners change with them.
TEST(Reducer, LosesNoResidualWhenBucketsAreRebuilt) {
  constexpr std::size_t ranks = 3;
  constexpr std::size_t steps = 20;
  for (char const* const method : {"onebit+ef+via(two_shot)", "topk(ratio=0.05)+ef+via(two_shot)", "bf16+ef"}) {
    SCOPED_TRACE(method);
    auto const parameters = toy_parameters();
    std::vector<std::size_t> starts;
    std::size_t total = 0;
    for (parameter const& each : parameters) {
      starts.push_back(total);
      total += count_of(each);
    }
    std::vector<double> kept(total);
    std::mutex mutex;
    double largest = 4;
    run_ranks(ranks, [&](communicator& comm) {
      reducer with{comm, parameters, small_buckets(method)};
      std::vector<std::size_t> order{1, 6, 4, 0, 2, 5, 3};
      for (std::size_t step = 0; step < steps; ++step) {
        for (std::size_t const tensor : order) {
          fill_gradient(with, parameters, tensor, comm.rank(), step);
          with.mark_ready(tensor);
        }
        with.synchronize();
        auto const applied = all_gradients(with, parameters);
        std::scoped_lock const lock{mutex};
        for (std::size_t i = 0; i < total; ++i) {
          largest = std::max(largest, std::abs(double{applied[i]}));
          if (comm.rank() == 0) kept[i] += double{applied[i]};
        }
        for (std::size_t t = 0; t < parameters.size(); ++t) {
          for (float const each : with.residual(t)) largest = std::max(largest, std::abs(double{each}));
        }
      }
      auto const state = overlap::read_state(with.save_state());
      EXPECT_EQ(state.order, (std::vector<std::uint32_t>{1, 6, 4, 0, 2, 5, 3}));
      std::scoped_lock const lock{mutex};
      for (std::size_t tensor = 0; tensor < parameters.size(); ++tensor) {
        auto const residual = with.residual(tensor);
        for (std::size_t i = 0; i < residual.size(); ++i) kept[starts[tensor] + i] += double{residual[i]} / ranks;
      }
      for (auto const& run : state.owner_runs) {
        for (std::size_t i = 0; i < run.values.size(); ++i)
          kept[starts[run.parameter] + run.first + i] += double{run.values[i]};
      }
    });
    // As in the test of reductions: per step and rank some nine roundings of numbers of at most a gradient and two of
    // the largest, and one fold.
    double const ulp = std::numeric_limits<float>::epsilon() / 2 * (4 + 2 * largest) * ranks;
    double const tolerance = (steps + 1) * 9 * ulp;
    for (std::size_t tensor = 0; tensor < parameters.size(); ++tensor) {
      for (std::size_t i = 0; i < count_of(parameters[tensor]); ++i) {
        double expected = 0;
        for (std::size_t step = 0; step < steps; ++step) expected += toy_mean(ranks, step, tensor, i);
        ASSERT_NEAR(kept[starts[tensor] + i], expected, tolerance) << parameters[tensor].name << " element " << i;
      }
    }
  }
}

TEST(Reducer, ShowsANonFiniteGradientToEveryRankAndKeepsAllResidualsAsTheyWere) {
  for (char const* const method : {"onebit+ef", "quant(bits=8)+ef", "topk(ratio=0.05)+ef+via(two_shot)", "bf16+ef"}) {
    SCOPED_TRACE(method);
    run_ranks(3, [&](communicator& comm) {
      auto const parameters = toy_parameters();
      reducer with{comm, parameters, small_buckets(method)};
      for (std::size_t step = 0; step < 3; ++step) toy_step(with, parameters, comm.rank(), step);
      auto const residuals = all_residuals(with, parameters.size());
      auto const owners = overlap::read_state(with.save_state()).owner_runs;
      for (std::size_t tensor = 0; tensor < parameters.size(); ++tensor) {
        fill_gradient(with, parameters, tensor, comm.rank(), 3);
        if (comm.rank() == 1 && tensor == 4) {
          static_cast<float*>(with.gradient(tensor))[1000] = std::numeric_limits<float>::infinity();
        }
        with.mark_ready(tensor);
      }
      with.synchronize();
      auto const means = all_gradients(with, parameters);
      EXPECT_FALSE(std::all_of(means.begin(), means.end(), [](float each) { return std::isfinite(each); }));
      EXPECT_TRUE(all_residuals(with, parameters.size()) == residuals);
      auto const after = overlap::read_state(with.save_state()).owner_runs;
      ASSERT_EQ(after.size(), owners.size());
      for (std::size_t i = 0; i < owners.size(); ++i) EXPECT_TRUE(after[i].values == owners[i].values);
      toy_step(with, parameters, comm.rank(), 4);
      auto const next = all_gradients(with, parameters);
      EXPECT_TRUE(std::all_of(next.begin(), next.end(), [](float each) { return std::isfinite(each); }));
      // The toy gradients are bf16 numbers, so bf16 loses nothing of them and its residuals stay zero.
      bool const lossy = std::string_view{method} != "bf16+ef";
      EXPECT_EQ(all_residuals(with, parameters.size()) != residuals, lossy) << method;
    });
  }
}

TEST(Reducer, WarmsUpDenseAndStartsResidualsAfterwards) {
  run_ranks(2, [&](communicator& comm) {
    auto const parameters = toy_parameters();
    reducer with{comm, parameters, small_buckets("topk(ratio=0.05)+ef+warmup(steps=3)")};
    for (std::size_t step = 0; step < 3; ++step) {
      toy_step(with, parameters, comm.rank(), step);
      expect_exact_means(with, parameters, 2, step);
      for (float const each : all_residuals(with, parameters.size())) ASSERT_EQ(each, 0.0F);
    }
    toy_step(with, parameters, comm.rank(), 3);
    auto const residuals = all_residuals(with, parameters.size());
    EXPECT_TRUE(std::any_of(residuals.begin(), residuals.end(), [](float each) { return each != 0; }));
  });
}

TEST(Reducer, WarmsUpByTheSameHandsThatSumLater) {
  run_ranks(3, [&](communicator& comm) {
    auto const collectives_of_a_step = [&](char const* method) {
      auto const parameters = toy_parameters();
      reducer with{comm, parameters, {.method = spec::parse(method)}};
      toy_step(with, parameters, comm.rank(), 0);
      return with.stats().collectives;
    };
    EXPECT_EQ(collectives_of_a_step("onebit+ef+warmup(steps=3)"), collectives_of_a_step("none+via(two_shot)"));
    EXPECT_EQ(collectives_of_a_step("bf16+warmup(steps=3)"), collectives_of_a_step("bf16"));
  });
}

TEST(Reducer, FollowsRulesAndLeavesSmallParametersDense) {
  run_ranks(2, [&](communicator& comm) {
    auto const parameters = toy_parameters();
    reducer with{comm,
                 parameters,
                 {.method = spec::parse("f16+ef"), .rules = {rule::parse("name~^odd$=>none")}, .min_numel = 3000}};
    EXPECT_TRUE(with.residual(6).empty());  // by the rule
    EXPECT_TRUE(with.residual(1).empty());  // 33·65 = 2,145 elements
    EXPECT_TRUE(with.residual(2).empty());  // one dimension
    EXPECT_EQ(with.residual(4).size(), std::size_t{64 * 48});
  });
}

TEST(Reducer, GivesTheSameWhateverBucketsAndChunksAre) {
  std::vector<std::vector<float>> results;
  for (std::size_t const bytes : {100U, 5000U, 1000000U}) {
    run_ranks(3, [&](communicator& comm) {
      auto const parameters = toy_parameters();
      reducer with{comm,
                   parameters,
                   {.method = spec::parse("bf16+via(two_shot)"),
                    .min_numel = 0,
                    .first_bucket_bytes = bytes,
                    .bucket_bytes = bytes,
                    .chunk_bytes = bytes / 3 + 1}};
      for (std::size_t step = 0; step < 3; ++step) toy_step(with, parameters, comm.rank(), step);
      if (comm.rank() == 0) results.push_back(all_gradients(with, parameters));
    });
  }
  EXPECT_TRUE(results[0] == results[1] && results[0] == results[2]);
}

TEST(Reducer, WorksWithoutAnyParameter) {
  run_ranks(2, [&](communicator& comm) {
    reducer with{comm, {}, {}};
    for (int step = 0; step < 3; ++step) with.synchronize();
    EXPECT_EQ(with.stats().steps, 3U);
    EXPECT_EQ(with.stats().buckets, 0U);
  });
}

}  // namespace
}  // namespace gradwire
