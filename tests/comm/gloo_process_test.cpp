// Ranks as real processes: what happens to the others when one is killed.
#include <gtest/gtest.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <string>
#include <vector>

#include <gradwire/gloo.hpp>

#include "tests/comm/worlds.hpp"

namespace gradwire::test {
namespace {

constexpr std::size_t ranks = 3;
constexpr int ended_by_error = 3;

std::string read_file(std::string const& path) {
  std::ifstream in{path};
  return {std::istreambuf_iterator<char>{in}, {}};
}

// One rank: all_reduces until it gets an error, which it writes to `log`. A byte on `started` says it is under way.
[[noreturn]] void reduce_until_error(std::size_t rank, std::string const& rendezvous, std::string const& log,
                                     int started) {
  try {
    auto const comm = make_gloo({.rank = rank, .size = ranks, .rendezvous = rendezvous, .timeout = patience});
    std::vector<float> values(1 << 16);
    for (std::size_t i = 0;; ++i) {
      if (i == 3 && write(started, "x", 1) != 1) _exit(4);
      comm->all_reduce({values.data(), dtype::f32}, values.size(), reduce_op::sum, {}).wait();
    }
  } catch (error const& why) {
    std::ofstream{log} << why.what();
    _exit(why.code() == errc::communicator ? ended_by_error : 5);
  } catch (...) {
    _exit(6);
  }
}

class GlooProcess : public testing::TestWithParam<std::tuple<bool, std::size_t>> {};

TEST_P(GlooProcess, AKilledRankIsNamedByTheOthers) {
  auto const [over_tcp, victim] = GetParam();
  temporary_folder const folder;
  auto const rendezvous =
      over_tcp ? "tcp://127.0.0.1:" + std::to_string(free_port()) : "file://" + folder.path() + "/meet";
  std::array<int, 2> started{};
  ASSERT_EQ(pipe(started.data()), 0);
  std::vector<pid_t> children;
  auto const log_of = [&](std::size_t rank) { return folder.path() + "/rank" + std::to_string(rank); };
  for (std::size_t r = 0; r < ranks; ++r) {
    auto const child = fork();
    if (child == 0) reduce_until_error(r, rendezvous, log_of(r), started[1]);
    children.push_back(child);
  }
  close(started[1]);
  char byte = 0;
  for (std::size_t r = 0; r < ranks; ++r) EXPECT_EQ(read(started[0], &byte, 1), 1) << "a rank did not start";
  close(started[0]);
  kill(children[victim], SIGKILL);
  for (std::size_t r = 0; r < ranks; ++r) {
    int status = 0;
    waitpid(children[r], &status, 0);
    if (r == victim) continue;
    EXPECT_TRUE(WIFEXITED(status)) << "rank " << r << " ended by signal " << WTERMSIG(status);
    EXPECT_EQ(WEXITSTATUS(status), ended_by_error);
    auto const text = read_file(log_of(r));
    EXPECT_NE(text.find("rank " + std::to_string(victim) + " died during all_reduce"), std::string::npos)
        << "rank " << r << " says: " << text;
  }
}

INSTANTIATE_TEST_SUITE_P(Killed, GlooProcess, testing::Combine(testing::Bool(), testing::Values<std::size_t>(0, 1)));

}  // namespace
}  // namespace gradwire::test
