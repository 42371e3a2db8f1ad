#include "program/sweep/plan.hpp"

#include <limits>
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include <gradwire/error.hpp>

#include "program/common/context.hpp"

namespace gradwire::program::sweep {
namespace {

using counts = std::vector<std::size_t>;

TEST(SweepCounts, GoFromTheSmallestToTheLargestSize) {
  EXPECT_EQ(sweep_counts(8, 64, 2, dtype::f32), (counts{2, 4, 8, 16}));
  EXPECT_EQ(sweep_counts(8, 63, 2, dtype::f16), (counts{4, 8, 16}));
  EXPECT_EQ(sweep_counts(100, 100, 2, dtype::f32), (counts{25}));
}

TEST(SweepCounts, StartAtNothingWhenAsked) { EXPECT_EQ(sweep_counts(0, 16, 2, dtype::f32), (counts{0, 1, 2, 4})); }

TEST(SweepCounts, RoundOddSizesDownToElementsOnce) {
  EXPECT_EQ(sweep_counts(1, 30, 3, dtype::f32), (counts{0, 2, 6}));  // 1, 3, 9 and 27 bytes
}

TEST(SweepCounts, EndBeforeSizesOverflow) {
  auto const most = std::numeric_limits<std::size_t>::max();
  EXPECT_EQ(sweep_counts(most / 2, most, 4, dtype::f32).size(), 1U);
}

TEST(SweepCounts, RefuseWhatNeverEnds) {
  EXPECT_THROW(static_cast<void>(sweep_counts(8, 64, 1, dtype::f32)), program_error);
  EXPECT_THROW(static_cast<void>(sweep_counts(8, 64, 0, dtype::f32)), program_error);
  EXPECT_THROW(static_cast<void>(sweep_counts(65, 64, 2, dtype::f32)), program_error);
}

std::vector<std::string> texts(std::vector<std::string> const& specs, std::vector<std::string> const& reductions) {
  std::vector<std::string> result;
  for (auto const& method : sweep_methods(specs, reductions)) result.push_back(method.label);
  return result;
}

TEST(SweepMethods, AlwaysHaveTheDenseBaselineFirst) {
  EXPECT_EQ(texts({"bf16"}, {"auto"}), (std::vector<std::string>{"none", "bf16"}));
  EXPECT_EQ(texts({"bf16", "none"}, {"auto"}), (std::vector<std::string>{"none", "bf16"}));
  EXPECT_EQ(texts({"none+via(two_shot)"}, {"auto"}), (std::vector<std::string>{"none", "none+via(two_shot)"}));
}

TEST(SweepMethods, AreSpecsTimesReductionsEachOnce) {
  auto const found = texts({"bf16", "bf16"}, {"one_shot", "two_shot"});
  EXPECT_EQ(found, (std::vector<std::string>{"none", "bf16+via(one_shot)", "bf16+via(two_shot)"}));
}

TEST(SweepMethods, AreCalledAsTheyWereWritten) {
  EXPECT_EQ(texts({"quant(bits=4)", "quant(bits=4,block=256)"}, {"auto"}),
            (std::vector<std::string>{"none", "quant(bits=4)"}));  // one method: 256 is the preset
}

TEST(SweepMethods, RefuseAContradiction) {
  EXPECT_THROW(static_cast<void>(texts({"bf16+via(one_shot)"}, {"two_shot"})), program_error);
  EXPECT_EQ(texts({"bf16+via(one_shot)"}, {"one_shot"}).size(), 2U);
}

TEST(SweepMethods, RefuseWhatASweepCannotShow) {
  EXPECT_THROW(static_cast<void>(texts({"bf16+warmup(steps=5)"}, {"auto"})), program_error);
  EXPECT_THROW(static_cast<void>(texts({"nope"}, {"auto"})), error);
  try {
    static_cast<void>(texts({"bf16"}, {"nope"}));
    FAIL() << "accepted";
  } catch (program_error const& failure) {
    EXPECT_NE(std::string{failure.what()}.find("two_shot"), std::string::npos) << failure.what();
  }
}

}  // namespace
}  // namespace gradwire::program::sweep
