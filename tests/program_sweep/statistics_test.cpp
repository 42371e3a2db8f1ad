#include "program/sweep/statistics.hpp"

#include <array>
#include <vector>

#include <gtest/gtest.h>

#include <gradwire/error.hpp>

#include "program/sweep/result.hpp"

namespace gradwire::program::sweep {
namespace {

TEST(Percentile, IsTheNearestRank) {
  // 1 … 100 in any order: the p-th percentile is p.
  std::vector<double> values;
  for (int i = 0; i < 100; ++i) values.push_back((i * 37) % 100 + 1);
  EXPECT_EQ(percentile(values, 50), 50);
  EXPECT_EQ(percentile(values, 99), 99);
  EXPECT_EQ(percentile(values, 100), 100);
  EXPECT_EQ(percentile(values, 0.5), 1);
}

TEST(Percentile, OfFewValuesIsOneOfThem) {
  EXPECT_EQ(percentile(std::array{7.0}, 50), 7);
  EXPECT_EQ(percentile(std::array{1.0, 2.0}, 50), 1);
  EXPECT_EQ(percentile(std::array{3.0, 1.0, 2.0}, 99), 3);
  EXPECT_THROW(static_cast<void>(percentile({}, 50)), error);
}

TEST(BusFactor, IsThatOfNcclTests) {
  // nccl-tests, doc/PERFORMANCE.md.
  EXPECT_DOUBLE_EQ(bus_factor(collective_kind::all_reduce, 4).value(), 1.5);
  EXPECT_DOUBLE_EQ(bus_factor(collective_kind::reduce_scatter, 4).value(), 0.75);
  EXPECT_DOUBLE_EQ(bus_factor(collective_kind::all_gather, 4).value(), 0.75);
  EXPECT_DOUBLE_EQ(bus_factor(collective_kind::all_to_all, 4).value(), 0.75);
  EXPECT_DOUBLE_EQ(bus_factor(collective_kind::broadcast, 4).value(), 1.0);
}

TEST(Collective, OfAnUnknownNameIsRefusedWithTheKnownOnes) {
  EXPECT_EQ(parse_collective("all_to_all"), collective_kind::all_to_all);
  try {
    static_cast<void>(parse_collective("allreduce"));
    FAIL() << "accepted";
  } catch (error const& failure) {
    EXPECT_NE(std::string{failure.what()}.find("all_reduce, reduce_scatter"), std::string::npos) << failure.what();
  }
}

TEST(BreakEven, IsTheSizeFromWhichOnEverySizeIsFaster) {
  // Faster at 2, slower again at 4, faster at 8 and 16.
  std::array<duel, 4> const duels{{{2, 1, 2}, {4, 3, 2}, {8, 1, 2}, {16, 1, 2}}};
  EXPECT_EQ(break_even_bytes(duels), 8U);
}

TEST(BreakEven, IsNoneWhenTheLargestSizeIsNotFaster) {
  EXPECT_FALSE(break_even_bytes(std::array<duel, 2>{{{2, 1, 2}, {4, 2, 2}}}).has_value());
  EXPECT_FALSE(break_even_bytes({}).has_value());
}

TEST(BreakEven, LeavesEmptyGradientsOut) {
  EXPECT_FALSE(break_even_bytes(std::array<duel, 1>{{{0, 1, 2}}}).has_value());
  EXPECT_EQ(break_even_bytes(std::array<duel, 2>{{{0, 9, 2}, {4, 1, 2}}}), 4U);
}

case_result case_of(std::string spec, std::string reduction, std::size_t count, double time_us) {
  case_result one;
  one.transport = "inproc";
  one.ranks = 4;
  one.spec = std::move(spec);
  one.reduction = std::move(reduction);
  one.count = count;
  one.time_us = time_us;
  one.p99_us = 2 * time_us;
  return one;
}

TEST(CaseResult, KeepsAlgbwBusbwAndWirebwApart) {
  case_result one = case_of("onebit", "two_shot", 1'000'000, 1000);  // 4·10^6 bytes in 1 ms
  one.wire_bytes = 200'000;
  EXPECT_DOUBLE_EQ(one.algbw_gbps(), 4.0);
  EXPECT_DOUBLE_EQ(one.busbw_gbps().value(), 6.0);   // · 2·3/4
  EXPECT_DOUBLE_EQ(one.wirebw_gbps().value(), 0.2);  // 2·10^5 bytes in 1 ms
  EXPECT_DOUBLE_EQ(one.ratio().value(), 30.0);       // 2·3/4·4·10^6 / 2·10^5
  EXPECT_TRUE(one.note().empty());
}

TEST(CaseResult, OfOneRankSaysWhyFiguresAreUndefined) {
  // A public report took a bus bandwidth of 0 on one rank for a fault (nccl-tests 287, 159).
  case_result one = case_of("none", "dense", 1024, 10);
  one.ranks = 1;
  EXPECT_FALSE(one.busbw_gbps().has_value());
  EXPECT_FALSE(one.ratio().has_value());
  auto const line = to_record(one);
  EXPECT_TRUE(line["busbw_gbps"].is_null());
  EXPECT_GT(line["algbw_gbps"].get<double>(), 0);
  EXPECT_NE(line["note"].get<std::string>().find("one rank"), std::string::npos);
  EXPECT_NE(table_row(one, 10).find("N/A"), std::string::npos);
}

TEST(CaseResult, SurvivesItsRecord) {
  case_result one = case_of("topk(ratio=0.01)+ef", "two_shot", 77, 12.5);
  one.type = dtype::bf16;
  one.iterations = 31;
  one.wire_bytes = 640;
  one.canonical = "topk(ratio=0.01)+ef+via(two_shot)";
  one.nmse = 0.25;
  one.wrong = 3;
  EXPECT_EQ(to_record(from_record(to_record(one))).dump(), to_record(one).dump());
  one.nmse.reset();
  EXPECT_EQ(to_record(from_record(to_record(one))).dump(), to_record(one).dump());
}

TEST(CaseResult, RowsAreAsWideAsTheHeader) {
  std::string const header = table_header(12);
  std::string const row = table_row(case_of("onebit+ef", "two_shot", 1 << 20, 1234.5), 12);
  EXPECT_EQ(row.size(), header.find('\n') + 1);
}

TEST(BreakEvens, CompareWithDenseOfTheSameSettingOnly) {
  std::vector<case_result> cases{case_of("none", "dense", 10, 1), case_of("none", "dense", 100, 10),
                                 case_of("onebit", "two_shot", 10, 2), case_of("onebit", "two_shot", 100, 5)};
  case_result other = case_of("bf16", "dense", 100, 1);
  other.ranks = 2;  // no baseline was measured on two ranks
  cases.push_back(other);
  auto const found = break_evens(cases);
  ASSERT_EQ(found.size(), 1U);
  EXPECT_EQ(found[0].spec, "onebit");
  EXPECT_EQ(found[0].bytes, 400U);
  EXPECT_DOUBLE_EQ(found[0].best_speedup, 2);
  EXPECT_EQ(found[0].best_bytes, 400U);
  EXPECT_DOUBLE_EQ(found[0].last_speedup, 2);
  EXPECT_EQ(found[0].last_bytes, 400U);
}

}  // namespace
}  // namespace gradwire::program::sweep
