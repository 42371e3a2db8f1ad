#include <gtest/gtest.h>

#include "bench/program/ab/curves.hpp"
#include "bench/program/ab/runs.hpp"
#include "bench/program/common/context.hpp"
#include "tests/program_ab/folder.hpp"

namespace gradwire::program {
namespace {

constexpr std::string_view whole_run = R"({"event":"start","spec":"onebit","seed":3}
{"event":"step","step":1,"loss":2.0,"seconds":0.5,"raw_bytes":100,"wire_bytes":10,"exposed_seconds":0.1}
{"event":"step","step":2,"loss":1.0,"seconds":0.25,"raw_bytes":100,"wire_bytes":30,"exposed_seconds":0.05}
{"event":"eval","step":2,"metric":"accuracy","value":0.5}
{"event":"eval","step":2,"metric":"recall","value":0.1}
{"event":"step","step":3,"loss":0.5,"seconds":0.25,"raw_bytes":100,"wire_bytes":30,"exposed_seconds":0.05}
{"event":"eval","step":3,"metric":"accuracy","value":0.75}
{"event":"end","steps":3,"seconds":1.25,"raw_bytes":300,"wire_bytes":72,"parameters_crc32":"00000000","status":"ok"}
)";

run concluded(std::filesystem::path const& file, std::string_view metric = "accuracy", pick choice = pick::last,
              std::string const& end = "") {
  run one;
  conclude(one, file, metric, choice, end, 9.0);
  return one;
}

TEST(Metrics, TakesTheLastEvalOfTheMetricAndTheTotalsOfTheEndRecord) {
  temporary_folder const folder;
  auto const one = concluded(folder.write("m", whole_run));
  EXPECT_EQ(one.status, run_status::ok);
  EXPECT_EQ(one.value, 0.75);
  EXPECT_EQ(one.steps, 3);
  EXPECT_EQ(one.seconds, 1.25);
  EXPECT_EQ(one.raw_bytes, 300);
  EXPECT_EQ(one.wire_bytes, 72);
}

TEST(Metrics, AddsUpTheStepsWithoutAnEndRecord) {
  temporary_folder const folder;
  std::string text{whole_run};
  text.erase(text.find("{\"event\":\"end\""));
  auto const one = concluded(folder.write("m", text));
  EXPECT_EQ(one.steps, 3);
  EXPECT_EQ(one.seconds, 1.0);
  EXPECT_EQ(one.wire_bytes, 70);
}

TEST(Metrics, NeedsNothingButOneEvalRecord) {
  temporary_folder const folder;
  auto const one = concluded(folder.write("m", "{\"event\":\"eval\",\"metric\":\"accuracy\",\"value\":1}"));
  EXPECT_EQ(one.status, run_status::ok);
  EXPECT_EQ(one.value, 1.0);
  EXPECT_EQ(one.seconds, 9.0);  // the clock on the wall
  EXPECT_FALSE(one.raw_bytes || one.wire_bytes || one.steps);
}

TEST(Metrics, TakesTheBestEvalWhenAsked) {
  temporary_folder const folder;
  auto const file = folder.write("m", R"({"event":"eval","metric":"a","value":2}
{"event":"eval","metric":"a","value":NaN}
{"event":"eval","metric":"a","value":3}
{"event":"eval","metric":"a","value":1}
{"event":"eval","metric":"a","value":2.5}
)");
  EXPECT_EQ(concluded(file, "a", pick::best_higher).value, 3.0);
  EXPECT_EQ(concluded(file, "a", pick::best_lower).value, 1.0);
  EXPECT_EQ(concluded(file, "a", pick::last).value, 2.5);
}

TEST(Metrics, CallsARunWithAValueThatIsNotFiniteDiverged) {
  temporary_folder const folder;
  for (char const* const value : {"NaN", "Infinity", "-Infinity", "null"}) {
    auto const one = concluded(folder.write("m", std::string{R"({"event":"eval","metric":"accuracy","value":)"} +
                                                     value + R"(,"note":"NaN \" NaN"})" + "\n"));
    EXPECT_EQ(one.status, run_status::diverged) << value;
    EXPECT_FALSE(one.value) << value;
  }
}

TEST(Metrics, BelievesTheEndRecordThatARunDiverged) {
  temporary_folder const folder;
  std::string text{whole_run};
  text.replace(text.find("\"ok\""), 4, "\"diverged\"");
  auto const one = concluded(folder.write("m", text), "accuracy", pick::last, "it ended with exit status 1");
  EXPECT_EQ(one.status, run_status::diverged);
  EXPECT_FALSE(one.value);
}

TEST(Metrics, CallsARunFailedThatEndedBadlyWhateverItWrote) {
  temporary_folder const folder;
  auto const one = concluded(folder.write("m", whole_run), "accuracy", pick::last, "it ended with signal 9 (Killed)");
  EXPECT_EQ(one.status, run_status::failed);
  EXPECT_EQ(one.reason, "it ended with signal 9 (Killed)");
  EXPECT_EQ(one.wire_bytes, 72);
}

TEST(Metrics, NamesTheMetricsThatAreThereWhenTheChosenOneIsNot) {
  temporary_folder const folder;
  auto const one = concluded(folder.write("m", whole_run), "loss");
  EXPECT_EQ(one.status, run_status::failed);
  EXPECT_NE(one.reason.find("accuracy, recall"), one.reason.npos) << one.reason;
  EXPECT_EQ(concluded(folder / "absent").status, run_status::failed);
}

TEST(Metrics, NamesTheLineThatIsNotARecord) {
  temporary_folder const folder;
  auto const one = concluded(folder.write("m", "{\"event\":\"start\"}\n\n{\"event\":\n"));
  EXPECT_EQ(one.status, run_status::failed);
  EXPECT_NE(one.reason.find("m:3:"), one.reason.npos) << one.reason;
}

TEST(Metrics, LeavesOutALastLineThatWasNotFinished) {
  temporary_folder const folder;
  std::string unfinished{whole_run};
  unfinished.append("{\"event\":\"ev");
  auto const one = concluded(folder.write("m", unfinished));
  EXPECT_EQ(one.status, run_status::ok);
}

TEST(Curves, PutMeanAndRangeOverTheSeedsAtEachEval) {
  temporary_folder const folder;
  std::string other{whole_run};
  other.replace(other.find("\"value\":0.75"), 12, "\"value\":0.25");
  std::vector const runs{metrics::read(folder.write("a", whole_run), "accuracy"),
                         metrics::read(folder.write("b", other), "accuracy")};
  auto const curve = eval_curve(runs);
  ASSERT_EQ(curve.size(), 2u);
  EXPECT_EQ(curve[0].step, 2);
  EXPECT_EQ(curve[0].mean, 0.5);
  EXPECT_EQ(curve[0].wire_bytes, 40);  // 10 + 30
  EXPECT_EQ(curve[0].seconds, 0.75);
  EXPECT_EQ(curve[1].mean, 0.5);  // of 0.75 and 0.25
  EXPECT_EQ(curve[1].low, 0.25);
  EXPECT_EQ(curve[1].high, 0.75);
  EXPECT_EQ(curve[1].seeds, 2u);
  EXPECT_EQ(curve[1].wire_bytes, 70);
}

TEST(Curves, AverageTheLossInBins) {
  temporary_folder const folder;
  std::vector const runs{metrics::read(folder.write("a", whole_run), "accuracy")};
  auto const fine = loss_curve(runs, 100);
  ASSERT_EQ(fine.size(), 3u);
  EXPECT_EQ(fine[0].mean, 2.0);
  // Steps 1..3 in two bins of two: {1}, {2, 3}.
  auto const coarse = loss_curve(runs, 2);
  ASSERT_EQ(coarse.size(), 2u);
  EXPECT_EQ(coarse[1].step, 3);
  EXPECT_EQ(coarse[1].mean, 0.75);
  EXPECT_EQ(coarse[1].seconds, 1.0);
}

TEST(Curves, LeaveTheFirstStepOutOfTheMeanStep) {
  temporary_folder const folder;
  std::vector const runs{metrics::read(folder.write("a", whole_run), "accuracy")};
  auto const cost = mean_step(runs);
  EXPECT_EQ(cost.wire_bytes, 30);
  EXPECT_NEAR(*cost.compute_seconds, 0.2, 1e-15);  // 0.25 − 0.05
  EXPECT_NEAR(*cost.exposed_seconds, 0.05, 1e-15);
}

TEST(Curves, AreEmptyForRunsThatOnlyWroteEvals) {
  temporary_folder const folder;
  std::vector const runs{
      metrics::read(folder.write("a", R"({"event":"eval","metric":"accuracy","value":1})"), "accuracy")};
  EXPECT_TRUE(loss_curve(runs).empty());
  EXPECT_FALSE(mean_step(runs).wire_bytes);
  auto const curve = eval_curve(runs);
  ASSERT_EQ(curve.size(), 1u);
  EXPECT_EQ(curve[0].step, 1);
  EXPECT_FALSE(curve[0].wire_bytes);
}

TEST(FillIn, PutsValuesIntoArgumentsAsTheyAre) {
  std::vector<std::string> const command{"t", "--m={spec}", "{seed}{seed}", "{metrics}", "{other}"};
  auto const filled = fill_in(command, false, "q(b=4) 'x'", 7, "/a b/m");
  EXPECT_EQ(filled, (std::vector<std::string>{"t", "--m=q(b=4) 'x'", "77", "/a b/m", "{other}"}));
}

TEST(FillIn, QuotesValuesForTheShell) {
  std::vector<std::string> const command{"t {spec} {seed}", "> {metrics}"};
  auto const filled = fill_in(command, true, "q(b=4)'", 7, "/a b/m");
  EXPECT_EQ(filled, (std::vector<std::string>{"sh", "-c", R"(t 'q(b=4)'\''' 7 > '/a b/m')"}));
}

TEST(RunName, IsReadableAndDifferentForDifferentArms) {
  EXPECT_EQ(run_name("onebit+ef", 3), "onebit+ef-seed3");
  auto const a = run_name("a/b", 1);
  auto const b = run_name("a(b", 1);
  EXPECT_NE(a, b);
  EXPECT_EQ(a.find('/'), a.npos);
  EXPECT_EQ(run_name("../../etc", 1).find('/'), std::string::npos);
  EXPECT_LT(run_name(std::string(500, 'x'), 1).size(), 200u);
}

TEST(LastLines, GivesTheEndOfALogAsCleanText) {
  temporary_folder const folder;
  EXPECT_EQ(last_lines(folder.write("l", "a\nb\nc\n\n"), 2), "b\nc");
  EXPECT_EQ(last_lines(folder.write("l", "a"), 2), "a");
  EXPECT_EQ(last_lines(folder.write("l", "\x1b[31mred\xff\n"), 2), "[31mred\xef\xbf\xbd");
  EXPECT_EQ(last_lines(folder / "absent", 2), "");
}

}  // namespace
}  // namespace gradwire::program
