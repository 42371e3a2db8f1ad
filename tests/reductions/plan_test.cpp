#include "comm/reductions/plan.hpp"

#include <array>
#include <random>
#include <vector>

#include <gtest/gtest.h>

#include <gradwire/spec.hpp>

namespace gradwire::reductions {
namespace {

struct drawn {
  std::vector<segment> segments;
  std::size_t parts = 1;
};

drawn draw(std::mt19937_64& random) {
  drawn result;
  result.parts = 1 + random() % 9;
  std::size_t offset = 0;
  std::size_t const segments = random() % 6;
  for (std::uint32_t id = 0; id < segments; ++id) {
    std::size_t const count = random() % 4 == 0 ? random() % 3 : random() % 20000;
    result.segments.push_back({offset, offset + 7, count, 0, id});
    offset += count;
  }
  return result;
}

TEST(CutEvenly, GivesBackEveryElementOnceInOrderCutAtBlocks) {
  constexpr std::uint64_t seed = 7;
  std::mt19937_64 random{seed};
  for (char const* const text : {"none", "f16", "topk(ratio=0.01)"}) {
    codec const method = codec::parse(text);
    for (int round = 0; round < 200; ++round) {
      SCOPED_TRACE(testing::Message() << text << " seed " << seed << " round " << round);
      drawn const given = draw(random);
      auto const parts = cut_evenly(method, given.segments, given.parts);
      ASSERT_EQ(parts.size(), given.parts);
      std::vector<std::size_t> covered(given.segments.size());
      std::size_t last = 0;
      std::size_t bytes = 0;
      for (auto const& part : parts) {
        bytes += method.encoded_bytes(std::span<segment const>{part});
        for (segment const& each : part) {
          ASSERT_GE(each.tensor_id, last);
          last = each.tensor_id;
          segment const& whole = given.segments[each.tensor_id];
          ASSERT_EQ(each.first, covered[each.tensor_id]);
          ASSERT_EQ(each.offset, whole.offset + each.first);
          ASSERT_EQ(each.residual_offset, whole.residual_offset + each.first);
          if (method.granule() != 0) {
            ASSERT_EQ(each.first % method.granule(), 0U);
          }
          covered[each.tensor_id] += each.count;
        }
      }
      for (std::size_t i = 0; i < covered.size(); ++i) ASSERT_EQ(covered[i], given.segments[i].count);
      // The parts' payloads one behind the other are the payload of the whole.
      ASSERT_EQ(bytes, method.encoded_bytes(std::span<segment const>{given.segments}));
    }
  }
}

TEST(CutEvenly, MakesShardsThatDifferByNoMoreThanABlock) {
  codec const method = codec::parse("none");
  std::array<segment, 2> const segments{segment{0, 0, 1000, 0, 0}, segment{1000, 1000, 24, 0, 1}};
  for (std::size_t const parts : {2U, 3U, 7U, 1024U}) {
    for (auto const& part : cut_evenly(method, segments, parts)) {
      double const bytes = static_cast<double>(method.encoded_bytes(std::span<segment const>{part}));
      EXPECT_NEAR(bytes, 4096.0 / static_cast<double>(parts), 4.0);
    }
  }
}

TEST(CutEvenly, GivesFewElementsToSomeAndNoneToOthers) {
  std::array<segment, 1> const segments{segment{0, 0, 3, 0, 0}};
  std::size_t empty = 0;
  for (auto const& part : cut_evenly(codec::parse("none"), segments, 7)) empty += part.empty() ? 1U : 0U;
  EXPECT_EQ(empty, 4U);
}

TEST(CutEvenly, HandlesMoreThanTwoToTheThirtyTwoElements) {
  std::size_t const count = (std::size_t{1} << 40) + 5;
  std::array<segment, 1> const segments{segment{0, 0, count, 0, 0}};
  auto const parts = cut_evenly(codec::parse("none"), segments, 7);
  std::size_t covered = 0;
  for (auto const& part : parts) covered += part.at(0).count;
  EXPECT_EQ(covered, count);
  EXPECT_NEAR(static_cast<double>(parts[6].at(0).count), static_cast<double>(count) / 7, 1.0);
}

TEST(CutSmall, NamesWhereEachPieceLiesInThePayload) {
  codec const method = codec::parse("none");
  std::array<segment, 2> const segments{segment{10, 20, 5, 0, 0}, segment{15, 25, 2, 0, 1}};
  auto const pieces = cut_small(method, segments, 3);
  ASSERT_EQ(pieces.size(), 3U);
  std::array<std::size_t, 3> const offsets{0, 12, 20};
  std::array<std::size_t, 3> const bytes{12, 8, 8};
  std::array<std::size_t, 3> const firsts{0, 3, 0};
  for (std::size_t i = 0; i < 3; ++i) {
    EXPECT_EQ(pieces[i].payload_offset, offsets[i]);
    EXPECT_EQ(pieces[i].payload_bytes, bytes[i]);
    EXPECT_EQ(pieces[i].part.first, firsts[i]);
  }
}

}  // namespace
}  // namespace gradwire::reductions
