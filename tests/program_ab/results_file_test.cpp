#include "bench/program/ab/results_file.hpp"

#include <gtest/gtest.h>

#include "bench/program/common/context.hpp"
#include "tests/program_ab/folder.hpp"

namespace gradwire::program {
namespace {

experiment sample() { return {{"train", "{spec}"}, false, "accuracy", "last"}; }

run finished(std::string arm, run_status status) {
  run one;
  one.arm = std::move(arm);
  one.seed = 18'446'744'073'709'551'615u;  // seeds are 64 bits
  one.status = status;
  if (status == run_status::ok) one.value = 0.5;
  one.wire_bytes = 12;
  one.log = "logs/x";
  one.metrics_file = "metrics/x";
  one.command = {"train", one.arm};
  return one;
}

std::string refusal(std::filesystem::path const& path, experiment const& what, bool resume) {
  try {
    results_file const file{path, what, resume};
  } catch (program_error const& failure) {
    EXPECT_EQ(failure.status(), exit_code::usage);
    return failure.what();
  }
  return "";
}

TEST(ResultsFile, KeepsWhatFinishedAndForgetsFailuresAndVerdicts) {
  temporary_folder const folder;
  {
    results_file file{folder / "r", sample(), false};
    file.add(finished("a", run_status::ok).to_record());
    file.add(finished("b", run_status::failed).to_record());
    file.add(finished("c", run_status::diverged).to_record());
    file.add({{"event", "verdict"}, {"arm", "a"}});
  }
  results_file const file{folder / "r", sample(), true};
  ASSERT_EQ(file.kept().size(), 2u);
  EXPECT_EQ(file.kept()[0].arm, "a");
  EXPECT_EQ(file.kept()[0].seed, 18'446'744'073'709'551'615u);
  EXPECT_EQ(file.kept()[0].value, 0.5);
  EXPECT_EQ(file.kept()[0].wire_bytes, 12);
  EXPECT_FALSE(file.kept()[0].raw_bytes);
  EXPECT_EQ(file.kept()[1].status, run_status::diverged);
  EXPECT_EQ(folder.read("r").find("verdict"), std::string::npos);
}

TEST(ResultsFile, IsWholeAfterEveryRun) {
  temporary_folder const folder;
  results_file file{folder / "r", sample(), false};
  file.add(finished("a", run_status::ok).to_record());
  EXPECT_EQ(read_json_lines(folder / "r").size(), 2u);
}

TEST(ResultsFile, SurvivesATornLastLine) {
  temporary_folder const folder;
  {
    results_file file{folder / "r", sample(), false};
    file.add(finished("a", run_status::ok).to_record());
  }
  folder.write("r", folder.read("r") + "{\"event\":\"run\",\"arm\":");
  EXPECT_EQ((results_file{folder / "r", sample(), true}.kept().size()), 1u);
}

TEST(ResultsFile, RefusesToOverwriteWithoutResume) {
  temporary_folder const folder;
  { results_file{folder / "r", sample(), false}.add(finished("a", run_status::failed).to_record()); }
  EXPECT_NE(refusal(folder / "r", sample(), false).find("--resume"), std::string::npos);
}

TEST(ResultsFile, RefusesAnotherExperimentAndNamesWhatDiffers) {
  temporary_folder const folder;
  { results_file{folder / "r", sample(), false}.add(finished("a", run_status::ok).to_record()); }
  auto other = sample();
  other.metric = "loss";
  EXPECT_NE(refusal(folder / "r", other, true).find("its metric is accuracy, not loss"), std::string::npos);
  other = sample();
  other.command = {"train", "--lr", "2", "{spec}"};
  EXPECT_NE(refusal(folder / "r", other, true).find("its command is train '{spec}', not train --lr 2"),
            std::string::npos);
  EXPECT_EQ(refusal(folder / "r", sample(), true), "");
}

TEST(ResultsFile, ReplacesOneWithoutAnyRun) {
  temporary_folder const folder;
  { results_file const file{folder / "r", sample(), false}; }
  auto other = sample();
  other.command = {"corrected", "{spec}"};
  EXPECT_EQ(refusal(folder / "r", other, false), "");
}

TEST(ResultsFile, RefusesWhatItDidNotWrite) {
  temporary_folder const folder;
  EXPECT_NE(refusal(folder.write("r", "{\"event\":\"case\"}\n"), sample(), true), "");
  EXPECT_NE(refusal(folder.write("r", "{\"event\":\"run\"}\n"), sample(), true), "");
  EXPECT_NE(refusal(folder.write("r", "precious notes\n"), sample(), true).find("r:1:"), std::string::npos);
  EXPECT_EQ(folder.read("r"), "precious notes\n");
}

}  // namespace
}  // namespace gradwire::program
