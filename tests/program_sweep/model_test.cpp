#include "program/sweep/model.hpp"

#include <vector>

#include <gtest/gtest.h>

#include <gradwire/error.hpp>

namespace gradwire::program::sweep {
namespace {

class given_input final : public input_source {
 public:
  explicit given_input(std::vector<std::vector<float>> by_rank) : by_rank_{std::move(by_rank)} {}
  void fill(std::size_t rank, std::size_t first, std::span<float> out) const override {
    for (std::size_t i = 0; i < out.size(); ++i) out[i] = by_rank_[rank][first + i];
  }

 private:
  std::vector<std::vector<float>> by_rank_;
};

tally check(reduction_model& model, input_source const& input, std::vector<float> const& result) {
  return model.check(input, {1, 1}, result.data());
}

// onebit sends the signs and the mean magnitude: (1, −5) -> (3, −3), (3, 6) -> (4.5, 4.5).
given_input const two_ranks{{{1, -5}, {3, 6}}};

TEST(ReductionModel, OfOneShotIsTheMeanOfWhatTheRanksSent) {
  reduction_model model{spec::parse("onebit"), "one_shot", 2, 2, dtype::f32};
  EXPECT_EQ(check(model, two_ranks, {3.75F, 0.75F}).wrong, 0U);
  EXPECT_EQ(check(model, two_ranks, {3.75F, 0.5F}).wrong, 1U);
  EXPECT_EQ(check(model, two_ranks, {0, 0}).wrong, 2U);
}

TEST(ReductionModel, OfTwoShotEncodesTheMeanAgain) {
  reduction_model model{spec::parse("onebit"), "two_shot", 2, 2, dtype::f32};
  EXPECT_EQ(check(model, two_ranks, {2.25F, 2.25F}).wrong, 0U);
}

TEST(ReductionModel, MovesWorkerAndOwnerResidualsOn) {
  reduction_model model{spec::parse("onebit+ef"), "two_shot", 2, 2, dtype::f32};
  // First call: residuals (−2, −2) and (−1.5, 1.5); c = (3.75, 0.75), sent as 2.25, owner residual (1.5, −1.5).
  EXPECT_EQ(check(model, two_ranks, {2.25F, 2.25F}).wrong, 0U);
  // Second: (−1, −7) -> ∓4, (1.5, 7.5) -> 4.5; c = (0.25, 0.25) + (1.5, −1.5) = (1.75, −1.25), sent as ±1.5.
  EXPECT_EQ(check(model, two_ranks, {1.5F, -1.5F}).wrong, 0U);
}

TEST(ReductionModel, MeasuresErrorAgainstTheTrueMean) {
  reduction_model model{spec::parse("onebit"), "one_shot", 2, 2, dtype::f32};
  tally const sum = check(model, two_ranks, {3, 0});  // the mean is (2, 0.5)
  EXPECT_DOUBLE_EQ(sum.norm2, 4.25);
  EXPECT_DOUBLE_EQ(sum.error2, 1.25);
  EXPECT_DOUBLE_EQ(sum.nmse(), 1.25 / 4.25);
}

TEST(ReductionModel, OfDenseIsTheExactMean) {
  given_input const input{{{3, 6, -9}, {0, 3, 3}, {-3, 0, 3}}};
  reduction_model model{spec::parse("none"), "dense", 3, 3, dtype::f32};
  EXPECT_TRUE(model.needs_exact_sums());
  EXPECT_EQ(check(model, input, {0, 3, -1}).wrong, 0U);
  EXPECT_EQ(check(model, input, {0, 3, -1.0000001F}).wrong, 1U);
}

TEST(ReductionModel, DealtOutFindsWhatTheWholeFinds) {
  gaussian_input const input{3, dtype::f32};
  std::size_t const count = 300'001;
  std::vector<float> const zeros(count);
  for (char const* text : {"onebit+ef", "topk(ratio=0.01)+ef", "none+via(two_shot)"}) {
    spec const method = spec::parse(text);
    reduction_model whole{method, "two_shot", 2, count, dtype::f32};
    std::size_t wrong = 0;
    double norm2 = 0;
    for (std::size_t share = 0; share < 3; ++share) {
      reduction_model part{method, "two_shot", 2, count, dtype::f32, share, 3};
      tally const sum = check(part, input, zeros);
      wrong += sum.wrong;
      norm2 += sum.norm2;
    }
    tally const all = check(whole, input, zeros);
    EXPECT_EQ(wrong, all.wrong) << text;
    EXPECT_NEAR(norm2, all.norm2, 1e-9 * all.norm2) << text;
  }
}

TEST(ReductionModel, RefusesAReductionThatItDoesNotKnow) {
  EXPECT_THROW((reduction_model{spec::parse("none"), "somehow", 2, 2, dtype::f32}), error);
}

TEST(Tally, OfNoMeanIsAllOrNothing) {
  EXPECT_EQ(tally{}.nmse(), 0);
  EXPECT_EQ((tally{.error2 = 1}.nmse()), std::numeric_limits<double>::infinity());
}

}  // namespace
}  // namespace gradwire::program::sweep
