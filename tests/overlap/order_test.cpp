#include <algorithm>
#include <future>
#include <random>
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include <gradwire/inproc.hpp>
#include <gradwire/reducer.hpp>

#include "tests/overlap/scripted_communicator.hpp"
#include "tests/overlap/toy_model.hpp"

namespace gradwire {
namespace {

using namespace test;

TEST(LaunchOrder, IsTheSameOnAllRanksHoweverReadinessComesAndTheWireIs) {
  for (std::uint64_t seed = 1; seed <= 6; ++seed) {
    SCOPED_TRACE(testing::Message() << "seed " << seed);
    std::vector<std::vector<std::string>> issued(3);
    std::vector<std::vector<float>> means(3);
    run_ranks(3, [&](communicator& inner) {
      scripted_communicator comm{inner};
      comm.delay_from(seed * 10 + comm.rank());
      std::mt19937_64 random{seed * 100 + comm.rank()};
      auto const parameters = toy_parameters();
      reducer with{comm, parameters, small_buckets("f16+ef+via(two_shot)")};
      std::vector<std::size_t> order{0, 1, 2, 3, 4, 5, 6};
      for (std::size_t step = 0; step < 5; ++step) {
        std::shuffle(order.begin(), order.end(), random);
        std::size_t const marked = random() % (order.size() + 1);  // the rest has no use in this step
        for (std::size_t i = 0; i < order.size(); ++i) fill_gradient(with, parameters, order[i], comm.rank(), step);
        for (std::size_t i = 0; i < marked; ++i) with.mark_ready(order[i]);
        with.synchronize();
      }
      issued[comm.rank()] = comm.issued();
      means[comm.rank()] = all_gradients(with, parameters);
    });
    EXPECT_EQ(issued[0], issued[1]);
    EXPECT_EQ(issued[0], issued[2]);
    EXPECT_TRUE(means[0] == means[1] && means[0] == means[2]);
  }
}

TEST(LaunchOrder, StartsTheSecondExchangeOfAChunkBehindTheFirstOneOfTheNext) {
  run_ranks(2, [&](communicator& inner) {
    scripted_communicator comm{inner};
    // One bucket of four chunks of 250 f32: each is a whole exchange of 1,000 bytes.
    std::vector<parameter> const parameters{{"w", {10, 100}, dtype::f32, nullptr}};
    reducer with{comm, parameters, {.method = spec::parse("none+via(two_shot)"), .min_numel = 0, .chunk_bytes = 1000}};
    std::size_t const before = comm.issued().size();
    with.mark_ready(0);
    with.synchronize();
    auto const issued = comm.issued();
    std::vector<std::string> operations;
    for (std::size_t i = before; i < before + 8; ++i) operations.push_back(issued[i].substr(0, issued[i].find(' ')));
    EXPECT_EQ(operations, (std::vector<std::string>{"all_to_all", "all_to_all", "all_gather", "all_to_all",
                                                    "all_gather", "all_to_all", "all_gather", "all_gather"}));
  });
}

TEST(LaunchOrder, SendsABucketBeforeLaterOnesAreReady) {
  run_ranks(2, [&](communicator& inner) {
    scripted_communicator comm{inner};
    auto const parameters = toy_parameters();
    reducer with{comm, parameters, small_buckets("none")};
    toy_step(with, parameters, comm.rank(), 0);
    std::size_t const before = comm.issued().size();
    fill_gradient(with, parameters, 6, comm.rank(), 1);
    with.mark_ready(6);  // a bucket of its own, the first one
    EXPECT_GT(comm.issued().size(), before);
    for (std::size_t tensor = 6; tensor-- > 0;) with.mark_ready(tensor);
    with.synchronize();
  });
}

TEST(MarkReady, ReturnsWhileTheWireStandsStill) {
  run_ranks(2, [&](communicator& inner) {
    scripted_communicator comm{inner};
    auto const parameters = toy_parameters();
    reducer with{comm, parameters, small_buckets("f16+ef")};
    comm.hold();
    for (std::size_t tensor = parameters.size(); tensor-- > 0;) {
      fill_gradient(with, parameters, tensor, comm.rank(), 0);
      with.mark_ready(tensor);
    }
    comm.release();  // reached only because nothing above waited for the wire
    with.synchronize();
    EXPECT_EQ(with.stats().steps, 1U);
  });
}

TEST(MarkReady, TakesTheGradientAsTheProducingStreamLeavesIt) {
  run_ranks(2, [&](communicator& comm) {
    auto const parameters = toy_parameters();
    reducer with{comm, parameters, small_buckets("none")};
    for (std::size_t step = 0; step < 5; ++step) {
      std::promise<void> go;
      host_stream producer{"producer"};
      enqueue(producer.ref(), [ready = go.get_future().share()] { ready.wait(); });
      for (std::size_t tensor = parameters.size(); tensor-- > 0;) {
        enqueue(producer.ref(), [&, tensor] { fill_gradient(with, parameters, tensor, comm.rank(), step); });
        with.mark_ready(tensor, producer.ref());
      }
      go.set_value();  // only now does the first gradient appear
      with.synchronize();
      ASSERT_EQ(static_cast<float*>(with.gradient(4))[77], static_cast<float>(toy_mean(2, step, 4, 77)));
    }
  });
}

TEST(Synchronize, LetsAStreamWaitInsteadOfTheCaller) {
  run_ranks(2, [&](communicator& inner) {
    scripted_communicator comm{inner};
    auto const parameters = toy_parameters();
    reducer with{comm, parameters, small_buckets("f16+ef")};
    toy_step(with, parameters, comm.rank(), 0);  // the first one blocks, to agree on the order
    host_stream compute{"compute"};
    std::vector<float> seen;
    for (std::size_t step = 1; step < 4; ++step) {
      for (std::size_t tensor = parameters.size(); tensor-- > 0;) {
        enqueue(compute.ref(), [&, tensor, step] { fill_gradient(with, parameters, tensor, comm.rank(), step); });
        with.mark_ready(tensor, compute.ref());
      }
      if (step == 2) comm.hold();
      with.synchronize(compute.ref());
      enqueue(compute.ref(), [&] { seen.push_back(static_cast<float*>(with.gradient(0))[0]); });
    }
    comm.release();  // step 3 was held on the wire: its synchronize() has returned all the same
    synchronize(compute.ref());
    std::vector<float> expected;
    for (std::size_t step = 1; step < 4; ++step) expected.push_back(static_cast<float>(toy_mean(2, step, 0, 0)));
    EXPECT_EQ(seen, expected);
    EXPECT_EQ(with.stats().steps, 4U);
  });
}

}  // namespace
}  // namespace gradwire
