#include "bench/program/ab/report.hpp"

#include <gtest/gtest.h>

#include "tests/program_ab/folder.hpp"

namespace gradwire::program {
namespace {

constexpr std::string_view evil = "</script><script>alert(\"1\")</script>'&{{data}}";

ab_report sample(temporary_folder const& folder, std::string const& arm) {
  ab_report report;
  report.asked = {{"none", arm}, "none", {1, 2}, "accuracy", 0.01, direction::higher};
  report.directory = folder / "";
  report.command = {"gradwire", "ab", "--arm", arm};
  report.what.command = {"train", "{spec}"};
  report.date = "2026-11-30 12:00 UTC";
  for (std::string const& name : report.asked.arms) {
    for (std::uint64_t const seed : report.asked.seeds) {
      run one;
      one.arm = name;
      one.seed = seed;
      one.status = run_status::ok;
      one.value = 0.5;
      one.metrics_file = "m";
      report.runs.push_back(one);
    }
  }
  report.results = judge_arms(report.asked, report.runs);
  return report;
}

std::size_t count(std::string_view text, std::string_view part) {
  std::size_t found = 0;
  for (auto at = text.find(part); at != text.npos; at = text.find(part, at + part.size())) ++found;
  return found;
}

TEST(Report, LetsNoNameOfAnArmOutOfItsPlace) {
  temporary_folder const folder;
  folder.write("m", R"({"event":"eval","metric":"accuracy","value":0.5})");
  auto const honest = render_page(make_page(sample(folder, "onebit")));
  auto const attacked = render_page(make_page(sample(folder, std::string{evil})));
  EXPECT_EQ(count(attacked, "<script"), count(honest, "<script"));
  EXPECT_EQ(count(attacked, "</script"), count(honest, "</script"));
  EXPECT_EQ(count(attacked, "alert(\"1\")"), 0u);
  // The data stand in the page once: the placeholder in the name was not filled in.
  EXPECT_EQ(count(attacked, "\"margin\":"), count(honest, "\"margin\":"));
}

TEST(Report, IsOneFileThatAsksForNothing) {
  temporary_folder const folder;
  folder.write("m", R"({"event":"eval","metric":"accuracy","value":0.5})");
  auto const page = render_page(make_page(sample(folder, "onebit")));
  for (char const* const outside :
       {"<link rel=\"stylesheet", "<script src", "<img src=\"http", "@import", "url(http"}) {
    EXPECT_EQ(count(page, outside), 0u) << outside;
  }
  EXPECT_EQ(count(page, "default-src 'none'"), 1u);
  EXPECT_GE(count(page, "Chart.js v"), 1u);
  EXPECT_EQ(count(page, "The above copyright notice and this permission notice"), 1u);
}

TEST(Report, GivesTheScriptsWhatTheyDraw) {
  temporary_folder const folder;
  folder.write("m",
               R"({"event":"step","step":1,"loss":2,"seconds":0.5,"raw_bytes":320,"wire_bytes":10,"exposed_seconds":0.1}
{"event":"eval","step":1,"metric":"accuracy","value":0.5}
)");
  auto const data = make_page(sample(folder, "onebit")).data;
  ASSERT_EQ(data.at("arms").size(), 2u);
  auto const& arm = data.at("arms").at(1);
  EXPECT_EQ(arm.at("name"), "onebit");
  EXPECT_EQ(arm.at("difference"), 0.0);
  EXPECT_EQ(arm.at("ci95"), (record{0.0, 0.0}));
  EXPECT_EQ(arm.at("curves").at("eval").at("bytes"), record::array({10.0}));
  EXPECT_EQ(arm.at("curves").at("loss").at("mean"), record::array({2.0}));
  EXPECT_EQ(arm.at("step").at("exposed_seconds"), 0.1);
}

TEST(Report, SetsCommandsAsCodeAndNamesTheBaselineInItsTitle) {
  temporary_folder const folder;
  auto report = sample(folder, "onebit");
  // Equal values, and half as fast as the baseline: what to look at next then names two subcommands.
  for (run& one : report.runs) one.seconds = one.arm == "none" ? 1.0 : 2.0;
  report.results = judge_arms(report.asked, report.runs);
  auto const page = make_page(report);
  EXPECT_EQ(page.title, "Does compressed training reach what dense (none) reaches?");
  EXPECT_NE(page.body.find("<code>gradwire sweep</code> and <code>gradwire doctor</code>"), std::string::npos);
  EXPECT_EQ(page.body.find('`'), std::string::npos);
}

TEST(Report, WorksWithoutAnyMetricsFile) {
  temporary_folder const folder;
  auto const data = make_page(sample(folder, "onebit")).data;
  EXPECT_TRUE(data.at("arms").at(0).at("curves").at("eval").at("step").empty());
  EXPECT_TRUE(data.at("arms").at(0).at("step").at("wire_bytes").is_null());
}

TEST(Page, EscapesDataForAScriptElement) {
  EXPECT_EQ(script_json(record{{"a", "</x>&\xe2\x80\xa8"}}), "{\"a\":\"\\u003c/x\\u003e\\u0026\\u2028\"}");
  EXPECT_EQ(script_json(record{{"a", "\xff"}}), "{\"a\":\"\xef\xbf\xbd\"}");
  EXPECT_EQ(escape_html("<a href='x'>\"&"), "&lt;a href=&#39;x&#39;&gt;&quot;&amp;");
}

}  // namespace
}  // namespace gradwire::program
