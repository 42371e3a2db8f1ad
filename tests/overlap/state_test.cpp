#include "overlap/state.hpp"

#include <cmath>
#include <mutex>
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include <gradwire/error.hpp>
#include <gradwire/inproc.hpp>
#include <gradwire/reducer.hpp>

#include "tests/overlap/toy_model.hpp"

namespace gradwire {
namespace {

using namespace test;

using states = std::vector<std::vector<std::byte>>;

// Trains `ranks` ranks from step `from` to `to`; starts from `begin` where given; returns the states at the end and, by
// rank, all means and residuals of all steps.
states train(std::size_t ranks, char const* method, std::size_t from, std::size_t to, states const& begin,
             std::vector<std::vector<float>>& trace) {
  states end(ranks);
  run_ranks(ranks, [&](communicator& comm) {
    auto const parameters = toy_parameters();
    auto options = small_buckets(method);
    if (!begin.empty()) options.seed = 99;  // the state's own seed counts
    reducer with{comm, parameters, options};
    if (!begin.empty()) with.load_state(begin);
    EXPECT_EQ(with.stats().steps, from);
    for (std::size_t step = from; step < to; ++step) {
      // Not the assumed order, so that buckets are rebuilt behind the first step.
      for (std::size_t const tensor : {1U, 6U, 4U, 0U, 2U, 5U, 3U}) {
        fill_gradient(with, parameters, tensor, comm.rank(), step);
        with.mark_ready(tensor);
      }
      with.synchronize();
      auto const means = all_gradients(with, parameters);
      auto const residuals = all_residuals(with, parameters.size());
      auto& into = trace[comm.rank()];
      into.insert(into.end(), means.begin(), means.end());
      into.insert(into.end(), residuals.begin(), residuals.end());
    }
    end[comm.rank()] = with.save_state();
  });
  return end;
}

TEST(State, RestoredInANewGroupGoesOnBitForBitAsIfNeverInterrupted) {
  for (char const* const method : {"quant(bits=4,round=stochastic)", "quant(bits=8,round=stochastic)+ef", "onebit+ef",
                                   "topk(ratio=0.05)+ef+via(two_shot)+warmup(steps=4)", "f16+ef"}) {
    for (std::size_t const stop : {0U, 1U, 3U, 5U}) {
      SCOPED_TRACE(testing::Message() << method << " stopped at " << stop);
      std::vector<std::vector<float>> whole(3);
      std::vector<std::vector<float>> parts(3);
      auto const expected = train(3, method, 0, 7, {}, whole);
      auto const middle = train(3, method, 0, stop, {}, parts);
      auto const end = train(3, method, stop, 7, middle, parts);
      EXPECT_TRUE(whole == parts);
      EXPECT_TRUE(expected == end);
    }
  }
}

// (1/n)·Σ worker residuals + Σ owner residuals, by element of each parameter.
std::vector<double> mean_residual(states const& of) {
  std::vector<double> sum;
  for (auto const& bytes : of) {
    auto const state = overlap::read_state(bytes);
    std::vector<std::size_t> starts;
    std::size_t total = 0;
    for (auto const& each : state.parameters) {
      starts.push_back(total);
      total += each.residual.size();
    }
    sum.resize(total);
    for (std::size_t p = 0; p < state.parameters.size(); ++p) {
      for (std::size_t i = 0; i < state.parameters[p].residual.size(); ++i) {
        sum[starts[p] + i] += double{state.parameters[p].residual[i]} / static_cast<double>(of.size());
      }
    }
    for (auto const& run : state.owner_runs) {
      for (std::size_t i = 0; i < run.values.size(); ++i)
        sum[starts[run.parameter] + run.first + i] += double{run.values[i]};
    }
  }
  return sum;
}

TEST(State, KeepsTheMeanResidualWhenTheNumberOfRanksChanges) {
  for (std::size_t const now : {1U, 2U, 5U}) {
    std::vector<std::vector<float>> trace(5);
    auto const before = train(3, "topk(ratio=0.05)+ef+via(two_shot)", 0, 4, {}, trace);
    auto const after = train(now, "topk(ratio=0.05)+ef+via(two_shot)", 4, 4, before, trace);
    auto const expected = mean_residual(before);
    auto const found = mean_residual(after);
    ASSERT_EQ(found.size(), expected.size());
    // Each element is rounded to f32 once.
    for (std::size_t i = 0; i < found.size(); ++i) {
      ASSERT_NEAR(found[i], expected[i], std::abs(expected[i]) * 0x1p-24 + 1e-12) << "element " << i;
    }
  }
}

errc code_of(std::vector<std::byte> const& bytes) {
  try {
    static_cast<void>(overlap::read_state(bytes));
  } catch (error const& failure) {
    return failure.code();
  }
  ADD_FAILURE() << "a spoiled state was read";
  return errc::invalid_argument;
}

TEST(State, IsRefusedWhenTruncatedOrWhenAnyBitIsWrong) {
  overlap::saved_state const small{
      .order = {1, 0}, .parameters = {{"a", "f32 [2]", {1, 2}}, {"b", "f32 []", {}}}, .owner_runs = {{0, 1, {4}}}};
  auto const good = overlap::write_state(small);
  EXPECT_EQ(overlap::read_state(good).parameters[0].residual, (std::vector<float>{1, 2}));
  for (std::size_t length = 0; length < good.size(); ++length) {
    EXPECT_EQ(code_of({good.begin(), good.begin() + static_cast<std::ptrdiff_t>(length)}), errc::corrupt_payload);
  }
  for (std::size_t bit = 0; bit < 8 * good.size(); ++bit) {
    auto bad = good;
    bad[bit / 8] ^= std::byte{1} << (bit % 8);
    EXPECT_EQ(code_of(bad), errc::corrupt_payload) << "bit " << bit;
  }
}

TEST(State, OfAnotherModelOrRankIsRefusedAndChangesNothing) {
  run_ranks(2, [&](communicator& comm) {
    auto const parameters = toy_parameters();
    reducer with{comm, parameters, small_buckets("topk(ratio=0.05)+ef")};
    toy_step(with, parameters, comm.rank(), 0);
    auto const own = with.save_state();
    auto const refusal = [&](states const& given) -> std::string {
      try {
        with.load_state(given);
      } catch (error const& failure) {
        EXPECT_EQ(failure.code(), errc::mismatch);
        return failure.what();
      }
      return "nothing was thrown";
    };
    EXPECT_NE(refusal({own}).find(" of 2"), std::string::npos);
    states swapped(2, own);
    auto state = overlap::read_state(own);
    state.rank = 1 - comm.rank();
    swapped[comm.rank()] = overlap::write_state(state);
    EXPECT_NE(refusal(swapped).find("in order"), std::string::npos);
    state.rank = comm.rank();
    state.parameters[4].text = "f32 [64,48] none";
    swapped[comm.rank()] = overlap::write_state(state);
    EXPECT_NE(refusal(swapped).find("layer1.weight"), std::string::npos);
    EXPECT_TRUE(with.save_state() == own);
  });
}

}  // namespace
}  // namespace gradwire
