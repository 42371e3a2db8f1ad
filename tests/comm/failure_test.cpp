#include <array>
#include <chrono>
#include <thread>

#include "tests/comm/conformance.hpp"

namespace gradwire::test {
namespace {

using namespace std::chrono_literals;

constexpr std::size_t three = 3;
constexpr auto soon = 300ms;

void expect_error(std::optional<error> const& outcome, errc code, std::string const& part) {
  ASSERT_TRUE(outcome.has_value()) << "ended well";
  EXPECT_EQ(outcome->code(), code) << outcome->what();
  EXPECT_NE(std::string{outcome->what()}.find(part), std::string::npos) << outcome->what();
}

// Collectives of every kind, as ways to wait for the others.
std::vector<std::pair<char const*, std::function<void(communicator&)>>> waits() {
  return {{"barrier", [](communicator& comm) { comm.barrier({}).wait(); }},
          {"all_reduce",
           [](communicator& comm) {
             std::array<float, 100> values{};
             comm.all_reduce({values.data(), dtype::f32}, values.size(), reduce_op::sum, {}).wait();
           }},
          {"all_gather",
           [](communicator& comm) {
             std::byte const own{};
             std::array<std::byte, three> all{};
             comm.all_gather({&own, 1}, all, std::vector<std::size_t>(three, 1), {}).wait();
           }},
          {"all_to_all", [](communicator& comm) {
             std::array<std::byte, three> in{};
             std::array<std::byte, three> out{};
             std::vector<std::size_t> const ones(three, 1);
             comm.all_to_all(in, ones, out, ones, {}).wait();
           }}};
}

TEST_P(Failure, ARankThatThrowsEndsTheOthersByName) {
  for (auto const& [name, wait] : waits()) {
    SCOPED_TRACE(name);
    auto const results = run_each(GetParam(), three, [&wait = wait](communicator& comm) {
      comm.barrier({}).wait();
      if (comm.rank() == 1) throw std::runtime_error{"no more paper"};
      wait(comm);
    });
    expect_error(results[0], errc::communicator, "rank 1");
    expect_error(results[2], errc::communicator, "rank 1");
  }
}

TEST_P(Failure, AMissingRankIsNamedWhenTheTimeoutEnds) {
  for (auto const& [name, wait] : waits()) {
    SCOPED_TRACE(name);
    auto const results = run_each(
        GetParam(), three,
        [&wait = wait](communicator& comm, world& all) {
          comm.barrier({}).wait();
          if (comm.rank() == 2) return all.meet();
          try {
            wait(comm);
          } catch (error const&) {
            all.meet();
            throw;
          }
          ADD_FAILURE() << "nobody was missed";
          all.meet();
        },
        soon);
    expect_error(results[0], errc::timeout, "rank 2 did not arrive at " + std::string{name});
    expect_error(results[1], errc::timeout, "rank 2 did not arrive at " + std::string{name});
    EXPECT_FALSE(results[2].has_value());
  }
}

TEST_P(Failure, ARankThatLeavesIsNamedAtOnce) {
  auto const results = run_each(GetParam(), three, [](communicator& comm) {
    comm.barrier({}).wait();
    if (comm.rank() != 1) comm.barrier({}).wait();
  });
  expect_error(results[0], errc::communicator, "rank 1 left");
  expect_error(results[2], errc::communicator, "rank 1 left");
}

TEST_P(Failure, DifferentCollectivesAreToldApart) {
  auto const results = run_each(
      GetParam(), three,
      [](communicator& comm) {
        std::array<float, 8> values{};
        if (comm.rank() == 1) {
          comm.barrier({}).wait();
        } else {
          comm.all_reduce({values.data(), dtype::f32}, values.size(), reduce_op::sum, {}).wait();
        }
      },
      soon);
  for (auto const& result : results) {
    expect_error(result, errc::mismatch, "rank 0 all_reduce");
    expect_error(result, errc::mismatch, "rank 1 barrier");
  }
}

TEST_P(Failure, DifferentSizesOfOneCollectiveAreToldApart) {
  auto const results = run_each(
      GetParam(), three,
      [](communicator& comm) {
        std::array<float, 8> values{};
        comm.all_reduce({values.data(), dtype::f32}, comm.rank() == 2 ? 8 : 7, reduce_op::sum, {}).wait();
      },
      soon);
  for (auto const& result : results) expect_error(result, errc::mismatch, "rank 2");
}

TEST_P(Failure, AReceiverOfAnotherSizeDoesNotTakeTheBytes) {
  auto const results = run_each(
      GetParam(), three,
      [](communicator& comm) {
        std::array<std::byte, 9> some{};
        if (comm.rank() == 0) comm.send(some, 1, {}).wait();
        if (comm.rank() == 1) comm.recv(std::span{some}.first(4), 0, {}).wait();
        if (comm.rank() == 2) comm.barrier({}).wait();
      },
      soon);
  for (auto const& result : results) EXPECT_TRUE(result.has_value());
}

TEST_P(Failure, AbortFromAnotherThreadEndsEveryWait) {
  auto const results = run_each(GetParam(), three, [](communicator& comm) {
    comm.barrier({}).wait();
    std::jthread aborter;
    if (comm.rank() == 2) aborter = std::jthread{[&] { comm.abort(); }};
    // Rank 0 waits for nobody but rank 1, which waits for rank 2.
    std::array<std::byte, 1> one{};
    if (comm.rank() != 2) {
      comm.recv(one, comm.rank() + 1, {}).wait();
    } else {
      comm.recv(one, 0, {}).wait();
    }
  });
  for (auto const& result : results) expect_error(result, errc::communicator, "rank 2 aborted");
}

TEST_P(Failure, AFailedGroupStaysFailedAndSaysSo) {
  static_cast<void>(run_each(GetParam(), three, [](communicator& comm) {
    comm.barrier({}).wait();
    if (comm.rank() == 0) comm.abort();
    for (int attempt = 0; attempt < 2; ++attempt) {
      try {
        comm.barrier({}).wait();
        ADD_FAILURE() << "rank " << comm.rank() << " passed a barrier of an aborted group";
      } catch (error const& why) {
        EXPECT_EQ(why.code(), errc::communicator);
        EXPECT_NE(std::string{why.what()}.find("rank 0"), std::string::npos) << why.what();
        if (attempt == 1) {
          EXPECT_NE(std::string{why.what()}.find("unusable"), std::string::npos) << why.what();
        }
      }
    }
  }));
}

TEST_P(Failure, AFailureOnAHostStreamReachesWhoWaits) {
  auto const results = run_each(GetParam(), three, [](communicator& comm) {
    host_stream stream;
    if (comm.rank() == 1) throw std::runtime_error{"no more paper"};
    auto const first = comm.barrier(stream.ref());
    auto const second = comm.barrier(stream.ref());
    EXPECT_THROW(first.wait(), error);
    EXPECT_THROW(second.wait(), error);
    synchronize(stream.ref(), patience);
  });
  expect_error(results[0], errc::communicator, "rank 1");
  expect_error(results[2], errc::communicator, "rank 1");
}

TEST_P(Failure, AbortReachesTheGroupsThatWereSplitOff) {
  auto const results = run_each(GetParam(), three, [](communicator& comm) {
    auto const pair = comm.split(comm.rank() == 2 ? 1 : 0, 0);
    comm.barrier({}).wait();
    if (comm.rank() == 2) throw std::runtime_error{"no more paper"};
    // Rank 1 waits in the pair for rank 0, which waits for rank 2.
    if (comm.rank() == 1) pair->barrier({}).wait();
    comm.barrier({}).wait();
  });
  expect_error(results[0], errc::communicator, "rank 2");
  ASSERT_TRUE(results[1].has_value());
}

}  // namespace
}  // namespace gradwire::test
