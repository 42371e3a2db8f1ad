#include <gradwire/reducer.hpp>

#include <vector>

#include <gtest/gtest.h>

#include <gradwire/inproc.hpp>

#include "tests/overlap/toy_model.hpp"

namespace gradwire {
namespace {

using namespace test;

TEST(Reducer, GivesEveryRankTheExactMeanWithoutCompression) {
  for (std::size_t const ranks : {1U, 2U, 4U}) {
    SCOPED_TRACE(ranks);
    run_ranks(ranks, [&](communicator& comm) {
      auto const parameters = toy_parameters();
      reducer with{comm, parameters, {.min_numel = 0}};
      for (std::size_t step = 0; step < 5; ++step) {
        toy_step(with, parameters, comm.rank(), step);
        for (std::size_t tensor = 0; tensor < parameters.size(); ++tensor) {
          for (std::size_t i = 0; i < count_of(parameters[tensor]); ++i) {
            ASSERT_EQ(load(with.gradient(tensor), dtype::f32, i), static_cast<float>(toy_mean(ranks, step, tensor, i)));
          }
        }
      }
    });
  }
}

TEST(Reducer, KeepsWhatWasAppliedPlusResidualsEqualToWhatWasComputed) {
  std::size_t const ranks = 3;
  std::vector<std::vector<float>> means(ranks);
  run_ranks(ranks, [&](communicator& comm) {
    auto const parameters = toy_parameters();
    reducer with{comm, parameters, {.method = spec::parse("topk(ratio=0.05)+ef+via(two_shot)")}};
    for (std::size_t step = 0; step < 5; ++step) toy_step(with, parameters, comm.rank(), step);
    means[comm.rank()] = all_gradients(with, parameters);
  });
  EXPECT_EQ(means[0], means[1]);
  EXPECT_EQ(means[0], means[2]);
}

}  // namespace
}  // namespace gradwire
