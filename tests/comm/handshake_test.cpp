#include <gradwire/handshake.hpp>

#include <gtest/gtest.h>

#include <functional>
#include <mutex>
#include <string>
#include <vector>

#include <gradwire/error.hpp>
#include <gradwire/inproc.hpp>

namespace gradwire {
namespace {

using fields = std::vector<config_field>;

// The text that each rank gets; the test fails where a rank gets none.
std::vector<std::string> refusals(std::size_t ranks, std::function<fields(std::size_t)> const& of) {
  std::vector<std::string> texts(ranks);
  run_ranks(ranks, [&](communicator& comm) {
    auto const mine = of(comm.rank());
    try {
      require_equal_configuration(comm, mine);
    } catch (error const& why) {
      EXPECT_EQ(why.code(), errc::mismatch);
      texts[comm.rank()] = why.what();
    }
    comm.barrier({}).wait();  // the group works on
  });
  for (auto const& text : texts) EXPECT_FALSE(text.empty());
  return texts;
}

void expect_in(std::string const& text, std::string const& part) {
  EXPECT_NE(text.find(part), std::string::npos) << "'" << part << "' is not in: " << text;
}

TEST(Handshake, EqualConfigurationsCostOneCollective) {
  run_ranks(4, [](communicator& comm) {
    fields const mine{{"spec", "onebit+ef"}, {"parameters", "w: 10, b: 2"}};
    require_equal_configuration(comm, mine);
    EXPECT_EQ(comm.stats().collectives, 1U);
  });
}

TEST(Handshake, EveryRankIsToldFieldAndValuesAndWhoDiffers) {
  auto const texts = refusals(4, [](std::size_t rank) {
    return fields{{"version", "0.1.0"}, {"spec", rank == 1 || rank == 3 ? "none" : "onebit(block=1024)+ef"}};
  });
  for (auto const& text : texts) {
    expect_in(text, "'spec'");
    expect_in(text, "rank 0 has 'onebit(block=1024)+ef'");
    expect_in(text, "rank 1 has 'none'");
    expect_in(text, "rank 3 has 'none'");
    EXPECT_EQ(text.find("rank 2"), std::string::npos) << text;
    EXPECT_EQ(text.find("version"), std::string::npos) << text;
  }
}

TEST(Handshake, AFieldThatARankLacksIsNamed) {
  auto const texts = refusals(2, [](std::size_t rank) {
    return rank == 0 ? fields{{"spec", "none"}} : fields{{"spec", "none"}, {"rule", "w=>f16"}};
  });
  for (auto const& text : texts) {
    expect_in(text, "'rule'");
    expect_in(text, "rank 0 has nothing");
    expect_in(text, "rank 1 has 'w=>f16'");
  }
}

TEST(Handshake, OfALongListTheFirstDifferingEntryIsShown) {
  auto const texts = refusals(2, [](std::size_t rank) {
    std::string list;
    for (std::size_t i = 0; i < 1000; ++i) {
      list += (i == 0 ? "layer" : ",layer") + std::to_string(i) + ":" + std::to_string(i == 700 && rank == 1 ? 65 : 64);
    }
    return fields{{"parameters", list}};
  });
  for (auto const& text : texts) {
    expect_in(text, "layer700:64");
    expect_in(text, "layer700:65");
    EXPECT_LT(text.size(), 500U) << text;
  }
}

TEST(Handshake, TextsThatOnlyDifferInWhereOneFieldEndsAreToldApart) {
  auto const texts = refusals(2, [](std::size_t rank) {
    return rank == 0 ? fields{{"a", "xy"}, {"b", "z"}} : fields{{"a", "x"}, {"b", "yz"}};
  });
  for (auto const& text : texts) expect_in(text, "'a': rank 0 has 'xy', rank 1 has 'x'");
}

}  // namespace
}  // namespace gradwire
