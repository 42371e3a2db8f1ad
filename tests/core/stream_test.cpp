#include <gradwire/stream.hpp>

#include <gtest/gtest.h>

#include <atomic>
#include <latch>
#include <stdexcept>
#include <thread>
#include <vector>

#include <gradwire/error.hpp>

#include "core/event_state.hpp"

namespace gradwire {
namespace {

using namespace std::chrono_literals;

TEST(HostStream, RunsItsTasksInOrderOnOneThread) {
  std::vector<int> order;
  std::vector<std::thread::id> threads;
  host_stream stream;
  for (int i = 0; i < 1000; ++i) {
    enqueue(stream.ref(), [&, i] {
      order.push_back(i);
      threads.push_back(std::this_thread::get_id());
    });
  }
  synchronize(stream.ref());
  ASSERT_EQ(order.size(), 1000U);
  for (int i = 0; i < 1000; ++i) EXPECT_EQ(order[static_cast<std::size_t>(i)], i);
  for (auto const id : threads) EXPECT_EQ(id, threads[0]);
  EXPECT_NE(threads[0], std::this_thread::get_id());
}

TEST(HostStream, DestructionRunsWhatWasEnqueued) {
  std::atomic<int> ran = 0;
  {
    host_stream stream;
    for (int i = 0; i < 50; ++i) enqueue(stream.ref(), [&] { ++ran; });
  }
  EXPECT_EQ(ran, 50);
}

TEST(HostStream, TakesTasksFromManyThreads) {
  int sum = 0;  // guarded by the stream's order
  host_stream stream;
  {
    std::vector<std::jthread> threads;
    for (int t = 0; t < 4; ++t) {
      threads.emplace_back([&] {
        for (int i = 0; i < 250; ++i) enqueue(stream.ref(), [&] { ++sum; });
      });
    }
  }
  synchronize(stream.ref());
  EXPECT_EQ(sum, 1000);
}

TEST(HostStream, EnqueueReturnsWhileAnEarlierTaskStillRuns) {
  std::latch open{1};
  std::atomic<bool> ran = false;
  host_stream stream;
  enqueue(stream.ref(), [&] { open.wait(); });
  enqueue(stream.ref(), [&] { ran = true; });
  EXPECT_FALSE(ran);
  open.count_down();
  synchronize(stream.ref());
  EXPECT_TRUE(ran);
}

TEST(NullStream, RunsInlineAndLetsExceptionsThrough) {
  auto const here = std::this_thread::get_id();
  std::thread::id there;
  enqueue({}, [&] { there = std::this_thread::get_id(); });
  EXPECT_EQ(there, here);
  EXPECT_THROW(enqueue({}, [] { throw std::out_of_range{"row 7"}; }), std::out_of_range);
  EXPECT_NO_THROW(synchronize({}));
}

TEST(CudaStream, IsRefusedWithoutCuda) {
  if (cuda_streams() != nullptr) GTEST_SKIP() << "this build has CUDA: see tests/cuda_sim/library_test.cu";
  int anything = 0;
  stream_ref const stream{device_kind::cuda, &anything};
  for (auto const& call :
       std::vector<std::function<void()>>{[&] { enqueue(stream, [] {}); }, [&] { synchronize(stream); },
                                          [&] {
                                            event point;
                                            point.record(stream);
                                          }}) {
    try {
      call();
      ADD_FAILURE() << "was accepted";
    } catch (error const& why) {
      EXPECT_EQ(why.code(), errc::unsupported);
    }
  }
}

TEST(Event, IsReachedBeforeItIsRecordedAndOnTheNullStream) {
  event point;
  EXPECT_TRUE(point.ready());
  point.wait();
  point.record({});
  EXPECT_TRUE(point.ready());
}

TEST(Event, IsReachedWhenEverythingBeforeItIsDone) {
  std::latch open{1};
  host_stream stream;
  enqueue(stream.ref(), [&] { open.wait(); });
  event point;
  point.record(stream.ref());
  auto const copy = point;
  EXPECT_FALSE(point.ready());
  EXPECT_FALSE(copy.ready());
  open.count_down();
  copy.wait();
  EXPECT_TRUE(point.ready());
}

TEST(Event, OrdersTwoStreams) {
  for (int round = 0; round < 50; ++round) {
    int value = 0;  // ThreadSanitizer watches that the event is what orders these
    host_stream producer;
    host_stream consumer;
    int seen = -1;
    enqueue(producer.ref(), [&] { value = 42; });
    event produced;
    produced.record(producer.ref());
    wait(consumer.ref(), produced);
    enqueue(consumer.ref(), [&] { seen = value; });
    synchronize(consumer.ref());
    EXPECT_EQ(seen, 42);
    synchronize(producer.ref());
  }
}

TEST(Event, RecordingAgainLeavesEarlierWaitsAtTheirPoint) {
  std::latch open{1};
  host_stream slow;
  host_stream waiting;
  event point;
  point.record({});
  wait(waiting.ref(), point);
  enqueue(slow.ref(), [&] { open.wait(); });
  point.record(slow.ref());
  EXPECT_NO_THROW(synchronize(waiting.ref()));
  EXPECT_FALSE(point.ready());
  open.count_down();
  point.wait();
}

TEST(Event, AWaitThatRunsOutSaysSoAndLeavesTheEventUsable) {
  std::latch open{1};
  host_stream stream;
  enqueue(stream.ref(), [&] { open.wait(); });
  event point;
  point.record(stream.ref());
  try {
    point.wait(1ms);
    ADD_FAILURE() << "was reached";
  } catch (error const& why) {
    EXPECT_EQ(why.code(), errc::timeout);
    EXPECT_NE(std::string{why.what()}.find("1 ms"), std::string::npos) << why.what();
  }
  open.count_down();
  EXPECT_NO_THROW(point.wait());
}

TEST(Failure, DropsTheTasksBehindItAndReachesEventsAndSynchronize) {
  std::atomic<bool> ran = false;
  host_stream stream;
  event before;
  event behind;
  before.record(stream.ref());
  enqueue(stream.ref(), [] { throw std::out_of_range{"row 7"}; });
  enqueue(stream.ref(), [&] { ran = true; });
  behind.record(stream.ref());
  EXPECT_NO_THROW(before.wait());
  EXPECT_THROW(behind.wait(), std::out_of_range);
  EXPECT_TRUE(behind.ready());
  EXPECT_THROW(synchronize(stream.ref()), std::out_of_range);
  EXPECT_FALSE(ran);
}

TEST(Failure, IsReportedOnceAndTheStreamWorksOn) {
  std::atomic<bool> ran = false;
  host_stream stream;
  enqueue(stream.ref(), [] { throw std::out_of_range{"row 7"}; });
  EXPECT_THROW(synchronize(stream.ref()), std::out_of_range);
  enqueue(stream.ref(), [&] { ran = true; });
  EXPECT_NO_THROW(synchronize(stream.ref()));
  EXPECT_TRUE(ran);
}

TEST(Failure, TravelsFromStreamToStreamThroughEvents) {
  std::atomic<bool> ran = false;
  host_stream first;
  host_stream second;
  enqueue(first.ref(), [] { throw std::out_of_range{"row 7"}; });
  event point;
  point.record(first.ref());
  wait(second.ref(), point);
  enqueue(second.ref(), [&] { ran = true; });
  EXPECT_THROW(synchronize(second.ref()), std::out_of_range);
  EXPECT_FALSE(ran);
  EXPECT_THROW(wait({}, point), std::out_of_range);
}

TEST(Failure, ATimeoutOfSynchronizeDoesNotClearIt) {
  std::latch open{1};
  host_stream stream;
  enqueue(stream.ref(), [&] { open.wait(); });
  enqueue(stream.ref(), [] { throw std::out_of_range{"row 7"}; });
  EXPECT_THROW(synchronize(stream.ref(), 1ms), error);
  open.count_down();
  EXPECT_THROW(synchronize(stream.ref()), std::out_of_range);
}

TEST(Failure, DestructionOfAFailedStreamDoesNotThrow) {
  event point;
  {
    host_stream stream;
    enqueue(stream.ref(), [] { throw std::out_of_range{"row 7"}; });
    point.record(stream.ref());
  }
  EXPECT_THROW(point.wait(), std::out_of_range);
}

}  // namespace
}  // namespace gradwire
