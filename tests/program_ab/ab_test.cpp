#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <thread>
#include <vector>

#include <gtest/gtest.h>

#include "bench/program/common/context.hpp"
#include "bench/program/common/json_lines.hpp"
#include "tests/program_ab/folder.hpp"

// The subcommand as a user has it, with small shell scripts as the program under test.
namespace gradwire::program {
namespace {

// accuracy = 0.9 + a bit of the seed; arms: "bad" is 0.2 below, "crash" exits with 3, "nan" diverges.
constexpr std::string_view script = R"(
echo "hello from $1"
case $1 in
  crash) echo "no such file" >&2; exit 3;;
  nan) value=NaN;;
  bad) value=0.70$2;;
  *) value=0.90$2;;
esac
echo "$1 $2" >> "$4"
echo '{"event":"eval","step":1,"metric":"accuracy","value":'$value'}' > "$3"
)";

class Ab : public testing::Test {
 protected:
  // Runs in a process of its own, as the real program does; output goes to the file "out".
  pid_t start(std::vector<std::string> const& options, std::vector<std::string> const& command) {
    std::vector<std::string> words{"gradwire", "ab", "--out", (folder_ / "ab").string()};
    words.insert(words.end(), options.begin(), options.end());
    if (!command.empty()) words.push_back("--");
    words.insert(words.end(), command.begin(), command.end());
    std::vector<char const*> argv;
    for (std::string const& word : words) argv.push_back(word.c_str());
    pid_t const child = fork();
    if (child == 0) {
      std::string const out = (folder_ / "out").string();
      if (std::freopen(out.c_str(), "w", stdout) == nullptr || dup2(STDOUT_FILENO, STDERR_FILENO) < 0) _exit(99);
      int const status = run_program(static_cast<int>(argv.size()), argv.data());
      std::fflush(nullptr);
      _exit(status);
    }
    return child;
  }
  static int end_of(pid_t child) {
    int status = 0;
    waitpid(child, &status, 0);
    return WIFEXITED(status) ? WEXITSTATUS(status) : -WTERMSIG(status);
  }
  int ab(std::vector<std::string> const& options) {
    return end_of(start(
        options, {"sh", (folder_ / "script").string(), "{spec}", "{seed}", "{metrics}", (folder_ / "trace").string()}));
  }
  std::vector<record> records(std::string_view event) const {
    std::vector<record> found;
    for (record const& line : read_json_lines(folder_ / "ab/results.jsonl")) {
      if (line.at("event") == event) found.push_back(line);
    }
    return found;
  }
  std::string verdict_of(std::string_view arm) const {
    for (record const& line : records("verdict")) {
      if (line.at("arm") == arm) return line.at("verdict").get<std::string>();
    }
    return "";
  }
  std::string out() const { return folder_.read("out"); }
  bool said(std::string_view text) const { return out().find(text) != std::string::npos; }

  temporary_folder folder_;
  std::filesystem::path script_ = folder_.write("script", script);
};

TEST_F(Ab, JudgesArmsAndWritesResultsAndReport) {
  EXPECT_EQ(ab({"--arm", "same", "--arm", "bad", "--seeds", "4"}), 1) << out();
  EXPECT_EQ(records("run").size(), 12u);  // the baseline `none` is run as well
  EXPECT_EQ(verdict_of("same"), "equivalent");
  EXPECT_EQ(verdict_of("bad"), "worse");
  auto const run = records("run").front();
  for (char const* const key : {"arm", "seed", "status", "value", "steps", "seconds", "raw_bytes", "wire_bytes"}) {
    EXPECT_TRUE(run.contains(key)) << key;
  }
  EXPECT_TRUE(said("same is equivalent; bad is worse")) << out();
  EXPECT_TRUE(std::filesystem::exists(folder_ / "ab/report.html"));
  EXPECT_EQ(folder_.read("ab/logs/same-seed1.log"), "hello from same\n");
}

TEST_F(Ab, ExitsWithZeroWhenNoArmIsWorse) { EXPECT_EQ(ab({"--arm", "same", "--seeds", "2"}), 0) << out(); }

TEST_F(Ab, CountsFailedAndDivergedRunsAndShowsTheirLog) {
  EXPECT_EQ(ab({"--arm", "crash", "--arm", "nan", "--seeds", "2"}), 1);
  int failed = 0;
  int diverged = 0;
  for (record const& line : records("run")) {
    failed += line.at("status") == "failed" ? 1 : 0;
    diverged += line.at("status") == "diverged" ? 1 : 0;
  }
  EXPECT_EQ(failed, 2);
  EXPECT_EQ(diverged, 2);
  EXPECT_EQ(verdict_of("crash"), "inconclusive");
  EXPECT_TRUE(said("crash  inconclusive")) << out();
  EXPECT_TRUE(said("2 of 2 runs failed or diverged")) << out();
  EXPECT_TRUE(said("exit status 3")) << out();
  EXPECT_TRUE(said("no such file")) << out();
  EXPECT_TRUE(said("logs/crash-seed1.log")) << out();
}

TEST_F(Ab, RunsSeveralAtATimeWithTheSameResult) {
  EXPECT_EQ(ab({"--arm", "same", "--arm", "bad", "--seeds", "4", "--jobs", "3"}), 1) << out();
  EXPECT_EQ(records("run").size(), 12u);
  EXPECT_EQ(verdict_of("same"), "equivalent");
}

TEST_F(Ab, ResumesWithoutRunningAgainWhatIsFinished) {
  EXPECT_EQ(ab({"--arm", "same", "--seeds", "2"}), 0) << out();
  EXPECT_EQ(ab({"--arm", "same", "--seeds", "2"}), 2);
  EXPECT_TRUE(said("--resume")) << out();
  EXPECT_EQ(ab({"--arm", "same", "--arm", "more", "--seeds", "3", "--resume"}), 0) << out();
  EXPECT_TRUE(said("4 of 9 runs were finished before")) << out();
  std::string const trace = folder_.read("trace");
  EXPECT_EQ(std::count(trace.begin(), trace.end(), '\n'), 9) << trace;  // each once
  EXPECT_EQ(records("verdict").size(), 2u);
  EXPECT_EQ(ab({"--arm", "same", "--metric", "recall", "--resume"}), 2);
  EXPECT_TRUE(said("another experiment")) << out();
}

TEST_F(Ab, KeepsFinishedRunsAndStopsTheOthersOnInterrupt) {
  // The first run ends at once; the second one leaves a process that would outlive it, and sleeps.
  folder_.write("script", R"(
if [ "$1" = none ]; then echo '{"event":"eval","metric":"accuracy","value":1}' > "$3"; exit 0; fi
sleep 300 & echo $! > "$4.part"; mv "$4.part" "$4"; sleep 300
)");
  pid_t const child = start({"--arm", "slow", "--seeds", "3"},
                            {"sh", script_.string(), "{spec}", "{seed}", "{metrics}", (folder_ / "pid").string()});
  for (int i = 0; i < 2000 && !std::filesystem::exists(folder_ / "pid"); ++i) {
    std::this_thread::sleep_for(std::chrono::milliseconds{5});
  }
  kill(child, SIGINT);
  EXPECT_EQ(end_of(child), 130) << out();
  EXPECT_TRUE(said("1 of 6 runs are finished")) << out();
  EXPECT_EQ(records("run").size(), 1u);
  pid_t const left = std::stoi(folder_.read("pid"));
  for (int i = 0; i < 2000 && kill(left, 0) == 0; ++i) std::this_thread::sleep_for(std::chrono::milliseconds{5});
  // It may wait for init as a zombie, but it does not run.
  std::ifstream stat{"/proc/" + std::to_string(left) + "/stat"};
  std::string number, name, state = "gone";
  stat >> number >> name >> state;
  EXPECT_TRUE(state == "gone" || state == "Z" || state == "X") << state;
}

TEST_F(Ab, StopsARunThatTakesTooLong) {
  folder_.write("script", "sleep 300\n");
  EXPECT_EQ(ab({"--arm", "slow", "--seeds", "1", "--run-timeout", "0.2", "--jobs", "2"}), 1) << out();
  EXPECT_TRUE(said("stopped after 0.2 seconds")) << out();
}

TEST_F(Ab, RunsAShellCommandWhenAsked) {
  std::string const command =
      R"(echo '{"event":"eval","metric":"accuracy","value":1}' > {metrics}; echo {spec} {seed} | cat >&2)";
  EXPECT_EQ(end_of(start({"--shell", "--arm", "odd (name)", "--seeds", "2"}, {command})), 0) << out();
  EXPECT_EQ(records("run").back().at("command").at(0), "sh");
  std::string const log = "ab/" + records("run").back().at("log").get<std::string>();
  EXPECT_EQ(folder_.read(log), "odd (name) 2\n");
}

TEST_F(Ab, WritesTheSameRecordsToTheJsonOption) {
  EXPECT_EQ(ab({"--arm", "same", "--seeds", "2", "--quiet", "--json", (folder_ / "json").string()}), 0);
  EXPECT_EQ(out(), "");
  auto const written = read_json_lines(folder_ / "json");
  EXPECT_EQ(written.size(), 6u);  // the experiment, four runs, one verdict
  EXPECT_EQ(written, read_json_lines(folder_ / "ab/results.jsonl"));
}

TEST_F(Ab, RefusesWhatCannotBeAnExperiment) {
  EXPECT_EQ(ab({"--arm", "same", "--margin", "0"}), 2);
  EXPECT_EQ(ab({"--arm", "same", "--arm", "same"}), 2);
  EXPECT_EQ(ab({"--arm", "same", "--seed-list", "1,2,1"}), 2);
  EXPECT_EQ(ab({"--arm", "none", "--baseline", "none"}), 2);
  EXPECT_TRUE(said("--arm none is the baseline")) << out();
  EXPECT_EQ(ab({"--arm", "same", "--seeds", "0"}), 2);
  EXPECT_EQ(ab({"--arm", "same", "--jobs", "0"}), 2);
  EXPECT_EQ(ab({"--arm", "same", "--sedes", "3"}), 2);
  EXPECT_TRUE(said("--sedes")) << out();
  EXPECT_EQ(ab({}), 2);
  EXPECT_EQ(end_of(start({"--arm", "same"}, {"true", "{spec}", "{seed}"})), 2);
  EXPECT_TRUE(said("{metrics}")) << out();
  EXPECT_EQ(end_of(start({"--arm", "same"}, {"/no/such/program", "{spec}", "{seed}", "{metrics}"})), 2);
  EXPECT_TRUE(said("/no/such/program")) << out();
  EXPECT_FALSE(std::filesystem::exists(folder_ / "ab/report.html"));
}

TEST_F(Ab, RefusesSpecsAndOptionsThatTheBuiltInTrainingCannotHave) {
  EXPECT_EQ(end_of(start({"--arm", "twobit"}, {})), 2);
  EXPECT_TRUE(said("twobit")) << out();
  EXPECT_EQ(end_of(start({"--arm", "bf16", "--seed", "3"}, {})), 2);
  EXPECT_TRUE(said("--seed is filled in by ab")) << out();
}

TEST_F(Ab, StopsAfterTheFirstRunWhenItWritesNoRecordOfTheMetric) {
  EXPECT_EQ(ab({"--arm", "same", "--metric", "recall", "--seeds", "3"}), 2);
  EXPECT_TRUE(
      said("--metric recall: the first run ended well, but it wrote no eval record of 'recall', only of "
           "accuracy"))
      << out();
  std::string const trace = folder_.read("trace");
  EXPECT_EQ(std::count(trace.begin(), trace.end(), '\n'), 1) << trace;
  EXPECT_TRUE(records("run").empty());
  EXPECT_EQ(ab({"--arm", "same", "--seeds", "2"}), 0) << out();  // nothing stands in the way of another try
}

TEST_F(Ab, PrintsALineForEveryFinishedRunWhereThereIsNoTerminal) {
  EXPECT_EQ(ab({"--arm", "same", "--seeds", "2"}), 0) << out();
  EXPECT_TRUE(said("1 of 4: none, seed 1: accuracy 0.9010, ")) << out();
  EXPECT_TRUE(said("4 of 4: same, seed 2: accuracy 0.9020, ")) << out();
}

TEST_F(Ab, SaysThatADirectoryCannotBeWrittenTo) {
  folder_.write("ab", "a file, no directory");
  EXPECT_EQ(ab({"--arm", "same"}), 2);
  EXPECT_TRUE(said("--out")) << out();
}

TEST_F(Ab, RefusesADirectoryInWhichAnotherRunIsAtWork) {
  folder_.write("script", "touch \"$4\"; sleep 300\n");
  pid_t const first = start({"--arm", "slow"},
                            {"sh", script_.string(), "{spec}", "{seed}", "{metrics}", (folder_ / "started").string()});
  for (int i = 0; i < 2000 && !std::filesystem::exists(folder_ / "started"); ++i) {
    std::this_thread::sleep_for(std::chrono::milliseconds{5});
  }
  EXPECT_EQ(ab({"--arm", "slow", "--resume"}), 2);
  EXPECT_TRUE(said("in use by process " + std::to_string(first))) << out();
  kill(first, SIGTERM);
  EXPECT_EQ(end_of(first), 130);
}

}  // namespace
}  // namespace gradwire::program
