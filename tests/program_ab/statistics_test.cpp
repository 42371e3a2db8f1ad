#include "bench/program/ab/statistics.hpp"

#include <array>
#include <cmath>
#include <random>
#include <vector>

#include <gtest/gtest.h>

#include <gradwire/error.hpp>

namespace gradwire::program {
namespace {

// Student 1908, "The probable error of a mean", Biometrika 6: 1–25, table of p. 20: additional hours of sleep with
// hyoscyamine D and L, ten patients; L − D.
constexpr std::array sleep_differences{1.2, 2.4, 1.3, 1.3, 0.0, 1.0, 1.8, 0.8, 4.6, 1.4};

TEST(StudentsT, AgreesWithThePrintedTables) {
  // Fisher and Yates, table III (three decimals), and any textbook since.
  EXPECT_NEAR(students_t_quantile(0.975, 1), 12.706, 5e-4);
  EXPECT_NEAR(students_t_quantile(0.975, 4), 2.776, 5e-4);
  EXPECT_NEAR(students_t_quantile(0.95, 4), 2.132, 5e-4);
  EXPECT_NEAR(students_t_quantile(0.975, 9), 2.262, 5e-4);
  EXPECT_NEAR(students_t_quantile(0.95, 9), 1.833, 5e-4);
  EXPECT_NEAR(students_t_quantile(0.975, 120), 1.980, 5e-4);
}

TEST(ComparePairs, ReproducesStudentsSleepData) {
  auto const c = compare_pairs(sleep_differences, 1, direction::higher);
  EXPECT_EQ(c.pairs, 10u);
  EXPECT_NEAR(c.difference, 1.58, 1e-12);
  // Deviations from 1.58 squared: .1444 .6724 .0784 .0784 2.4964 .3364 .0484 .6084 9.1204 .0324 = 13.616; / 9; root.
  EXPECT_NEAR(c.deviation, std::sqrt(13.616 / 9), 1e-12);
  // R's t.test(extra ~ group, paired = TRUE) on the same data prints 0.7001142 2.4598858.
  ASSERT_TRUE(c.ci95 && c.ci90);
  EXPECT_NEAR(c.ci95->low, 0.7001142, 1e-7);
  EXPECT_NEAR(c.ci95->high, 2.4598858, 1e-7);
  // 1.58 ± 1.833 · 1.23 / √10, by hand: 1.833 · 0.38896 = 0.7130.
  EXPECT_NEAR(c.ci90->low, 0.8670, 2e-4);
  EXPECT_NEAR(c.ci90->high, 2.2930, 2e-4);
}

TEST(ComparePairs, JudgesTheSleepDataByTheMargin) {
  // The 90 % interval is (0.867, 2.293), the 95 % one (0.700, 2.460).
  EXPECT_EQ(compare_pairs(sleep_differences, 2.30, direction::higher).verdict, verdict::equivalent);
  EXPECT_EQ(compare_pairs(sleep_differences, 2.29, direction::higher).verdict, verdict::better);
  EXPECT_EQ(compare_pairs(sleep_differences, 2.30, direction::lower).verdict, verdict::equivalent);
  EXPECT_EQ(compare_pairs(sleep_differences, 2.29, direction::lower).verdict, verdict::worse);
}

TEST(ComparePairs, TurnsTheSignWithTheData) {
  std::vector<double> turned;
  for (double const d : sleep_differences) turned.push_back(-d);
  EXPECT_EQ(compare_pairs(turned, 1, direction::higher).verdict, verdict::worse);
  EXPECT_EQ(compare_pairs(turned, 1, direction::lower).verdict, verdict::better);
}

TEST(ComparePairs, CallsADifferenceEquivalentEvenIfItIsSurelyNotZero) {
  // 95 % interval (0.700, 2.460) excludes 0, but with a margin of 3 it does not matter: equivalent comes first.
  EXPECT_EQ(compare_pairs(sleep_differences, 3, direction::lower).verdict, verdict::equivalent);
}

TEST(ComparePairs, HasATostPValueThatAgreesWithTheInterval) {
  // The two one-sided tests reject at 5 % exactly when the 90 % interval lies inside the margin.
  EXPECT_LT(*compare_pairs(sleep_differences, 2.30, direction::higher).p_equivalence, 0.05);
  EXPECT_GT(*compare_pairs(sleep_differences, 2.29, direction::higher).p_equivalence, 0.05);
  // By hand for a margin of 2: t = (1.58 − 2) / 0.38896 = −1.0798 with 9 degrees; a t table has P(t < −1.100) = 0.15.
  EXPECT_NEAR(*compare_pairs(sleep_differences, 2, direction::higher).p_equivalence, 0.154, 0.002);
}

TEST(ComparePairs, WorksAFourPairExampleByHand) {
  // Mean 0.002; deviations ±0.001 twice each: variance 4e-6 / 3, s/√4 = 0.00057735; t(0.95, 3) = 2.3534,
  // t(0.975, 3) = 3.1824: half-widths 0.0013587 and 0.0018374.
  std::array const differences{0.001, 0.003, 0.001, 0.003};
  auto const c = compare_pairs(differences, 0.01, direction::higher);
  EXPECT_NEAR(c.ci90->low, 0.002 - 0.0013587, 1e-7);
  EXPECT_NEAR(c.ci95->high, 0.002 + 0.0018374, 1e-7);
  EXPECT_EQ(c.verdict, verdict::equivalent);
  EXPECT_EQ(compare_pairs(differences, 0.003, direction::higher).verdict, verdict::better);
}

TEST(ComparePairs, IsInconclusiveWithoutTwoPairs) {
  auto const none = compare_pairs({}, 0.01, direction::higher);
  EXPECT_EQ(none.verdict, verdict::inconclusive);
  EXPECT_FALSE(none.ci95 || none.ci90 || none.seeds_needed);
  auto const one = compare_pairs(std::array{0.0}, 0.01, direction::higher);
  EXPECT_EQ(one.verdict, verdict::inconclusive);
  EXPECT_FALSE(one.ci95 || one.ci90 || one.seeds_needed);
  EXPECT_EQ(one.difference, 0.0);
}

TEST(ComparePairs, GivesEqualDifferencesIntervalsOfNoWidth) {
  // 0.1 three times: the sum is rounded, the mean must be 0.1 all the same.
  auto const c = compare_pairs(std::array{0.1, 0.1, 0.1}, 0.01, direction::higher);
  EXPECT_EQ(c.difference, 0.1);
  EXPECT_EQ(c.ci95->low, 0.1);
  EXPECT_EQ(c.ci95->high, 0.1);
  EXPECT_EQ(c.verdict, verdict::better);
  EXPECT_EQ(compare_pairs(std::array{0.0, 0.0}, 0.01, direction::higher).verdict, verdict::equivalent);
  EXPECT_EQ(compare_pairs(std::array{-0.1, -0.1}, 0.01, direction::higher).verdict, verdict::worse);
  EXPECT_EQ(*compare_pairs(std::array{0.0, 0.0}, 0.01, direction::higher).p_equivalence, 0.0);
}

TEST(ComparePairs, DoesNotCallTheMarginItselfEquivalent) {
  EXPECT_EQ(compare_pairs(std::array{0.25, 0.25}, 0.25, direction::lower).verdict, verdict::worse);
}

TEST(ComparePairs, RefusesWhatNoVerdictCanComeFrom) {
  EXPECT_THROW(static_cast<void>(compare_pairs(std::array<double, 2>{0, NAN}, 0.01, direction::higher)), error);
  EXPECT_THROW(static_cast<void>(compare_pairs(std::array{0.0, 0.0}, 0, direction::higher)), error);
  EXPECT_THROW(static_cast<void>(compare_pairs(std::array{0.0, 0.0}, NAN, direction::higher)), error);
}

TEST(SeedsToSettle, FindsTheFirstNumberAtWhichTheIntervalFits) {
  // difference 0, deviation 1, margin 1: t(0.95, n−1)/√n < 1. n = 4: 2.3534/2 = 1.177; n = 5: 2.1318/2.236 = 0.953.
  EXPECT_EQ(seeds_to_settle(0, 1, 1, 2), 5u);
  // Asked from 7 on: the next number that is more.
  EXPECT_EQ(seeds_to_settle(0, 1, 1, 7), 8u);
}

TEST(SeedsToSettle, CountsADifferenceThatExcludesZeroAsSettled) {
  // |difference| = margin: only the 95 % interval can settle it; t(0.975, n−1)/√n < 1: n = 6: 2.5706/2.449 = 1.0495,
  // n = 7: 2.4469/2.6458 = 0.925.
  EXPECT_EQ(seeds_to_settle(-1, 1, 1, 2), 7u);
}

TEST(SeedsToSettle, GivesUpOnWhatNobodyWouldRun) {
  // Neither can happen below (1.645/1e-4)² seeds.
  EXPECT_EQ(seeds_to_settle(0, 1, 1e-4, 5), std::nullopt);
}

TEST(SeedsToSettle, IsToldWithAnInconclusiveVerdict) {
  // Mean 0, s = √2 (two pairs ±1), margin 1: t(0.95, n−1)·1.4142/√n < 1; n = 7: 1.9432·0.5345 = 1.0387,
  // n = 8: 1.8946·0.5 = 0.947.
  auto const c = compare_pairs(std::array{-1.0, 1.0}, 1, direction::higher);
  EXPECT_EQ(c.verdict, verdict::inconclusive);
  EXPECT_EQ(c.seeds_needed, 8u);
}

// Simulated experiments: how often does a verdict come out that must not?
double share(double true_difference, std::size_t seeds, verdict wanted) {
  std::mt19937_64 generator{20261130};  // NOLINT: fixed on purpose
  std::normal_distribution<double> noise{true_difference, 0.004};
  constexpr int experiments = 4000;
  int hits = 0;
  std::vector<double> differences(seeds);
  for (int i = 0; i < experiments; ++i) {
    for (double& d : differences) d = noise(generator);
    hits += compare_pairs(differences, 0.01, direction::higher).verdict == wanted ? 1 : 0;
  }
  return static_cast<double>(hits) / experiments;
}

// Three standard deviations of a share of 0.05 over 4,000 trials: 3·√(0.05·0.95/4000) = 0.0103.
TEST(Verdicts, CallAnArmAtTheMarginEquivalentInOneOfTwentyExperiments) {
  EXPECT_NEAR(share(-0.01, 5, verdict::equivalent), 0.05, 0.0103) << "generator seed 20261130";
  EXPECT_NEAR(share(0.01, 8, verdict::equivalent), 0.05, 0.0103) << "generator seed 20261130";
}

TEST(Verdicts, CallAnEqualArmWorseInAtMostOneOfFortyExperiments) {
  // One side of a 95 % interval is 2.5 %; experiments that are equivalent already do not count, so it is less.
  EXPECT_LE(share(0, 5, verdict::worse), 0.025 + 0.0075) << "generator seed 20261130";
}

TEST(Verdicts, FindAnEqualArmEquivalentMostOfTheTime) {
  // t(0.95, 4)·0.004/√5 = 0.0038, far inside 0.01.
  EXPECT_GE(share(0, 5, verdict::equivalent), 0.95) << "generator seed 20261130";
}

}  // namespace
}  // namespace gradwire::program
