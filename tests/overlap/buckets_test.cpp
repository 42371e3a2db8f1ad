#include "overlap/buckets.hpp"

#include <vector>

#include <gtest/gtest.h>

namespace gradwire::overlap {
namespace {

using index_list = std::vector<std::size_t>;

// Items of f32 parameters with these counts.
std::vector<bucket_item> parameters(std::vector<std::size_t> const& counts, std::vector<std::size_t> const& groups) {
  std::vector<bucket_item> result;
  for (std::size_t i = 0; i < counts.size(); ++i) result.push_back({groups[i], 4 * counts[i]});
  return result;
}

TEST(PlanBuckets, FillsTheFirstOneToItsOwnSmallLimit) {
  auto const given = parameters({10, 10, 10, 10, 10}, {0, 0, 0, 0, 0});
  // 40 bytes each, in order 4, 3, 2, 1, 0: the first bucket closes at 40 bytes, the next at 80 or more.
  EXPECT_EQ(plan_buckets(given, index_list{4, 3, 2, 1, 0}, 40, 80), (std::vector<index_list>{{4}, {3, 2}, {1, 0}}));
}

TEST(PlanBuckets, NeverMixesGroups) {
  auto const given = parameters({10, 10, 10, 10}, {0, 1, 0, 1});
  EXPECT_EQ(plan_buckets(given, index_list{3, 2, 1, 0}, 1000, 1000), (std::vector<index_list>{{3, 1}, {2, 0}}));
}

TEST(PlanBuckets, OrdersBucketsByWhenTheirLastMemberIsReady) {
  auto const given = parameters({1, 10, 10, 1}, {0, 1, 1, 0});
  // Group 0 is complete with the last parameter only, so it must not hold back group 1.
  EXPECT_EQ(plan_buckets(given, index_list{3, 2, 1, 0}, 40, 40), (std::vector<index_list>{{2}, {1}, {3, 0}}));
}

TEST(PlanBuckets, GivesOneLargeParameterABucketOfItsOwn) {
  auto const given = parameters({1000, 1, 1}, {0, 0, 0});
  EXPECT_EQ(plan_buckets(given, index_list{0, 1, 2}, 8, 8), (std::vector<index_list>{{0}, {1, 2}}));
}

TEST(PlanBuckets, PlansNothingForNoParameters) { EXPECT_TRUE(plan_buckets({}, {}, 8, 8).empty()); }

}  // namespace
}  // namespace gradwire::overlap
