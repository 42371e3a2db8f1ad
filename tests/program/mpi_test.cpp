// The program over MPI, as its users start it: by itself, and under mpirun.
#include <gtest/gtest.h>

#include <unistd.h>

#include <algorithm>
#include <cstdlib>
#include <filesystem>
#include <fstream>

#include "program/common/interrupt.hpp"
#include "program/common/process.hpp"
#include "tests/program/run.hpp"

namespace gradwire::program {
namespace {

using testing::records;
using testing::temporary_folder;
using testing::words;
using namespace std::chrono_literals;

struct ended {
  int status = -1;
  std::string out;
  std::string err;
};

// Containers run as root, and more ranks than cores.
ended run(std::string const& line, std::vector<std::pair<std::string, std::string>> environment = {}) {
  signal_guard const guard;
  temporary_folder const folder;
  for (char const* const name :
       {"OMPI_ALLOW_RUN_AS_ROOT", "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM", "OMPI_MCA_rmaps_base_oversubscribe"}) {
    bool const given =
        std::any_of(environment.begin(), environment.end(), [&](auto const& each) { return each.first == name; });
    if (!given) environment.emplace_back(name, "1");
  }
  environment.emplace_back("OMPI_MCA_hwloc_base_binding_policy", "none");
  environment.emplace_back("OMPI_MCA_plm", "isolated");  // one machine, no ssh
  std::vector<process> running;
  running.emplace_back(process_options{.arguments = words(line),
                                       .environment = std::move(environment),
                                       .output = folder / "out",
                                       .errors = folder / "err"});
  static_cast<void>(wait_any(running, 60s));
  auto const& end = running.front().end();
  return {end && !end->signalled ? end->value : -1, read_file(folder / "out"), read_file(folder / "err")};
}

std::string const program = GRADWIRE_PROGRAM;

TEST(MpiProgram, StartsItsRanksAndTrainsToTheSameBytesAsThreads) {
  std::string const line = " train --ranks 3 --steps 8 --batch 4 --quiet --json - --spec none --transport ";
  auto const mpi = run(program + line + "mpi");
  auto const threads = run(program + line + "inproc");
  ASSERT_EQ(mpi.status, 0) << mpi.err;
  ASSERT_EQ(threads.status, 0) << threads.err;
  EXPECT_EQ(records(mpi.out).front()["transport"], "mpi");
  EXPECT_EQ(records(mpi.out).front()["world"], 3);
  // Both add in rank order.
  EXPECT_EQ(records(mpi.out).back()["parameters_crc32"], records(threads.out).back()["parameters_crc32"]);
  EXPECT_EQ(records(mpi.out).back()["wire_bytes"], records(threads.out).back()["wire_bytes"]);
}

TEST(MpiProgram, IsARankUnderMpirunAndChecksEveryElementOfASweep) {
  auto const sweep = run(GRADWIRE_MPIRUN " -n 2 " + program +
                         " sweep --transport mpi --spec onebit+ef --max-bytes 64K --factor 128 --iters 2 --json -");
  ASSERT_EQ(sweep.status, 0) << sweep.err;
  auto const all = records(sweep.out);
  ASSERT_EQ(all.size(), 4U);  // two sizes, dense and onebit: one rank writes
  for (auto const& one : all) {
    EXPECT_EQ(one["transport"], "mpi");
    EXPECT_EQ(one["ranks"], 2);
    EXPECT_EQ(one["wrong"], 0);
  }
}

TEST(MpiProgram, RefusesRanksWithOtherSpecsByName) {
  std::string const rank = "-n 1 " + program + " train --transport mpi --steps 3 --batch 4 --timeout 20 --spec ";
  auto const both = run(GRADWIRE_MPIRUN " " + rank + "bf16 : " + rank + "onebit+ef");
  EXPECT_EQ(both.status, 2) << both.err;
  for (char const* const part :
       {"'method'", "rank 0 has 'bf16'", "rank 1 has 'onebit", "start all ranks with the same"}) {
    EXPECT_NE(both.err.find(part), std::string::npos) << both.err;
  }
}

TEST(MpiProgram, SaysWhatToInstallWhereThereIsNoMpirun) {
  auto const alone = run(program + " train --transport mpi --ranks 2 --steps 2", {{"PATH", "/no/such/folder"}});
  EXPECT_EQ(alone.status, 2);
  for (char const* const part : {"mpirun", "--transport mpi", "install"}) {
    EXPECT_NE(alone.err.find(part), std::string::npos) << alone.err;
  }
}

// An mpirun that does what the test says, first in the PATH.
class MpirunDouble : public ::testing::Test {
 protected:
  ended run_with(std::string const& script, std::string const& arguments) {
    std::filesystem::path const path{folder_ / "mpirun"};
    std::ofstream{path} << "#!/bin/sh\n" << script << "\n";
    std::filesystem::permissions(path, std::filesystem::perms::owner_all);
    return run(program + arguments, {{"PATH", path.parent_path().string() + ":/usr/bin:/bin"}});
  }

 private:
  temporary_folder folder_;
};

TEST_F(MpirunDouble, ARankThatDiedByASignalIsAnAnswerOfNo) {
  auto const killed = run_with("exit 137", " train --transport mpi --ranks 2 --steps 2");
  EXPECT_EQ(killed.status, 1);
  EXPECT_NE(killed.err.find("signal 9"), std::string::npos) << killed.err;
}

TEST_F(MpirunDouble, TheDoctorReportsAWrongSumAsWrong) {
  auto const doctor = run_with(
      R"(for last; do :; done
echo '{"event":"case","count":1,"wrong":0,"time_us":1,"algbw_gbps":1}' > "$last"
echo '{"event":"case","count":4194304,"wrong":1,"time_us":1,"algbw_gbps":1}' >> "$last"
exit 1)",
      " doctor --ranks 1 --quiet --json -");
  EXPECT_EQ(doctor.status, 1);
  for (record const& one : records(doctor.out)) {
    if (one["check"] != "mpi") continue;
    EXPECT_EQ(one["verdict"], "failure") << one.dump();
    EXPECT_NE(one["text"].get<std::string>().find("wrong sum"), std::string::npos) << one.dump();
    return;
  }
  FAIL() << doctor.out << doctor.err;
}

TEST_F(MpirunDouble, TheDoctorSaysThatItDidNotEndInTime) {
  auto const doctor = run_with("exec sleep 60", " doctor --ranks 1 --timeout 1 --quiet --json -");
  for (record const& one : records(doctor.out)) {
    if (one["check"] != "mpi") continue;
    EXPECT_NE(one["text"].get<std::string>().find("did not end in time"), std::string::npos) << one.dump();
    return;
  }
  FAIL() << doctor.out << doctor.err;
}

TEST(MpiProgram, RefusesRootWithTheMendWhereMpirunWould) {
  if (geteuid() != 0) GTEST_SKIP() << "mpirun refuses root only";
  auto const alone =
      run(program + " train --transport mpi --ranks 2 --steps 2", {{"OMPI_ALLOW_RUN_AS_ROOT_CONFIRM", "0"}});
  EXPECT_EQ(alone.status, 2);
  EXPECT_NE(alone.err.find("OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1"), std::string::npos) << alone.err;
}

TEST(MpiProgram, RefusesARankThatAnotherLauncherStarted) {
  auto const alone = run(program + " train --transport mpi --steps 2", {{"RANK", "1"}, {"WORLD_SIZE", "4"}});
  EXPECT_EQ(alone.status, 2) << alone.err;
  for (char const* const part : {"rank 1 of 4", "rank 0 of 1", "mpirun -n 4"}) {
    EXPECT_NE(alone.err.find(part), std::string::npos) << alone.err;
  }
}

TEST(MpiProgram, TheDoctorTriesIt) {
  auto const doctor = run(program + " doctor --ranks 1 --quiet --json -");
  for (record const& one : records(doctor.out)) {
    if (one["check"] != "mpi") continue;
    EXPECT_EQ(one["verdict"], "ok") << one.dump();
    EXPECT_GT(one["values"]["algbw_gbps"].get<double>(), 0);
    return;
  }
  FAIL() << doctor.out << doctor.err;
}

}  // namespace
}  // namespace gradwire::program
