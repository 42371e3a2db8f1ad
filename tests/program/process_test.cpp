#include <dirent.h>
#include <signal.h>
#include <unistd.h>

#include <fstream>
#include <optional>

#include <gtest/gtest.h>

#include "program/common/interrupt.hpp"
#include "program/common/process.hpp"
#include "tests/program/run.hpp"

namespace gradwire::program {
namespace {

using testing::records;
using testing::temporary_folder;
using testing::words;
using namespace std::chrono_literals;

// The built program as its users start it. Waits are bounded, and short in practice.
class started {
 public:
  started(temporary_folder const& folder, std::string const& arguments,
          std::vector<std::pair<std::string, std::string>> environment = {}, std::string const& name = "run")
      : out_{folder / (name + ".out")}, err_{folder / (name + ".err")} {
    running_.emplace_back(process_options{.arguments = words(GRADWIRE_PROGRAM " " + arguments),
                                          .environment = std::move(environment),
                                          .output = out_,
                                          .errors = err_});
  }
  [[nodiscard]] pid_t id() const { return running_[0].id(); }
  // Exit status; −1 when it did not end in a minute or a signal ended it.
  int wait() {
    if (!running_[0].end()) static_cast<void>(wait_any(running_, 60s));
    auto const& end = running_[0].end();
    return end && !end->signalled ? end->value : -1;
  }
  [[nodiscard]] std::string out() const { return read_file(out_); }
  [[nodiscard]] std::string err() const { return read_file(err_); }

 private:
  signal_guard guard_;
  std::string out_;
  std::string err_;
  std::vector<process> running_;
};

std::vector<pid_t> children_of(pid_t parent) {
  std::vector<pid_t> result;
  DIR* const folder = opendir("/proc");
  while (dirent const* const entry = readdir(folder)) {
    pid_t const id = std::atoi(entry->d_name);
    if (id <= 0) continue;
    std::ifstream stat{"/proc/" + std::to_string(id) + "/stat"};
    std::string text((std::istreambuf_iterator<char>(stat)), {});
    auto const close = text.rfind(')');  // the name before it may hold anything
    if (close == std::string::npos) continue;
    std::istringstream rest{text.substr(close + 1)};
    std::string state;
    pid_t its_parent = 0;
    rest >> state >> its_parent;
    if (its_parent == parent && state != "Z") result.push_back(id);
  }
  closedir(folder);
  return result;
}

bool alive(pid_t id) {
  std::ifstream stat{"/proc/" + std::to_string(id) + "/stat"};
  std::string text((std::istreambuf_iterator<char>(stat)), {});
  auto const close = text.rfind(')');
  return close != std::string::npos && text.substr(close + 2, 1) != "Z";
}

template <class Condition>
bool eventually(Condition const& condition) {
  for (int i = 0; i < 3000; ++i) {
    if (condition()) return true;
    usleep(10'000);
  }
  return false;
}

std::string variable(pid_t id, std::string const& name) {
  std::ifstream file{"/proc/" + std::to_string(id) + "/environ"};
  for (std::string entry; std::getline(file, entry, '\0');) {
    if (entry.rfind(name + "=", 0) == 0) return entry.substr(name.size() + 1);
  }
  return "";
}

// A run that goes on until somebody ends it; returns once all ranks are training.
struct long_run {
  explicit long_run(std::size_t ranks)
      : program{folder, "train --steps 1000000 --eval-every 5 --batch 2 --quiet --timeout 20 --ranks " +
                            std::to_string(ranks) + " --metrics " + folder / "metrics"} {
    bool const going = eventually([&] {
      std::ifstream file{folder / "metrics"};
      std::string const text((std::istreambuf_iterator<char>(file)), {});
      return text.find("\"eval\"") != std::string::npos;
    });
    EXPECT_TRUE(going) << program.err();
    ids = children_of(program.id());
    EXPECT_EQ(ids.size(), ranks);
  }
  [[nodiscard]] bool nobody_left() const {
    return eventually([&] { return std::none_of(ids.begin(), ids.end(), alive); });
  }
  temporary_folder folder;
  started program;
  std::vector<pid_t> ids;
};

TEST(Processes, TrainToTheSameBytesAsThreads) {
  temporary_folder const folder;
  std::string const line = "train --ranks 3 --steps 8 --batch 4 --quiet --json - --spec onebit+ef --transport ";
  started processes{folder, line + "gloo", {}, "gloo"};
  started threads{folder, line + "inproc", {}, "inproc"};
  ASSERT_EQ(processes.wait(), 0) << processes.err();
  ASSERT_EQ(threads.wait(), 0) << threads.err();
  auto const a = records(processes.out()).back();
  auto const b = records(threads.out()).back();
  EXPECT_EQ(a["parameters_crc32"], b["parameters_crc32"]);
  EXPECT_EQ(a["wire_bytes"], b["wire_bytes"]);
}

TEST(Processes, AreRanksOfALauncherWhenItsVariablesAreSet) {
  temporary_folder const folder;
  std::filesystem::create_directory(folder / "meet");
  auto const rank = [&](std::string const& number, std::string const& arguments) {
    return started{folder,
                   "train --steps 3 --batch 4 --timeout 20 --json - " + arguments,
                   {{"RANK", number},
                    {"WORLD_SIZE", "2"},
                    {"LOCAL_RANK", number},
                    {"GRADWIRE_RENDEZVOUS", "file://" + folder / "meet"}},
                   "rank" + number};
  };
  started first = rank("0", "--spec bf16");
  started second = rank("1", "--spec bf16");
  EXPECT_EQ(first.wait(), 0) << first.err();
  EXPECT_EQ(second.wait(), 0) << second.err();
  EXPECT_EQ(records(first.out()).front()["world"], 2);
  EXPECT_EQ(second.out(), "");  // only rank 0 writes
}

TEST(Processes, WithOtherOptionsThanRank0AreRefusedByName) {
  temporary_folder const folder;
  std::filesystem::create_directory(folder / "meet");
  auto const rank = [&](std::string const& number, std::string const& lr) {
    return started{folder,
                   "train --steps 3 --batch 4 --timeout 20 --lr " + lr,
                   {{"RANK", number},
                    {"WORLD_SIZE", "2"},
                    {"LOCAL_RANK", number},
                    {"GRADWIRE_RENDEZVOUS", "file://" + folder / "meet"}},
                   "rank" + number};
  };
  started first = rank("0", "0.5");
  started second = rank("1", "0.25");
  for (started* one : {&first, &second}) {
    EXPECT_EQ(one->wait(), 2);
    for (char const* const part : {"--lr", "0.5", "0.25", "rank 1"}) {
      EXPECT_NE(one->err().find(part), std::string::npos) << one->err();
    }
  }
}

// One rank of a world of two, as a launcher starts it.
started launched(temporary_folder const& folder, std::string const& rank, std::string const& arguments) {
  std::filesystem::create_directory(folder / "meet");
  return started{
      folder,
      "train --batch 4 " + arguments,
      {{"RANK", rank}, {"WORLD_SIZE", "2"}, {"LOCAL_RANK", rank}, {"GRADWIRE_RENDEZVOUS", "file://" + folder / "meet"}},
      "rank" + rank};
}

TEST(Processes, WithOtherDataThanRank0AreRefusedByName) {
  temporary_folder const folder;
  for (int i = 0; i < 2; ++i) {
    std::ofstream text{folder / ("text" + std::to_string(i))};
    for (int j = 0; j < 2000; ++j) text << (j % 7 == i ? "a" : "b");
  }
  std::string const line = "--workload text --steps 3 --timeout 20 --data ";
  started first = launched(folder, "0", line + folder / "text0");
  started second = launched(folder, "1", line + folder / "text1");
  for (started* one : {&first, &second}) {
    EXPECT_EQ(one->wait(), 2);
    EXPECT_NE(one->err().find("--data"), std::string::npos) << one->err();
  }
}

TEST(Processes, WithACheckpointThatRank0LacksAreRefusedByName) {
  temporary_folder const folder;
  started first = launched(folder, "0", "--steps 3 --timeout 20");
  started second = launched(folder, "1", "--steps 3 --timeout 20 --checkpoint " + folder / "c");
  for (started* one : {&first, &second}) {
    EXPECT_EQ(one->wait(), 2);
    EXPECT_NE(one->err().find("--checkpoint"), std::string::npos) << one->err();
  }
}

TEST(Processes, EndOnCtrlCWhileTheyWaitForAnotherToCome) {
  temporary_folder const folder;
  started first = launched(folder, "0", "--timeout 300");
  ASSERT_TRUE(eventually([&] { return !std::filesystem::is_empty(folder / "meet"); })) << first.err();
  kill(first.id(), SIGINT);
  EXPECT_EQ(first.wait(), 130) << first.err();
}

TEST(Processes, EndOnCtrlCWhileTheyWaitForAnotherInACollective) {
  for (int const signal : {SIGINT, SIGHUP}) {
    temporary_folder const folder;
    started first = launched(folder, "0", "--steps 1000000 --timeout 300 --metrics " + folder / "m");
    started second = launched(folder, "1", "--steps 1000000 --timeout 300");
    ASSERT_TRUE(eventually([&] { return std::filesystem::exists(folder / "m"); })) << first.err();
    kill(second.id(), SIGSTOP);
    usleep(200'000);
    kill(first.id(), signal);
    EXPECT_EQ(first.wait(), 130) << first.err();
    EXPECT_GE(read_json_lines(folder / "m").size(), 1u);
    kill(second.id(), SIGKILL);
  }
}

int shell(std::string const& line) {
  signal_guard const guard;
  std::vector<process> one;
  one.emplace_back(process_options{.arguments = {"sh", "-c", line}});
  if (!wait_any(one, 60s)) return -1;
  return one[0].end()->signalled ? -one[0].end()->value : one[0].end()->value;
}

TEST(Processes, KeepTheirExitStatusWhenTheirErrorsCannotBeWritten) {
  temporary_folder const folder;
  std::string const program = GRADWIRE_PROGRAM;
  for (std::string const where : {"2>&-", "2>/dev/full"}) {
    EXPECT_EQ(shell(program + " train --workload chess " + where), 2) << where;
    EXPECT_EQ(shell(program + " frobnicate " + where), 2) << where;
    EXPECT_EQ(shell(program + " " + where), 2) << where;
    EXPECT_EQ(shell(program + " train --steps 20 --ranks 2 --lr 1e30 --quiet " + where), 1) << where;
    EXPECT_EQ(shell(program + " train --steps 2 --ranks 2 --json - " + where + " >/dev/null"), 0) << where;
  }
  // A reader that went away.
  EXPECT_EQ(
      shell("exec 3>&1; (sleep 0.2; " + program + " frobnicate; echo $? >'" + folder / "status" + "') 2>&1 | true"), 0);
  ASSERT_TRUE(eventually([&] { return std::filesystem::exists(folder / "status"); }));
  ASSERT_TRUE(eventually([&] { return read_file(folder / "status") == "2\n"; })) << read_file(folder / "status");
  // The first file that is opened does not become standard error.
  EXPECT_EQ(shell(program + " train --steps 20 --lr 1e30 --transport inproc --ranks 2 --quiet --metrics " +
                  folder / "m" + " 2>&-"),
            1);
  EXPECT_EQ(read_json_lines(folder / "m").back()["status"], "diverged");
}

TEST(Processes, SayWhichLimitToRaiseWhenFilesRunOut) {
  temporary_folder const folder;
  EXPECT_GT(shell("ulimit -n 12; " GRADWIRE_PROGRAM " train --steps 2 --ranks 4 2>" + folder / "err"), 0);
  EXPECT_NE(read_file(folder / "err").find("ulimit -n"), std::string::npos) << read_file(folder / "err");
}

// As docs/cli.md has it: it ran, and a rank is missing.
TEST(Processes, ExitWith1WhenARankNeverComes) {
  temporary_folder const folder;
  started alone = launched(folder, "0", "--timeout 1");
  EXPECT_EQ(alone.wait(), 1);
  EXPECT_NE(alone.err().find("rank 1 of 2"), std::string::npos) << alone.err();
}

TEST(Processes, NameAFolderForTemporaryFilesThatIsNotThere) {
  temporary_folder const folder;
  started program{folder, "train --steps 2 --ranks 2", {{"TMPDIR", "/no/such/folder"}}};
  EXPECT_EQ(program.wait(), 2);
  for (char const* const part : {"'/no/such/folder'", "TMPDIR", "No such file"}) {
    EXPECT_NE(program.err().find(part), std::string::npos) << program.err();
  }
}

TEST(Processes, EndWhenOneOfThemIsKilledAndSayWhich) {
  long_run run{3};
  auto const victim =
      std::find_if(run.ids.begin(), run.ids.end(), [](pid_t id) { return variable(id, "RANK") == "2"; });
  ASSERT_NE(victim, run.ids.end());
  kill(*victim, SIGKILL);
  EXPECT_EQ(run.program.wait(), 1);
  EXPECT_NE(run.program.err().find("rank 2 of 3"), std::string::npos) << run.program.err();
  EXPECT_NE(run.program.err().find("signal 9"), std::string::npos) << run.program.err();
  EXPECT_TRUE(run.nobody_left());
  EXPECT_GT(read_json_lines(run.folder / "metrics").size(), 5u);  // what was finished is kept
}

TEST(Processes, StopOnCtrlCKeepWhatIsFinishedAndExit130) {
  long_run run{2};
  kill(run.program.id(), SIGINT);
  EXPECT_EQ(run.program.wait(), 130);
  EXPECT_TRUE(run.nobody_left());
  EXPECT_GT(read_json_lines(run.folder / "metrics").size(), 5u);
  std::string const said = run.program.err();
  EXPECT_EQ(std::count(said.begin(), said.end(), '\n'), 1) << said;
  EXPECT_NE(said.find("interrupted; the records so far are kept in " + run.folder / "metrics"), std::string::npos)
      << said;
}

TEST(Processes, StopWhenTheirTerminalGoesAway) {
  long_run run{2};
  kill(run.program.id(), SIGHUP);
  EXPECT_EQ(run.program.wait(), 130);
  EXPECT_TRUE(run.nobody_left());
}

TEST(Processes, DoNotOutliveTheirParent) {
  long_run run{2};
  kill(run.program.id(), SIGKILL);
  EXPECT_TRUE(run.nobody_left());
}

TEST(Processes, StopAsThreadsOnCtrlC) {
  temporary_folder const folder;
  started program{folder, "train --steps 1000000 --eval-every 5 --batch 2 --ranks 3 --transport inproc --metrics " +
                              folder / "metrics"};
  ASSERT_TRUE(eventually([&] { return program.out().find("step") != std::string::npos; }));
  kill(program.id(), SIGINT);
  EXPECT_EQ(program.wait(), 130) << program.err();
}

TEST(Processes, OfTwoRunsInOneCheckpointDirectoryTheSecondIsRefused) {
  temporary_folder const folder;
  std::string const line = "train --ranks 2 --transport inproc --steps 1000000 --batch 2 --checkpoint " + folder / "c";
  started first{folder, line, {}, "first"};
  ASSERT_TRUE(eventually([&] { return first.out().find("step") != std::string::npos; }));
  started second{folder, line, {}, "second"};
  EXPECT_EQ(second.wait(), 2);
  EXPECT_NE(second.err().find("in use by process " + std::to_string(first.id())), std::string::npos) << second.err();
  kill(first.id(), SIGINT);
  EXPECT_EQ(first.wait(), 130);
}

TEST(Doctor, FindsNothingThatWouldStopARunAndTriesEveryTransport) {
  temporary_folder const folder;
  started doctor{folder, "doctor --ranks 2 --quiet --json -"};
  EXPECT_EQ(doctor.wait(), 0) << doctor.out();
  std::map<std::string, std::string> verdicts;
  for (record const& one : records(doctor.out())) {
    for (char const* const key : {"check", "verdict", "text", "mend", "values"}) EXPECT_TRUE(one.contains(key)) << key;
    verdicts[one["check"]] = one["verdict"];
  }
  EXPECT_EQ(verdicts["inproc"], "ok");
  EXPECT_EQ(verdicts["gloo"], "ok");
  EXPECT_EQ(verdicts["nccl"], "info");
  for (record const& one : records(doctor.out())) {
    if (one["verdict"] != "ok" && !one["check"].get<std::string>().starts_with("break-even")) {
      EXPECT_FALSE(one["mend"].is_null()) << one.dump();
    }
    if (one["check"] != "network") continue;
    for (record const& each : one["values"]["measured"]) EXPECT_GT(each["self_gbps"].get<double>(), 0) << each.dump();
  }
  EXPECT_TRUE(verdicts.contains("break-even onebit+ef"));
}

TEST(Doctor, SaysWhatIsWrongWithTheVariablesOfALauncher) {
  temporary_folder const folder;
  started doctor{folder, "doctor --ranks 1", {{"RANK", "5"}, {"WORLD_SIZE", "2"}, {"MASTER_ADDR", "localhost"}}};
  EXPECT_EQ(doctor.wait(), 1);
  EXPECT_NE(doctor.out().find("failure  launcher"), std::string::npos) << doctor.out();
}

}  // namespace
}  // namespace gradwire::program
