#include "bench/program/ab/judge.hpp"

#include <gtest/gtest.h>

#include "bench/program/ab/explain.hpp"

namespace gradwire::program {
namespace {

question ask(std::vector<std::uint64_t> seeds = {1, 2, 3}) {
  return {{"none", "arm"}, "none", std::move(seeds), "accuracy", 0.01, direction::higher};
}

run good(std::string arm, std::uint64_t seed, double value, double seconds = 1, double raw = 100, double wire = 100) {
  run one;
  one.arm = std::move(arm);
  one.seed = seed;
  one.status = run_status::ok;
  one.value = value;
  one.seconds = seconds;
  one.raw_bytes = raw;
  one.wire_bytes = wire;
  return one;
}

run bad(std::string arm, std::uint64_t seed, run_status status) {
  run one;
  one.arm = std::move(arm);
  one.seed = seed;
  one.status = status;
  one.reason = "it ended with exit status 3";
  return one;
}

TEST(JudgeArms, PairsRunsBySeedWhateverTheirOrder) {
  // Values differ wildly between seeds, the differences are 0.001, 0.002, 0.003.
  std::vector<run> const runs{good("arm", 3, 0.303), good("none", 1, 0.9),  good("arm", 1, 0.901),
                              good("none", 3, 0.3),  good("arm", 2, 0.602), good("none", 2, 0.6)};
  auto const results = judge_arms(ask(), runs);
  ASSERT_EQ(results.size(), 2u);
  EXPECT_TRUE(results[0].is_baseline);
  EXPECT_NEAR(*results[0].mean, 0.6, 1e-12);
  EXPECT_NEAR(results[1].comparison.difference, 0.002, 1e-12);
  EXPECT_EQ(results[1].comparison.verdict, verdict::equivalent);
  ASSERT_EQ(results[1].differences.size(), 3u);
  EXPECT_EQ(results[1].differences[2].seed, 3u);
  EXPECT_NEAR(results[1].differences[2].difference, 0.003, 1e-12);
}

TEST(JudgeArms, NeverCallsAnArmWithAFailedSeedEquivalentOrBetter) {
  for (run_status const status : {run_status::failed, run_status::diverged}) {
    for (double const gain : {0.0, 0.1}) {
      std::vector<run> const runs{good("none", 1, 0.5),       good("none", 2, 0.6),       good("none", 3, 0.7),
                                  good("arm", 1, 0.5 + gain), good("arm", 2, 0.6 + gain), bad("arm", 3, status)};
      auto const results = judge_arms(ask(), runs);
      EXPECT_EQ(results[1].comparison.verdict, verdict::inconclusive);
      EXPECT_EQ(verdict_word(results[1]), "inconclusive");
      EXPECT_EQ(results[1].reason, "1 of 3 runs failed or diverged");
      EXPECT_EQ(results[1].bad, 1u);
      EXPECT_TRUE(any_worse_or_failed(results));
    }
  }
}

TEST(JudgeArms, StillCallsAnArmWithAFailedSeedWorse) {
  std::vector<run> const runs{good("none", 1, 0.5), good("none", 2, 0.6), good("none", 3, 0.7),
                              good("arm", 1, 0.1),  good("arm", 2, 0.21), bad("arm", 3, run_status::diverged)};
  auto const results = judge_arms(ask(), runs);
  EXPECT_EQ(results[1].comparison.verdict, verdict::worse);
  EXPECT_EQ(verdict_word(results[1]), "worse");
}

TEST(JudgeArms, KeepsAnArmWhoseEveryRunFailed) {
  std::vector<run> const runs{good("none", 1, 0.5), good("none", 2, 0.6), bad("arm", 1, run_status::failed),
                              bad("arm", 2, run_status::failed)};
  auto const results = judge_arms(ask({1, 2}), runs);
  EXPECT_EQ(results[1].comparison.pairs, 0u);
  EXPECT_FALSE(results[1].mean);
  EXPECT_EQ(verdict_word(results[1]), "inconclusive");
  EXPECT_EQ(results[1].reason, "2 of 2 runs failed or diverged");
  auto const line = results[1].to_record(ask({1, 2}), results[0].mean);
  EXPECT_EQ(line.at("verdict"), "inconclusive");
  EXPECT_TRUE(line.at("difference").is_null());
  EXPECT_TRUE(line.at("ci95").is_null());
  EXPECT_EQ(line.at("failed_seeds"), 2);
}

TEST(JudgeArms, CountsAFailedBaselineAsAnAnswerOfNo) {
  std::vector<run> const runs{bad("none", 1, run_status::failed), good("none", 2, 0.6), good("arm", 1, 0.5),
                              good("arm", 2, 0.6)};
  auto const results = judge_arms(ask({1, 2}), runs);
  EXPECT_EQ(results[1].comparison.pairs, 1u);
  EXPECT_EQ(results[1].comparison.verdict, verdict::inconclusive);
  EXPECT_TRUE(any_worse_or_failed(results));
}

TEST(JudgeArms, SaysWhyOneSeedIsNotEnough) {
  std::vector<run> const runs{good("none", 1, 0.5), good("arm", 1, 0.5)};
  auto const results = judge_arms(ask({1}), runs);
  EXPECT_EQ(results[1].comparison.verdict, verdict::inconclusive);
  EXPECT_EQ(results[1].reason, "one seed gives no interval: run at least 2, better 5");
  EXPECT_FALSE(any_worse_or_failed(results));
}

TEST(JudgeArms, DividesBytesWithinAnArmAndSecondsAgainstTheBaseline) {
  std::vector<run> const runs{good("none", 1, 0.5, 4.0), good("none", 2, 0.5, 6.0), good("arm", 1, 0.5, 2.0, 320, 10),
                              good("arm", 2, 0.5, 3.0, 320, 10)};
  auto const results = judge_arms(ask({1, 2}), runs);
  EXPECT_DOUBLE_EQ(*results[1].compression, 32.0);
  EXPECT_DOUBLE_EQ(*results[1].speedup, 2.0);  // (4 + 6) / (2 + 3)
  EXPECT_DOUBLE_EQ(*results[0].compression, 1.0);
}

TEST(JudgeArms, WritesTheVerdictRecordOfTheContract) {
  std::vector<run> const runs{good("none", 1, 0.5), good("none", 2, 0.5), good("arm", 1, 0.501), good("arm", 2, 0.503)};
  auto const results = judge_arms(ask({1, 2}), runs);
  auto const line = results[1].to_record(ask({1, 2}), results[0].mean);
  for (char const* const key : {"event", "arm", "baseline", "metric", "seeds", "mean", "difference", "ci95", "ci90",
                                "margin", "verdict", "compression", "speedup"}) {
    EXPECT_TRUE(line.contains(key)) << key;
  }
  EXPECT_EQ(line.at("event"), "verdict");
  EXPECT_EQ(line.at("seeds"), 2);
  EXPECT_EQ(line.at("ci95").size(), 2u);
  EXPECT_EQ(line.at("margin"), 0.01);
}

TEST(NextSteps, GivesTheCommandThatSettlesWhatIsInconclusive) {
  std::vector<run> const runs{good("none", 1, 0.5), good("none", 2, 0.5), good("arm", 1, 0.49), good("arm", 2, 0.51)};
  auto const asked = ask({1, 2});
  auto const results = judge_arms(asked, runs);
  ASSERT_TRUE(results[1].comparison.seeds_needed);
  std::vector<std::string> const command{"gradwire", "ab",     "--arm", "topk(k=3)", "--seeds", "2",
                                         "--",       "python", "t.py",  "{spec}",    "--seeds", "9"};
  std::string all;
  for (auto const& line : next_steps(asked, results, runs, "out", command)) all += line + "\n";
  // ±0.01 and a margin of 0.01 as in SeedsToSettle.IsToldWithAnInconclusiveVerdict, scaled: 8 seeds.
  EXPECT_NE(all.find("gradwire ab --arm 'topk(k=3)' --seeds 8 --resume -- python t.py '{spec}' --seeds 9"), all.npos)
      << all;
}

TEST(NumbersForPeople, HaveTwoPlacesMoreThanTheMargin) {
  EXPECT_EQ(value_text(0.97312, 0.01), "0.9731");
  EXPECT_EQ(signed_text(0.00123, 0.01), "+0.0012");
  EXPECT_EQ(signed_text(-0.00123, 0.5), "-0.001");
  EXPECT_EQ(value_text(1.5, 2), "1.50");
  EXPECT_EQ(value_text(1e30, 0.01), "1e+30");
  EXPECT_EQ(interval_text(interval{-0.001, 0.002}, 0.01), "[-0.0010, +0.0020]");
}

}  // namespace
}  // namespace gradwire::program
