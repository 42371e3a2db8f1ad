#include <filesystem>
#include <fstream>
#include <map>
#include <set>
#include <string>

#include <gtest/gtest.h>
#include <unistd.h>

#include <nlohmann/json.hpp>

#include <gradwire/error.hpp>
#include <gradwire/inproc.hpp>
#include <gradwire/reducer.hpp>

#include "tests/overlap/toy_model.hpp"

namespace gradwire {
namespace {

using namespace test;

class Timeline : public testing::Test {
 protected:
  void SetUp() override {
    folder_ = std::filesystem::temp_directory_path() / ("gradwire-timeline-" + std::to_string(::getpid()));
    std::filesystem::create_directories(folder_);
    run_ranks(2, [&](communicator& comm) {
      auto const parameters = toy_parameters();
      reducer with{comm,
                   parameters,
                   {.method = spec::parse("f16+ef+via(two_shot)"),
                    .first_bucket_bytes = 256,
                    .bucket_bytes = 6000,
                    .chunk_bytes = 4000,
                    .timeline = true}};
      for (std::size_t step = 0; step < 3; ++step) toy_step(with, parameters, comm.rank(), step);
      with.write_timeline(file(comm.rank()));
      EXPECT_THROW(with.write_timeline(folder_ / "missing" / "trace.json"), error);
    });
  }
  void TearDown() override { std::filesystem::remove_all(folder_); }

  [[nodiscard]] std::filesystem::path file(std::size_t rank) const {
    return folder_ / ("rank" + std::to_string(rank) + ".json");
  }
  [[nodiscard]] nlohmann::json events(std::size_t rank) const {
    std::ifstream in{file(rank)};
    return nlohmann::json::parse(in).at("traceEvents");
  }

  std::filesystem::path folder_;
};

// The Trace Event Format: what chrome://tracing and Perfetto need of each kind of event.
TEST_F(Timeline, IsATraceThatViewersRead) {
  for (std::size_t const rank : {0U, 1U}) {
    std::map<std::string, std::size_t> rows;
    for (auto const& event : events(rank)) {
      EXPECT_EQ(event.at("pid"), rank);
      EXPECT_TRUE(event.at("tid").is_number_unsigned());
      EXPECT_TRUE(event.at("name").is_string());
      std::string const phase = event.at("ph");
      if (phase == "M") {
        if (event.at("name") == "thread_name") rows[event.at("args").at("name")] = event.at("tid");
        continue;
      }
      EXPECT_TRUE(phase == "X" || phase == "b" || phase == "e") << phase;
      EXPECT_TRUE(event.at("ts").is_number());
      EXPECT_TRUE(event.at("cat").is_string());
      if (phase == "X") {
        EXPECT_GE(event.at("dur").get<double>(), 0);
      } else {
        EXPECT_TRUE(event.contains("id"));
      }
    }
    EXPECT_EQ(rows.size(), 5U);
    for (char const* const row : {"ready", "encode", "wire", "decode", "exposed"})
      EXPECT_EQ(rows.count(row), 1U) << row;
  }
}

TEST_F(Timeline, ShowsEveryStageOfEveryChunkOfEveryStep) {
  std::map<std::string, std::set<std::string>> places;  // by name of the span
  for (auto const& event : events(0)) {
    if (event.at("ph") != "X" && event.at("ph") != "b") continue;
    auto const& at = event.at("args");
    std::string place = at.at("step").dump();
    if (at.contains("bucket")) place += "." + at.at("bucket").dump();
    if (at.contains("chunk")) place += "." + at.at("chunk").dump();
    EXPECT_TRUE(places[event.at("name")].insert(place).second) << event.at("name") << " twice at " << place;
  }
  EXPECT_EQ(places.at("exposed").size(), 3U);
  EXPECT_GE(places.at("ready").size(), 6U);
  EXPECT_EQ(places.at("encode"), places.at("exchange"));
  EXPECT_EQ(places.at("encode"), places.at("decode"));
  EXPECT_EQ(places.at("share"), places.at("sum"));
  EXPECT_FALSE(places.at("share").empty());
}

TEST_F(Timeline, HasNoOverlapWithinARow) {
  std::map<std::size_t, std::map<double, double>> spans;
  for (auto const& event : events(1)) {
    if (event.at("ph") == "X") spans[event.at("tid")].emplace(event.at("ts"), event.at("dur"));
  }
  for (auto const& [row, in_order] : spans) {
    double last = 0;
    for (auto const& [begin, duration] : in_order) {
      EXPECT_GE(begin, last - 1e-3) << "row " << row;  // microseconds with fractions, as doubles
      last = begin + duration;
    }
  }
}

}  // namespace
}  // namespace gradwire
