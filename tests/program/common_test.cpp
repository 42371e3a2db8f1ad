#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmath>
#include <fstream>
#include <limits>

#include <gtest/gtest.h>

#include "program/common/console.hpp"
#include "program/common/context.hpp"
#include "program/common/interrupt.hpp"
#include "program/common/json_lines.hpp"
#include "program/common/output_directory.hpp"
#include "program/common/process.hpp"
#include "program/doctor/checks.hpp"
#include "tests/program/run.hpp"

namespace gradwire::program {
namespace {

using testing::temporary_folder;
using namespace std::chrono_literals;

// The text of the program_error that `body` throws; empty when it throws none.
template <class Body>
std::string refusal(Body const& body) {
  try {
    body();
  } catch (program_error const& failure) {
    return failure.what();
  }
  return "";
}

TEST(JsonLines, WritesOneRecordALineAndReadsThemBack) {
  temporary_folder const folder;
  {
    json_lines file{folder / "a.jsonl"};
    file.write({{"event", "step"}, {"loss", 0.5}});
    file.write({{"event", "end"}, {"loss", std::numeric_limits<double>::quiet_NaN()}});
  }
  EXPECT_EQ(read_file(folder / "a.jsonl"), "{\"event\":\"step\",\"loss\":0.5}\n{\"event\":\"end\",\"loss\":null}\n");
  EXPECT_EQ(read_json_lines(folder / "a.jsonl").size(), 2u);
}

TEST(JsonLines, LeavesOutALastLineThatWasNotFinished) {
  temporary_folder const folder;
  std::ofstream{folder / "a"} << "{\"a\":1}\n{\"a\":";
  EXPECT_EQ(read_json_lines(folder / "a").size(), 1u);
}

TEST(JsonLines, NamesFileAndLineOfARecordThatIsNone) {
  temporary_folder const folder;
  std::ofstream{folder / "a"} << "{\"a\":1}\nb\n";
  EXPECT_NE(refusal([&] { static_cast<void>(read_json_lines(folder / "a")); }).find("a:2: not a JSON record"),
            std::string::npos);
}

TEST(JsonLines, SaysThatTheDiskIsFull) {
  json_lines file{"/dev/full"};
  EXPECT_EQ(refusal([&] { file.write({{"a", 1}}); }), "cannot write to '/dev/full': No space left on device");
}

TEST(JsonLines, SaysWhyAPathCannotBeOpened) {
  EXPECT_EQ(refusal([] { json_lines file{"/no/such/folder/a"}; }),
            "cannot open '/no/such/folder/a': No such file or directory");
}

TEST(WriteFile, ReplacesTheWholeFileAndLeavesNothingElse) {
  temporary_folder const folder;
  write_file(folder / "a", "first, longer");
  write_file(folder / "a", "second");
  EXPECT_EQ(read_file(folder / "a"), "second");
  EXPECT_EQ(std::distance(std::filesystem::directory_iterator{folder / ""}, {}), 1);
}

TEST(OutputDirectory, KeepsASecondRunOutAndNamesTheFirst) {
  temporary_folder const folder;
  output_directory const first{folder / "out/deep"};
  std::string const text = refusal([&] { output_directory second{folder / "out/deep"}; });
  EXPECT_NE(text.find("in use by process " + std::to_string(getpid())), std::string::npos) << text;
}

TEST(OutputDirectory, IgnoresTheLockOfAProcessThatIsGone) {
  temporary_folder const folder;
  std::filesystem::create_directory(folder / "out");
  std::ofstream{folder / "out/.gradwire.lock"} << "1\n";
  EXPECT_EQ(refusal([&] { output_directory again{folder / "out"}; }), "");
  EXPECT_FALSE(std::filesystem::exists(folder / "out/.gradwire.lock"));
}

TEST(OutputDirectory, SaysWhyItCannotBeMade) {
  temporary_folder const folder;
  std::ofstream{folder / "file"} << "x";
  std::string const text = refusal([&] { output_directory out{folder / "file/out"}; });
  EXPECT_NE(text.find("Not a directory"), std::string::npos) << text;
  std::string const other = refusal([&] { output_directory out{folder / "file/out", "--checkpoint"}; });
  EXPECT_NE(other.find("name another with --checkpoint"), std::string::npos) << other;
}

TEST(Process, ReportsExitStatusAndSignal) {
  signal_guard const guard;
  std::vector<process> running;
  running.emplace_back(process_options{.arguments = {"sh", "-c", "exit 7"}});
  running.emplace_back(process_options{.arguments = {"sh", "-c", "kill -9 $$"}});
  while (!running[0].end() || !running[1].end()) ASSERT_TRUE(wait_any(running, 20s));
  EXPECT_EQ(running[0].end()->text(), "exit status 7");
  EXPECT_EQ(running[1].end()->text(), "signal 9 (Killed)");
}

TEST(Process, SaysWhyAProgramCannotBeRun) {
  EXPECT_EQ(refusal([] { process missing{{.arguments = {"/no/such/program"}}}; }),
            "cannot run '/no/such/program': No such file or directory");
}

TEST(Process, PassesVariablesAndOutput) {
  signal_guard const guard;
  temporary_folder const folder;
  std::vector<process> running;
  running.emplace_back(process_options{.arguments = {"sh", "-c", "echo $GRADWIRE_TEST; echo bad >&2"},
                                       .environment = {{"GRADWIRE_TEST", "a b"}},
                                       .output = folder / "out",
                                       .errors = folder / "err"});
  ASSERT_TRUE(wait_any(running, 20s));
  EXPECT_EQ(read_file(folder / "out"), "a b\n");
  EXPECT_EQ(read_file(folder / "err"), "bad\n");
}

TEST(Process, TakesItsChildrenAlongWhenItIsStopped) {
  signal_guard const guard;
  temporary_folder const folder;
  std::vector<process> running;
  running.emplace_back(
      process_options{.arguments = {"sh", "-c", "trap '' INT; sleep 60 & echo $! ; wait"}, .output = folder / "out"});
  std::string id;
  for (int i = 0; i < 500 && id.find('\n') == std::string::npos; ++i) {
    usleep(10'000);
    id = read_file(folder / "out");
  }
  stop_all(running, 50ms);
  EXPECT_EQ(running[0].end()->text(), "signal 9 (Killed)");
  // The orphan is killed with its group; whoever adopts it reaps it a moment later.
  std::string state = "R";
  for (int i = 0; i < 500 && !state.empty() && state != "Z"; ++i) {
    std::ifstream stat{"/proc/" + id.substr(0, id.find('\n')) + "/stat"};
    std::string skipped;
    state.clear();
    stat >> skipped >> skipped >> state;
    usleep(10'000);
  }
  EXPECT_TRUE(state.empty() || state == "Z") << state;
}

TEST(Console, ReadsSizesInPowersOf1024) {
  EXPECT_EQ(parse_bytes("8", "--min-bytes"), 8u);
  EXPECT_EQ(parse_bytes("64K", "--min-bytes"), 65536u);
  EXPECT_EQ(parse_bytes("1.5M", "--min-bytes"), 1572864u);
  EXPECT_EQ(parse_bytes("2GiB", "--min-bytes"), std::size_t{2} << 30);
  for (char const* const bad : {"", "K", "-1", "12 apples", "nan"}) {
    EXPECT_NE(refusal([&] { static_cast<void>(parse_bytes(bad, "--min-bytes")); }).find("--min-bytes"),
              std::string::npos)
        << bad;
  }
}

TEST(Console, AlignsColumnsByCharactersNotBytes) {
  table t{{{"name", align::left}, {"time"}}};
  t.add({"a", "1 µs"});
  t.add({"long name", "12.5 ms"});
  EXPECT_EQ(t.text(),
            "name          time\n"
            "a             1 µs\n"
            "long name  12.5 ms\n");
}

TEST(Program, AnswersAQuestionThatItCannotParseInOneLineWithStatus2) {
  for (auto const& [line, part] :
       std::vector<std::pair<std::string, std::string>>{{"frobnicate", "unknown subcommand 'frobnicate': use one of"},
                                                        {"train --frobnicate", "--frobnicate"},
                                                        {"train --ranks 0", "--ranks"},
                                                        {"train --ranks many", "--ranks"}}) {
    auto const result = testing::run(testing::words(line));
    EXPECT_EQ(result.status, 2) << line;
    EXPECT_NE(result.err.find(part), std::string::npos) << result.err;
    EXPECT_EQ(std::count(result.err.begin(), result.err.end(), '\n'), 1) << result.err;
  }
}

TEST(Program, RefusesNumbersThatAreNoneOrOutOfRangeAndSaysWhatIsAllowed) {
  for (std::string const option :
       {"train --seed", "train --steps", "train --batch", "train --accumulate", "train --ranks", "train --eval-every",
        "sweep --seed", "sweep --factor", "sweep --iters", "sweep --warmup", "sweep --ranks", "fidelity --seed",
        "fidelity --steps", "fidelity --repeats", "ab --seeds", "ab --seed-list", "ab --jobs", "doctor --ranks"}) {
    for (std::string const value : {"-1", "99999999999999999999", "", "1.5", "0x10", "2 "}) {
      auto arguments = testing::words(option);
      arguments.push_back(value);
      auto const result = testing::run(arguments);
      EXPECT_EQ(result.status, 2) << option << " '" << value << "'";
      EXPECT_NE(result.err.find("'" + value + "' is not a "), std::string::npos) << option << result.err;
      EXPECT_NE(result.err.find(" from "), std::string::npos) << result.err;
    }
  }
  for (std::string const option : {"train --timeout", "sweep --timeout", "doctor --timeout", "ab --run-timeout"}) {
    for (std::string const value : {"nan", "inf", "-1", "0", "1e99", "", "5s"}) {
      auto arguments = testing::words(option);
      arguments.push_back(value);
      auto const result = testing::run(arguments);
      EXPECT_EQ(result.status, 2) << option << " '" << value << "'";
      EXPECT_NE(result.err.find("'" + value + "' is not a number of seconds"), std::string::npos) << result.err;
    }
  }
}

TEST(Program, TakesLeadingZerosAsDecimal) {
  auto const result = testing::run(testing::words("train --transport inproc --ranks 1 --steps 010 --quiet --json -"));
  ASSERT_EQ(result.status, 0) << result.err;
  EXPECT_EQ(testing::records(result.out).front()["steps"], 10);
}

TEST(Program, EscapesControlCharactersAndShortensWhatItEchoes) {
  EXPECT_EQ(one_line("a\nb\x1b[31m\x7f µ"), "a\\nb\\x1b[31m\\x7f µ");
  std::string const shortened = one_line("begin" + std::string(100'000, 'x') + "end");
  EXPECT_LT(shortened.size(), 2'000u);
  EXPECT_EQ(shortened.substr(0, 6), "beginx");
  EXPECT_EQ(shortened.substr(shortened.size() - 4), "xend");
  EXPECT_NE(shortened.find("bytes left out"), std::string::npos);
  // Two bytes a character: none is cut in half.
  std::string many;
  for (int i = 0; i < 5000; ++i) many += "µ";
  EXPECT_NO_THROW(static_cast<void>(record{one_line(many)}.dump()));
  EXPECT_NO_THROW(static_cast<void>(record{one_line("x" + many)}.dump()));
}

TEST(Program, TakesVerboseBeforeAndAfterTheSubcommand) {
  for (std::string const line : {"--verbose codecs onebits", "codecs --verbose onebits", "codecs onebits --verbose"}) {
    auto const result = testing::run(testing::words(line));
    EXPECT_EQ(result.status, 2) << line;
    EXPECT_NE(result.err.find(" thrown at "), std::string::npos) << line << result.err;
  }
  auto const usual = testing::run({"codecs", "onebits"});
  EXPECT_EQ(usual.err.find(" thrown at "), std::string::npos) << usual.err;
}

TEST(Program, PrintsHelpAndVersionOnStandardOutput) {
  auto const help = testing::run({"train", "--help"});
  EXPECT_EQ(help.status, 0);
  EXPECT_NE(help.out.find("--spec"), std::string::npos);
  EXPECT_NE(help.out.find("  digits                4      240       16"), std::string::npos)
      << help.out;  // its defaults
  for (char const* const name : {"train", "ab", "sweep", "fidelity", "codecs", "doctor"}) {
    auto const one = testing::run({name, "--help"});
    EXPECT_EQ(one.out.find("\n\n\n"), std::string::npos) << one.out;
    EXPECT_NE(one.out.find("write JSON lines: "), std::string::npos) << one.out;
    EXPECT_NE(one.out.find("--verbose"), std::string::npos) << one.out;
  }
  auto const version = testing::run({"--version"});
  EXPECT_EQ(version.status, 0);
  EXPECT_EQ(version.out.rfind("gradwire ", 0), 0u);
}

TEST(Doctor, SaysThatALocalRankIsOutOfRange) {
  struct {
    char const* rank;
    char const* size_name;
    char const* size;
    char const* said;
  } const cases[]{{"2", "LOCAL_WORLD_SIZE", "2", "LOCAL_RANK=2 is out of range: LOCAL_WORLD_SIZE=2"},
                  {"-1", "LOCAL_WORLD_SIZE", "2", "LOCAL_RANK=-1 is out of range"},
                  {"8", "WORLD_SIZE", "4", "LOCAL_RANK=8 is out of range: WORLD_SIZE=4"},
                  {"1", "LOCAL_WORLD_SIZE", "2", "CPU ranks need no device of their own"}};
  for (auto const& one : cases) {
    setenv("LOCAL_RANK", one.rank, 1);
    setenv(one.size_name, one.size, 1);
    finding const found = check_local_rank();
    unsetenv("LOCAL_RANK");
    unsetenv(one.size_name);
    EXPECT_EQ(found.text.find(one.said), 0u) << found.text;
    EXPECT_EQ(found.mend.empty(), found.how == severity::ok) << found.text;
  }
}

TEST(Codecs, ListsEveryMethodWithItsKeys) {
  auto const result = testing::run({"codecs", "--json", "-", "--quiet"});
  ASSERT_EQ(result.status, 0) << result.err;
  bool seen = false;
  for (record const& one : testing::records(result.out)) {
    EXPECT_EQ(one["event"], "codec");
    for (char const* const key : {"name", "wire_id", "version", "keys", "bits_per_element", "traits", "devices"}) {
      EXPECT_TRUE(one.contains(key)) << key;
    }
    if (one["name"] != "topk") continue;
    seen = true;
    EXPECT_FALSE(one["keys"].empty());
  }
  EXPECT_TRUE(seen);
}

TEST(Codecs, WritesCountsAsWholeNumbersAndTheTypeOfEveryKey) {
  for (record const& one : testing::records(testing::run({"codecs", "--json", "-", "--quiet"}).out)) {
    for (record const& key : one["keys"]) {
      if (key["type"] != "integer") continue;
      EXPECT_TRUE(key["min"].is_number_integer() && key["max"].is_number_integer()) << key.dump();
    }
  }
  auto const spec = testing::records(testing::run({"codecs", "topk(k=3)", "--json", "-", "--quiet"}).out).at(0);
  for (record const& one : spec["reductions"]) EXPECT_TRUE(one["dense_bytes"].is_number_integer()) << one.dump();
  // Dense on four ranks: 2·3/4 of 4 MiB.
  EXPECT_EQ(spec["reductions"][1]["dense_bytes"], 6 * (1 << 20));
  auto const table = testing::run({"codecs"}).out;
  EXPECT_NE(table.find("key             type"), std::string::npos) << table;
}

TEST(Codecs, ExplainsHowASpecIsUnderstood) {
  auto const result = testing::run({"codecs", "bf16+ef", "--json", "-", "--quiet"});
  ASSERT_EQ(result.status, 0) << result.err;
  auto const all = testing::records(result.out);
  ASSERT_EQ(all.size(), 1u);
  EXPECT_EQ(all[0]["method"], "bf16");
  EXPECT_EQ(all[0]["error_feedback"], true);
  EXPECT_EQ(all[0]["bits_per_element"], 16.0);
  // two_shot sends 2(n−1)/n of the payload: 1.5 × 2 MiB on four ranks.
  EXPECT_EQ(all[0]["reductions"][1]["ranks"], 4);
  EXPECT_EQ(all[0]["reductions"][1]["wire_bytes"], 3 * (1 << 20));
  EXPECT_EQ(testing::run({"codecs", "twobit"}).status, 2);
}

}  // namespace
}  // namespace gradwire::program
