#include <functional>
#include <optional>
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include <gradwire/error.hpp>
#include <gradwire/inproc.hpp>
#include <gradwire/reducer.hpp>

#include "tests/overlap/scripted_communicator.hpp"
#include "tests/overlap/toy_model.hpp"

namespace gradwire {
namespace {

using namespace test;

// The failure of `work`, empty when there is none.
std::optional<error> failure_of(std::function<void()> const& work) {
  try {
    work();
  } catch (error const& failure) {
    return failure;
  }
  return std::nullopt;
}

void expect_refused(std::string const& word, std::function<void()> const& work) {
  auto const failure = failure_of(work);
  ASSERT_TRUE(failure.has_value()) << "nothing was thrown, where '" << word << "' was expected";
  EXPECT_EQ(failure->code(), errc::invalid_argument);
  EXPECT_NE(std::string{failure->what()}.find(word), std::string::npos) << failure->what();
}

TEST(Failure, OfOneCollectiveEndsSynchronizeOnEveryRank) {
  for (std::size_t const after : {0U, 1U, 3U}) {
    run_ranks(3, [&](communicator& inner) {
      scripted_communicator comm{inner};
      auto const parameters = toy_parameters();
      reducer with{
          comm, parameters, {.method = spec::parse("f16+ef"), .first_bucket_bytes = 256, .bucket_bytes = 4000}};
      toy_step(with, parameters, comm.rank(), 0);
      if (comm.rank() == 1) comm.fail_after(after);
      auto const failure = failure_of([&] { toy_step(with, parameters, comm.rank(), 1); });
      ASSERT_TRUE(failure.has_value()) << "rank " << comm.rank();
      EXPECT_EQ(failure->code(), errc::communicator);
      if (comm.rank() == 1) {
        EXPECT_NE(std::string{failure->what()}.find("a test asked"), std::string::npos);
      }
      // Unusable from now on, and says so at once.
      EXPECT_TRUE(failure_of([&] { toy_step(with, parameters, comm.rank(), 2); }).has_value());
    });
  }
}

TEST(Failure, OfAProducerIsThatOfTheStep) {
  run_ranks(2, [&](communicator& comm) {
    auto const parameters = toy_parameters();
    reducer with{comm, parameters, {}};
    host_stream producer{"producer"};
    if (comm.rank() == 0) enqueue(producer.ref(), [] { throw error{errc::out_of_memory, "backward ran out"}; });
    for (std::size_t tensor = 0; tensor < parameters.size(); ++tensor) with.mark_ready(tensor, producer.ref());
    auto const failure = failure_of([&] { with.synchronize(); });
    ASSERT_TRUE(failure.has_value()) << "rank " << comm.rank();
    if (comm.rank() == 0) {
      EXPECT_STREQ(failure->what(), "backward ran out");
    }
  });
}

TEST(Failure, InAStreamThatWaitsReachesTheOtherRanksToo) {
  run_ranks(2, [&](communicator& inner) {
    scripted_communicator comm{inner};
    auto const parameters = toy_parameters();
    reducer with{comm, parameters, {}};
    toy_step(with, parameters, comm.rank(), 0);
    if (comm.rank() == 1) comm.fail_after(0);
    host_stream compute{"compute"};
    for (std::size_t tensor = 0; tensor < parameters.size(); ++tensor) with.mark_ready(tensor);
    with.synchronize(compute.ref());
    EXPECT_TRUE(failure_of([&] { synchronize(compute.ref()); }).has_value()) << "rank " << comm.rank();
  });
}

TEST(Failure, OutsideTheReducerInTheMiddleOfAStepLeavesNoRankWaiting) {
  std::vector<std::string> seen(2);
  try {
    run_ranks(2, [&](communicator& comm) {
      auto const parameters = toy_parameters();
      reducer with{comm, parameters, {.first_bucket_bytes = 16, .bucket_bytes = 16}};
      if (comm.rank() == 0) {
        with.mark_ready(6);
        throw error{errc::out_of_memory, "backward failed"};
      }
      auto const failure = failure_of([&] { toy_step(with, parameters, comm.rank(), 0); });
      ASSERT_TRUE(failure.has_value());
      seen[1] = failure->what();
    });
    ADD_FAILURE() << "rank 0's failure was lost";
  } catch (error const& failure) {
    EXPECT_STREQ(failure.what(), "backward failed");
  }
  EXPECT_FALSE(seen[1].empty());
}

TEST(Failure, OfConfigurationNamesTheFieldOnEveryRank) {
  struct difference {
    char const* word;
    std::function<void(reducer_options&, std::vector<parameter>&)> make;
  };
  std::vector<difference> const differences{
      {"method", [](auto& options, auto&) { options.method = spec::parse("bf16"); }},
      {"rules", [](auto& options, auto&) { options.rules = {rule::parse("name~x=>none")}; }},
      {"seed", [](auto& options, auto&) { options.seed = 5; }},
      {"bucket_bytes", [](auto& options, auto&) { options.bucket_bytes = 77; }},
      {"parameter 4",
       [](auto&, auto& parameters) {
         parameters[4].shape = {48, 64};
       }},
      {"number of parameters", [](auto&, auto& parameters) { parameters.pop_back(); }}};
  for (difference const& each : differences) {
    run_ranks(3, [&](communicator& comm) {
      reducer_options options;
      auto parameters = toy_parameters();
      if (comm.rank() == 2) each.make(options, parameters);
      auto const failure = failure_of([&] { reducer{comm, parameters, options}; });
      ASSERT_TRUE(failure.has_value()) << each.word;
      EXPECT_EQ(failure->code(), errc::mismatch);
      EXPECT_NE(std::string{failure->what()}.find(each.word), std::string::npos) << failure->what();
      EXPECT_NE(std::string{failure->what()}.find("2"), std::string::npos) << failure->what();
    });
  }
}

TEST(Misuse, IsRefusedWithTheReason) {
  run_ranks(1, [&](communicator& comm) {
    auto const parameters = toy_parameters();
    reducer with{comm, parameters, {}};
    with.mark_ready(1);
    expect_refused("twice", [&] { with.mark_ready(1); });
    expect_refused("layer0.weight", [&] { with.mark_ready(1); });
    expect_refused("there are 7", [&] { with.mark_ready(7); });
    expect_refused("zero_gradients", [&] { with.zero_gradients(); });
    expect_refused("save_state", [&] { static_cast<void>(with.save_state()); });
    expect_refused("no_sync", [&] { static_cast<void>(with.no_sync()); });
    with.synchronize();
    auto const guard = with.no_sync();
    expect_refused("no_sync", [&] { with.synchronize(); });
    expect_refused("timeline", [&] { with.write_timeline("/tmp/never-written.json"); });
  });
}

TEST(Misuse, OfNamesAndSizesIsRefused) {
  run_ranks(1, [&](communicator& comm) {
    auto parameters = toy_parameters();
    parameters[2].name = "odd";
    expect_refused("'odd'", [&] { reducer{comm, parameters, {}}; });
    parameters[2].name = "";
    expect_refused("parameter 2", [&] { reducer{comm, parameters, {}}; });
    expect_refused("chunk_bytes", [&] { reducer{comm, toy_parameters(), {.chunk_bytes = 0}}; });
  });
}

}  // namespace
}  // namespace gradwire
