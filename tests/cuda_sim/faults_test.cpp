// The simulator finds every planted fault, and by its name.
#include "tests/cuda_sim/faults.hpp"

#include <gtest/gtest.h>

#include <array>
#include <set>
#include <string>

#include "tests/cuda_sim/cuda_sim.hpp"

namespace cuda_sim {
namespace {

#if defined(__SANITIZE_ADDRESS__)
constexpr bool asan = true;
#else
constexpr bool asan = false;
#endif
#if defined(__SANITIZE_THREAD__)
constexpr bool tsan = true;
#else
constexpr bool tsan = false;
#endif

constexpr std::array all_paces{pace::eager, pace::lazy, pace::random, pace::uneven};
constexpr std::array all_orders{order::forward, order::backward, order::random};

struct named {
  plant fault;
  char const* name;
  char const* report;  // what the simulator says
};

void PrintTo(named const& one, std::ostream* out) { *out << one.name; }

std::string name_of(testing::TestParamInfo<named> const& one) { return one.param.name; }

std::vector<float> run_with(options const& wanted, plant fault) {
  configure(wanted);
  return run(fault);
}

bool all_six(std::vector<float> const& values) {
  return std::all_of(values.begin(), values.end(), [](float one) { return one == 6.0f; });
}

// ---- Faults that end the program with a report, whatever the build

constexpr named reported[]{
    {plant::divergent_barrier, "DivergentBarrier",
     "kernel cuda_sim::barrier_kernel block .*barrier in divergent code: thread 0 is at .*faults.cu:[0-9]+, thread 32"},
    {plant::barrier_after_return, "BarrierAfterReturn",
     "barrier in divergent code: .*faults.cu:[0-9]+ was reached by 63 of 64 threads, the others have returned"},
    {plant::lanes_missing, "LanesMissing",
     "lanes missing from the mask 0xffffffff: thread .* waits at .*faults.cu:[0-9]+ for lane 16, which has returned"},
    {plant::lane_left_out, "LaneLeftOut", "faults.cu:[0-9]+: thread 0 calls .*mask 0xfffffffe, which leaves it out"},
    {plant::shuffle_from_outside, "ShuffleFromOutside", "reads from lane 20, which is not in the mask 0xffff"},
    {plant::spin_on_another_block, "SpinOnAnotherBlock", "thread [0-9]+ spins at .*faults.cu:[0-9]+"},
    {plant::host_reads_device_memory, "HostReadsDeviceMemory",
     "host code touched device memory: byte 0 of an allocation of 1024 bytes"},
    {plant::host_pointer_to_kernel, "HostPointerToKernel",
     "kernel cuda_sim::copy_kernel: argument 0 holds .* which is host memory: device memory is due"},
    {plant::host_pointer_in_struct, "HostPointerInStruct",
     "kernel cuda_sim::set_kernel: argument 0 holds .* which is host memory: device memory is due"},
    {plant::memory_of_another_device, "MemoryOfAnotherDevice",
     "argument 0 holds memory of device 0, the stream is on device 1"},
    {plant::stream_of_another_device, "StreamOfAnotherDevice",
     "kernel cuda_sim::set_kernel: launched on a stream of device 0 while device 1 is current"},
    {plant::default_stream, "DefaultStream", "a launch on the default stream"},
    {plant::pageable_copy, "PageableCopy", "the destination is pageable host memory"},
    {plant::copy_past_end, "CopyPastEnd", "the source runs 4 bytes past the end of an allocation of 1024 bytes"},
    {plant::copy_the_wrong_way, "CopyTheWrongWay", "the source is device memory: host memory is due"},
    {plant::use_after_free, "UseAfterFree", "kernel cuda_sim::copy_kernel .*touched freed device memory"},
    {plant::use_before_allocation, "UseBeforeAllocation", "before its cudaMallocAsync in stream order"},
    {plant::freed_twice, "FreedTwice", "device memory is freed twice"},
    {plant::synchronize_in_capture, "SynchronizeInCapture", "cudaStreamSynchronize while stream .* is captured"},
    {plant::event_never_recorded, "EventNeverRecorded", "the event was never recorded"},
    {plant::global_read_past_end, "GlobalReadPastEnd",
     "kernel cuda_sim::memory_kernel block .*thread .*touched memory 1 bytes past the end of an allocation of 1024"},
};

class Reported : public testing::TestWithParam<named> {};

TEST_P(Reported, IsFoundAndNamed) {
  // Under the lazy pace nothing runs before its time; a wrong touch before an allocation shows nowhere else for
  // certain.
  options wanted;
  wanted.pace = pace::lazy;
  wanted.atomics = 100'000;
  EXPECT_EXIT(run_with(wanted, GetParam().fault), testing::ExitedWithCode(fault_status), GetParam().report);
}

INSTANTIATE_TEST_SUITE_P(, Reported, testing::ValuesIn(reported), name_of);

// ---- Overruns: the guards report them, under AddressSanitizer and UBSan the line is named

constexpr named overruns[]{
    {plant::shared_array_overrun, "SharedArray", "shared memory overrun: short_cells has 252 bytes and byte 252"},
    {plant::dynamic_shared_overrun, "DynamicShared", "shared memory overrun: dynamic shared memory has 256 bytes"},
    {plant::global_write_past_end, "GlobalWrite", "past the end of an allocation of 1024 bytes"},
};

class Overrun : public testing::TestWithParam<named> {};

TEST_P(Overrun, IsFoundAndNamed) {
  if (asan) {
    EXPECT_DEATH(run_with({}, GetParam().fault), "AddressSanitizer.*|past the end");
  } else {
    EXPECT_EXIT(run_with({}, GetParam().fault), testing::ExitedWithCode(fault_status), GetParam().report);
  }
}

INSTANTIATE_TEST_SUITE_P(, Overrun, testing::ValuesIn(overruns), name_of);

TEST(Overruns, OfPlainSharedMemoryIsFoundByUbsan) {
  if (!asan) GTEST_SKIP() << "needs UndefinedBehaviorSanitizer: make asan";
  EXPECT_DEATH(run_with({}, plant::plain_shared_overrun), "index 64 out of bounds");
}

TEST(MisalignedVector, IsFoundByUbsan) {
  if (!asan) GTEST_SKIP() << "needs UndefinedBehaviorSanitizer: make asan";
  EXPECT_DEATH(run_with({}, plant::misaligned_vector), "misaligned address");
}

// ---- Races between threads: wrong values in some order, and under ThreadSanitizer both lines

constexpr named races[]{
    {plant::missing_barrier, "MissingBarrier", "data race"},
    {plant::missing_loop_barrier, "MissingLoopBarrier", "data race"},
    {plant::missing_warp_sync, "MissingWarpSync", "data race"},
};

class Race : public testing::TestWithParam<named> {};

TEST_P(Race, GivesWrongValuesInSomeOrder) {
  bool found = false;
  for (order const threads : all_orders) found |= !all_six(run_with({.order = threads}, GetParam().fault));
  EXPECT_TRUE(found);
}

TEST_P(Race, IsNamedByThreadSanitizer) {
  if (!tsan) GTEST_SKIP() << "needs ThreadSanitizer: make tsan";
  EXPECT_DEATH(run_with({.race_check = true}, GetParam().fault), GetParam().report);
}

INSTANTIATE_TEST_SUITE_P(, Race, testing::ValuesIn(races), name_of);

TEST(Races, BetweenBlocksShowsInTheOrderOfBlocks) {
  std::set<float> last;
  for (order const blocks : all_orders) {
    last.insert(run_with({.order = blocks}, plant::blocks_write_one_word).back());
  }
  EXPECT_GT(last.size(), 1u);
}

TEST(Races, BetweenBlocksIsNamedByThreadSanitizer) {
  if (!tsan) GTEST_SKIP() << "needs ThreadSanitizer: make tsan";
  EXPECT_DEATH(run_with({.race_check = true}, plant::blocks_write_one_word), "data race");
}

TEST(UnwrittenSharedMemory, HoldsNoNumber) {
  auto const values = run_with({}, plant::unwritten_shared_memory);
  EXPECT_TRUE(std::none_of(values.begin(), values.end(), [](float one) { return one == 6.0f; }));
}

// ---- Missing waits between streams

constexpr named waits[]{
    {plant::consumer_does_not_wait, "ConsumerDoesNotWait", "data race"},
    {plant::writer_overtakes_reader, "WriterOvertakesReader", "data race"},
    {plant::host_does_not_wait, "HostDoesNotWait", "data race"},
};

class MissingWait : public testing::TestWithParam<named> {};

TEST_P(MissingWait, GivesWrongValuesUnderTheLazyPaceWithEverySeed) {
  if (tsan) GTEST_SKIP() << "ThreadSanitizer ends the program first";
  for (std::uint64_t seed = 1; seed <= 20; ++seed) {
    EXPECT_FALSE(all_six(run_with({.seed = seed, .pace = pace::lazy}, GetParam().fault))) << seed;
  }
}

TEST_P(MissingWait, IsNamedByThreadSanitizerEvenWhereTheValuesAreRight) {
  if (!tsan) GTEST_SKIP() << "needs ThreadSanitizer: make tsan";
  EXPECT_DEATH(run_with({.pace = pace::eager}, GetParam().fault), GetParam().report);
}

INSTANTIATE_TEST_SUITE_P(, MissingWait, testing::ValuesIn(waits), name_of);

// ---- No fault, no alarm

TEST(NoFault, GivesNoAlarmAndRightValuesAtEveryPaceAndOrder) {
  for (pace const speed : all_paces) {
    for (order const threads : all_orders) {
      for (std::uint64_t seed = 1; seed <= (tsan ? 2u : 20u); ++seed) {
        EXPECT_TRUE(all_six(run_with({.seed = seed, .pace = speed, .order = threads}, plant::nothing)))
            << static_cast<int>(speed) << ", " << static_cast<int>(threads) << ", " << seed;
      }
    }
  }
  EXPECT_EQ(count().live, 0u);
}

TEST(NoFault, GivesNoAlarmWhenThreadsAreChecked) {
  EXPECT_TRUE(all_six(run_with({.race_check = true}, plant::nothing)));
}

}  // namespace
}  // namespace cuda_sim
