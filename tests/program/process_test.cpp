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
