// Every process of an mpirun runs these tests, in step; see CMakeLists.txt for the numbers of ranks.
#include <gradwire/mpi.hpp>

#include <signal.h>
#include <unistd.h>

#include <array>
#include <cstdlib>
#include <numeric>

#include <gradwire/handshake.hpp>
#include <gradwire/reduction.hpp>

#include "comm/mpi/transfer.hpp"
#include "tests/comm/conformance.hpp"
#include "tests/comm/mpi_world.hpp"

namespace gradwire::test {
namespace {

using namespace std::chrono_literals;

// The world that mpirun made; 1 where nobody did, as when tests are listed.
std::size_t launched_size() {
  char const* const text = std::getenv("OMPI_COMM_WORLD_SIZE");  // NOLINT(concurrency-mt-unsafe): before threads
  return text == nullptr ? 1 : std::strtoul(text, nullptr, 10);
}

INSTANTIATE_TEST_SUITE_P(Mpi, Conformance,
                         testing::Combine(testing::Values(mpi_case()), testing::Values(launched_size())));
INSTANTIATE_TEST_SUITE_P(Mpi, OneWorld, testing::Values(mpi_case()));
INSTANTIATE_TEST_SUITE_P(Mpi, Failure, testing::Values(mpi_case()));

void expect_refused(std::function<void()> const& call, errc code, std::string const& part) {
  try {
    call();
    FAIL() << "was accepted";
  } catch (error const& why) {
    EXPECT_EQ(why.code(), code) << why.what();
    EXPECT_NE(std::string{why.what()}.find(part), std::string::npos) << why.what();
  }
}

TEST(Mpi, RefusesATimeoutOfNothingAndACommunicatorThatIsNone) {
  expect_refused([] { static_cast<void>(make_mpi({.timeout = 0ms})); }, errc::invalid_argument, "1 ms or more");
  expect_refused([] { static_cast<void>(make_mpi({.over = MPI_Comm_c2f(MPI_COMM_NULL)})); }, errc::invalid_argument,
                 "MPI_Comm_c2f");
  expect_refused([] { static_cast<void>(make_mpi({.over = 12345})); }, errc::invalid_argument, "12345");
  MPI_Comm freed = MPI_COMM_NULL;
  MPI_Comm_dup(MPI_COMM_WORLD, &freed);
  int const number = MPI_Comm_c2f(freed);
  MPI_Comm_free(&freed);
  expect_refused([&] { static_cast<void>(make_mpi({.over = number})); }, errc::invalid_argument,
                 std::to_string(number));
}

TEST(Mpi, ALetterOfAnotherSizeIsNotTaken) {
  using two_sizes = std::array<std::size_t, 2>;
  for (auto const [sent, expected] : {two_sizes{4096, 8192}, two_sizes{2048, 6144}, two_sizes{8192, 4096}}) {
    SCOPED_TRACE(sent);
    auto const results = run_each(
        mpi_case(), 2,
        [sent = sent, expected = expected](communicator& comm) {
          std::vector<std::byte> data(comm.rank() == 0 ? sent : expected, std::byte{9});
          if (comm.rank() == 0) return comm.send(data, 1, {}).wait();
          std::fill(data.begin(), data.end(), std::byte{1});
          EXPECT_THROW(comm.recv(data, 0, {}).wait(), error);
          for (auto const byte : data) ASSERT_EQ(byte, std::byte{1});
        },
        300ms);
    ASSERT_TRUE(results[0].has_value());
    EXPECT_EQ(results[0]->code(), errc::timeout) << results[0]->what();
  }
}

TEST(Mpi, PartsOfPartsAndTheWholeWorkSideBySideAndAsOftenAsOneLikes) {
  run_all(mpi_case(), 3, [](communicator& comm) {
    auto const sum_of_ranks = [&](communicator& group) {
      auto value = static_cast<float>(comm.rank());
      group.all_reduce({&value, dtype::f32}, 1, reduce_op::sum, {}).wait();
      return value;
    };
    // {0}, {2, 1}; then {2}, {1}: only ranks 1 and 2 come to the second.
    auto const part = comm.split(comm.rank() == 0 ? 0 : 1, 10 - static_cast<std::uint32_t>(comm.rank()));
    EXPECT_EQ(part->rank(), comm.rank() == 1 ? 1U : 0U);
    for (int round = 0; round < 3; ++round) {
      auto const half = comm.rank() == 0 ? nullptr : part->split(7, static_cast<std::uint32_t>(comm.rank()));
      auto const whole = comm.split(3, 0);
      EXPECT_EQ(sum_of_ranks(*whole), 3.0F);
      if (half) {
        EXPECT_EQ(half->rank(), comm.rank() - 1);
        EXPECT_EQ(sum_of_ranks(*half), 3.0F);
      }
      EXPECT_EQ(sum_of_ranks(*part), comm.rank() == 0 ? 0.0F : 3.0F);
    }
    EXPECT_EQ(sum_of_ranks(comm), 3.0F);
  });
}

TEST(Mpi, AddsInRankOrder) {
  // 1 is half an ulp of 2^24: only (2^24 + 1) + 1 gives 2^24, any other order gives 2^24 + 2.
  run_all(mpi_case(), 3, [](communicator& comm) {
    std::vector<float> values((std::size_t{3} << 20) + 5, comm.rank() == 0 ? 0x1p24F : 1.0F);  // three turns
    comm.all_reduce({values.data(), dtype::f32}, values.size(), reduce_op::sum, {}).wait();
    for (auto const value : values) ASSERT_EQ(value, 0x1p24F);
    EXPECT_TRUE(comm.caps().in_order_sum);
  });
}

TEST(Mpi, MessagesOfTheCallersOwnCommunicatorAreNotMet) {
  int const size = mpi_environment::size();
  std::vector<char> own(1 << 20);
  MPI_Request waiting = MPI_REQUEST_NULL;
  MPI_Irecv(own.data(), static_cast<int>(own.size()), MPI_BYTE, MPI_ANY_SOURCE, MPI_ANY_TAG, MPI_COMM_WORLD, &waiting);
  {
    auto const comm = make_mpi({.timeout = patience});
    ASSERT_EQ(comm->size(), static_cast<std::size_t>(size));
    std::vector<float> values(100'000, 1);
    comm->all_reduce({values.data(), dtype::f32}, values.size(), reduce_op::sum, {}).wait();
    EXPECT_EQ(values[77], static_cast<float>(size));
  }
  int done = 1;
  MPI_Test(&waiting, &done, MPI_STATUS_IGNORE);
  EXPECT_EQ(done, 0);
  MPI_Cancel(&waiting);
  MPI_Wait(&waiting, MPI_STATUS_IGNORE);
}

TEST(Mpi, ConfigurationsThatDifferAreRefusedByName) {
  auto const results = run_each(mpi_case(), 3, [](communicator& comm) {
    require_equal_configuration(comm,
                                std::array{config_field{"spec", comm.rank() == 1 ? "quant(bits=8)" : "onebit+ef"}});
  });
  for (auto const& result : results) {
    ASSERT_TRUE(result.has_value());
    EXPECT_EQ(result->code(), errc::mismatch);
    EXPECT_NE(std::string{result->what()}.find("rank 1 has 'quant(bits=8)'"), std::string::npos) << result->what();
  }
}

TEST(Mpi, ACodecAveragesABucketToTheSameBytesOnAllRanksAndByTheFormula) {
  run_all(mpi_case(), 3, [](communicator& comm) {
    constexpr std::size_t count = 3 * 8192;
    std::vector<float> gradient(count);
    // Two magnitudes with signs that all ranks share: onebit's mean of |x| over a block is exact.
    for (std::size_t i = 0; i < count; ++i) gradient[i] = (i % 3 == 0 ? -2.0F : 2.0F);
    std::array<segment, 1> const whole{{{.count = count}}};
    auto const average = make_reduction(comm, spec::parse("onebit(block=1024)+via(two_shot)"), whole, dtype::f32);
    auto const before = comm.stats().bytes_sent;
    all_reduce_mean(*average, {}, {.gradient = {gradient.data(), dtype::f32}, .residual = nullptr, .key = {}});
    for (std::size_t i = 0; i < count; ++i) ASSERT_EQ(gradient[i], i % 3 == 0 ? -2.0F : 2.0F);
    EXPECT_EQ(comm.stats().bytes_sent - before, average->wire_bytes());
  });
}

// Ranks 0 and 1 of mpirun, over a communicator of the test's own.
class Transfer : public testing::Test {
 protected:
  void SetUp() override {
    ASSERT_GE(mpi_environment::size(), 2);
    MPI_Comm_dup(MPI_COMM_WORLD, &comm_);
    MPI_Comm_set_errhandler(comm_, MPI_ERRORS_RETURN);
  }
  void TearDown() override {
    MPI_Barrier(comm_);
    MPI_Comm_free(&comm_);
  }
  static void finish(mpi::transfer& all) {
    auto const deadline = mpi::clock::now() + patience;
    while (!all.done() && mpi::clock::now() < deadline) all.advance();
    ASSERT_TRUE(all.done());
  }
  static std::vector<std::byte> numbered(std::size_t bytes) {
    std::vector<std::byte> result(bytes);
    for (std::size_t i = 0; i < bytes; ++i) result[i] = static_cast<std::byte>(i * 7 + 3);
    return result;
  }
  [[nodiscard]] int rank() const { return mpi_environment::rank(); }
  MPI_Comm comm_ = MPI_COMM_NULL;
};

TEST_F(Transfer, MessagesGoInPiecesAndArriveInOrder) {
  for (std::size_t const bytes : {0U, 1U, 10U, 11U, 14U, 20U, 21U, 22U, 1000U}) {
    SCOPED_TRACE(bytes);
    mpi::transfer all{comm_, {.copied_bytes = 10, .piece_bytes = 7}};
    auto const sent = numbered(bytes);
    std::vector<std::byte> first(bytes);
    std::vector<std::byte> second(bytes);
    if (rank() == 0) {
      all.send(1, 5, sent);
      all.send(1, 6, sent);
    } else if (rank() == 1) {
      all.receive(0, 6, second);
      all.receive(0, 5, first);
    }
    finish(all);
    if (rank() == 1) {
      EXPECT_EQ(first, sent);
      EXPECT_EQ(second, sent);
    }
  }
}

TEST_F(Transfer, AnotherSizeIsAnErrorOfTheReceiver) {
  for (std::size_t const expected : {3U, 5U}) {
    mpi::transfer all{comm_};
    auto const sent = numbered(4);
    std::vector<std::byte> got(expected);
    if (rank() == 0) {
      all.send(1, 5, sent);
      finish(all);
    } else if (rank() == 1) {
      all.receive(0, 5, got);
      EXPECT_THROW(
          {
            while (!all.done()) all.advance();
          },
          std::runtime_error);
      all.abandon(mpi::clock::now());
    }
    MPI_Barrier(comm_);
  }
}

TEST_F(Transfer, WhatWasAbandonedTouchesNoBuffer) {
  std::vector<std::byte> untouched(100'000, std::byte{9});
  auto const sent = numbered(100'000);
  for (std::size_t const bytes : {std::size_t{100}, untouched.size()}) {
    int const tag = bytes == 100 ? 5 : 6;
    {
      mpi::transfer all{comm_};
      if (rank() == 1) all.receive(0, tag, std::span{untouched}.first(bytes));
      all.abandon(mpi::clock::now() + patience);
    }
    MPI_Barrier(comm_);
    {
      mpi::transfer all{comm_};
      if (rank() == 0) all.send(1, tag, std::span{sent}.first(bytes));
      for (int i = 0; i < 100; ++i) all.advance();
      all.abandon(mpi::clock::now() + 1s);
    }
    MPI_Barrier(comm_);
  }
  for (auto const byte : untouched) ASSERT_EQ(byte, std::byte{9});
}

TEST_F(Transfer, ALargeMessageOfAnotherSizeIsAnErrorOfTheSender) {
  mpi::transfer all{comm_, {.copied_bytes = 10, .piece_bytes = 7}};
  auto const sent = numbered(30);
  std::vector<std::byte> got(28);
  if (rank() == 0) {
    all.send(1, 5, sent);
    try {
      finish(all);
      FAIL() << "was sent";
    } catch (std::runtime_error const& why) {
      EXPECT_STREQ(why.what(), "rank 1 expects 28 bytes where this rank sends 30");
    }
  } else if (rank() == 1) {
    all.receive(0, 5, got);
    for (int i = 0; i < 1000; ++i) all.advance();
    EXPECT_FALSE(all.done());
  }
  all.abandon(mpi::clock::now() + 1s);
}

TEST_F(Transfer, WhoGivesUpInTheMiddleOfALargeMessageHasOnePieceUnderWayAndThenNone) {
  constexpr std::size_t piece = std::size_t{1} << 18;
  constexpr std::size_t pieces = 64;
  mpi::transfer all{comm_, {.copied_bytes = 10, .piece_bytes = piece}};
  std::vector<std::byte> data(rank() <= 1 ? pieces * piece : 0, std::byte{1});
  auto const deadline = mpi::clock::now() + patience;
  if (rank() == 0) {
    all.send(1, 5, data);
    // Until rank 1, which has given up, says so.
    MPI_Request gone = MPI_REQUEST_NULL;
    int told = 0;
    MPI_Irecv(nullptr, 0, MPI_BYTE, 1, 99, comm_, &gone);
    while (told == 0 && mpi::clock::now() < deadline) {
      all.advance();
      EXPECT_LE(all.moving_bytes(), piece);
      MPI_Test(&gone, &told, MPI_STATUS_IGNORE);
    }
    EXPECT_FALSE(all.done());
    all.abandon(mpi::clock::now() + 200ms);
  } else if (rank() == 1) {
    std::fill(data.begin(), data.end(), std::byte{0});
    all.receive(0, 5, data);
    while (data[2 * piece] == std::byte{0} && mpi::clock::now() < deadline) {
      all.advance();
      EXPECT_LE(all.moving_bytes(), piece);
    }
    all.abandon(mpi::clock::now() + patience);
    EXPECT_EQ(data[0], std::byte{1});
    std::fill(data.begin(), data.end(), std::byte{9});
    MPI_Send(nullptr, 0, MPI_BYTE, 0, 99, comm_);
  }
  MPI_Barrier(comm_);
  if (rank() != 1) return;
  for (auto const byte : data) ASSERT_EQ(byte, std::byte{9});
}

// With GRADWIRE_TEST_ONE_THREAD, as a user would have it who calls plain MPI_Init.
TEST(MpiThreads, ALevelThatIsTooLowIsRefusedWithTheMend) {
  expect_refused([] { static_cast<void>(make_mpi()); }, errc::unsupported, "MPI_Init_thread with MPI_THREAD_MULTIPLE");
}

TEST(MpiStart, EndsInATimeoutWhenARankDoesNotCome) {
  if (mpi_environment::rank() == 1) {
    MPI_Barrier(MPI_COMM_WORLD);
    return;
  }
  expect_refused([] { static_cast<void>(make_mpi({.timeout = 300ms})); }, errc::timeout, "not all ranks came");
  MPI_Barrier(MPI_COMM_WORLD);
}

// Under mpirun --enable-recovery, which does not end the others. What they say is looked at by ctest.
TEST(MpiDeath, ARankThatDiesInAStepIsNamedWhenTheTimeoutEnds) {
  auto const comm = make_mpi({.timeout = 1s});
  std::vector<float> values(1 << 16, 1);
  for (int step = 0; step < 3; ++step) {
    comm->all_reduce({values.data(), dtype::f32}, values.size(), reduce_op::sum, {}).wait();
  }
  if (comm->rank() == 1) raise(SIGKILL);
  expect_refused(
      [&] {
        comm->all_reduce({values.data(), dtype::f32}, values.size(), reduce_op::sum, {}).wait();
      },
      errc::timeout, "rank 1 did not arrive at all_reduce #4");
  if (HasFailure()) _exit(1);
  std::fprintf(stderr, "rank %zu was told\n", comm->rank());
  _exit(0);  // MPI_Finalize would wait for the dead
}

}  // namespace
}  // namespace gradwire::test
