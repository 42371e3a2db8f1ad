#include <gradwire/inproc.hpp>

#include <array>
#include <atomic>
#include <stdexcept>

#include "tests/comm/conformance.hpp"

namespace gradwire::test {
namespace {

class inproc_world final : public world {
 public:
  inproc_world(std::size_t size, std::chrono::milliseconds timeout)
      : world{size}, ends_{make_inproc_group(size, timeout)} {}
  std::unique_ptr<communicator> join(std::size_t rank) override { return std::move(ends_[rank]); }

 private:
  std::vector<std::unique_ptr<communicator>> ends_;
};

transport_case inproc_case() {
  return {"inproc", [](std::size_t size, std::chrono::milliseconds timeout) {
            return std::make_unique<inproc_world>(size, timeout);
          }};
}

INSTANTIATE_TEST_SUITE_P(Inproc, Conformance, testing::Combine(testing::Values(inproc_case()), world_sizes()));
INSTANTIATE_TEST_SUITE_P(Inproc, OneWorld, testing::Values(inproc_case()));
INSTANTIATE_TEST_SUITE_P(Inproc, Failure, testing::Values(inproc_case()));

TEST(Inproc, AddsInRankOrder) {
  // 1 is half an ulp of 2^24: only (2^24 + 1) + 1 gives 2^24, any other order gives 2^24 + 2.
  run_ranks(3, [](communicator& comm) {
    std::array<float, 5> values{};
    values.fill(comm.rank() == 0 ? 0x1p24F : 1.0F);
    comm.all_reduce({values.data(), dtype::f32}, values.size(), reduce_op::sum, {}).wait();
    for (auto const value : values) EXPECT_EQ(value, 0x1p24F);
    EXPECT_TRUE(comm.caps().in_order_sum);
  });
}

TEST(Inproc, RunRanksRethrowsTheCauseAndNotItsConsequences) {
  for (int repeat = 0; repeat < 20; ++repeat) {
    try {
      run_ranks(4, [](communicator& comm) {
        if (comm.rank() == 3) throw std::out_of_range{"row 7"};
        comm.barrier({}).wait();
      });
      FAIL() << "nothing was thrown";
    } catch (std::out_of_range const& why) {
      EXPECT_STREQ(why.what(), "row 7");
    }
  }
}

TEST(Inproc, RunRanksTellsTheOthersWhatHappened) {
  std::atomic<int> told = 0;
  EXPECT_THROW(run_ranks(3,
                         [&](communicator& comm) {
                           if (comm.rank() == 1) throw std::runtime_error{"row 7"};
                           try {
                             comm.barrier({}).wait();
                           } catch (error const& why) {
                             EXPECT_STREQ(why.what(), "rank 1 failed: row 7");
                             ++told;
                             throw;
                           }
                         }),
               std::runtime_error);
  EXPECT_EQ(told, 2);
}

TEST(Inproc, RefusesAGroupOfNobody) {
  EXPECT_THROW(static_cast<void>(make_inproc_group(0)), error);
  EXPECT_THROW(static_cast<void>(make_inproc_group(2, std::chrono::milliseconds{0})), error);
}

}  // namespace
}  // namespace gradwire::test
