// `gradwire sweep` and `gradwire fidelity` as people start them.
#include <signal.h>
#include <stdlib.h>
#include <unistd.h>

#include <algorithm>
#include <cmath>
#include <filesystem>
#include <fstream>
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include <gradwire/gloo.hpp>

#include "program/common/interrupt.hpp"
#include "program/common/json_lines.hpp"
#include "program/common/process.hpp"

namespace gradwire::program {
namespace {

class Cli : public testing::Test {
 protected:
  Cli() {
    std::string name = (std::filesystem::temp_directory_path() / "gradwire-cli-XXXXXX").string();
    if (mkdtemp(name.data()) != nullptr) folder_ = name;
  }
  ~Cli() override {
    std::error_code ignored;
    std::filesystem::remove_all(folder_, ignored);
  }

  // Exit status; what was printed lies in out() and err().
  int run(std::vector<std::string> arguments) {
    std::filesystem::remove(folder_ / "out");
    std::filesystem::remove(folder_ / "err");
    arguments.insert(arguments.begin(), GRADWIRE_PROGRAM_FILE);
    signal_guard const guard;
    std::vector<process> one;
    one.emplace_back(process_options{.arguments = arguments, .output = folder_ / "out", .errors = folder_ / "err"});
    if (!wait_any(one, std::chrono::seconds{100})) return -1;
    return one.front().end()->signalled ? -one.front().end()->value : one.front().end()->value;
  }
  [[nodiscard]] std::string out() const { return read_file(folder_ / "out"); }
  [[nodiscard]] std::string err() const { return read_file(folder_ / "err"); }
  [[nodiscard]] std::string path(char const* name) const { return (folder_ / name).string(); }

  std::filesystem::path folder_;
};

TEST_F(Cli, SweepWritesOneRecordACase) {
  ASSERT_EQ(run({"sweep",       "--transport", "inproc",
                 "--ranks",     "1",           "3",
                 "--spec",      "onebit+ef",   "none+via(two_shot)",
                 "--min-bytes", "0",           "--max-bytes",
                 "1K",          "--factor",    "7",
                 "--iters",     "2",           "--warmup",
                 "1",           "--json",      "-",
                 "--quiet"}),
            0)
      << err();
  EXPECT_EQ(err(), "");
  auto const lines = read_json_lines(folder_ / "out");
  // 0, 4, 28, 196 bytes; the baseline and two specs; one and three ranks.
  ASSERT_EQ(lines.size(), 4U * 3U * 2U) << out();
  for (auto const& line : lines) {
    for (char const* key :
         {"event", "collective", "transport", "reduction", "spec", "dtype", "ranks", "count", "bytes", "time_us",
          "p99_us", "algbw_gbps", "busbw_gbps", "wire_bytes", "wirebw_gbps", "ratio", "nmse", "wrong"}) {
      EXPECT_TRUE(line.contains(key)) << key;
    }
    EXPECT_EQ(line["wrong"], 0) << line.dump();
    EXPECT_EQ(line["busbw_gbps"].is_null(), line["ranks"] == 1) << line.dump();
  }
}

TEST_F(Cli, SweepOverProcessesWritesTableRecordsAndPictures) {
  if (!has_gloo()) GTEST_SKIP() << "a build without Gloo";
  ASSERT_EQ(run({"sweep", "--transport", "gloo", "inproc", "--ranks", "2", "--spec", "quant(bits=4)", "--min-bytes",
                 "4K", "--max-bytes", "8K", "--iters", "2", "--warmup", "0", "--out", path("sweep")}),
            0)
      << err();
  EXPECT_NE(out().find("#wrong"), std::string::npos) << out();
  EXPECT_NE(out().find("wrong elements: 0 OK"), std::string::npos) << out();
  EXPECT_NE(out().find("Break-even"), std::string::npos) << out();
  auto const lines = read_json_lines(folder_ / "sweep" / "results.jsonl");
  ASSERT_EQ(lines.size(), 2U * 2U * 2U);
  EXPECT_EQ(lines[0]["transport"], "gloo");
  EXPECT_EQ(lines[7]["transport"], "inproc");
  std::string const html = read_file(folder_ / "sweep" / "sweep.html");
  EXPECT_NE(html.find("Pareto"), std::string::npos);
  EXPECT_NE(html.find("--spec &#39;quant(bits=4)&#39; --min-bytes"), std::string::npos);  // as a shell takes it
  EXPECT_EQ(html.find("http://"), html.find("http://www.w3.org/"));  // nothing comes from a network
}

TEST_F(Cli, SweepOfRawCollectivesTakesNoSpecs) {
  EXPECT_EQ(run({"sweep", "--collective", "all_gather", "--transport", "inproc", "--ranks", "3", "--min-bytes", "1K",
                 "--max-bytes", "1K", "--iters", "1"}),
            0)
      << err();
  EXPECT_EQ(run({"sweep", "--collective", "all_gather", "--spec", "bf16"}), 2);
  EXPECT_NE(err().find("all_reduce"), std::string::npos) << err();
}

TEST_F(Cli, SweepCountsWhatAnInterfaceSends) {
  if (!has_gloo()) GTEST_SKIP() << "a build without Gloo";
  if (!std::filesystem::exists("/sys/class/net/lo")) GTEST_SKIP() << "no loopback interface to count";
  ASSERT_EQ(run({"sweep", "--spec", "onebit+ef", "--min-bytes", "1M", "--max-bytes", "1M", "--iters", "3", "--warmup",
                 "1", "--count-interface", "lo", "--json", "-", "--quiet"}),
            0)
      << err();
  auto const lines = read_json_lines(folder_ / "out");
  ASSERT_EQ(lines.size(), 2U) << out();
  for (auto const& line : lines) {  // both ranks send over this one, and others may
    ASSERT_TRUE(line.contains("interface_bytes")) << line.dump();
    EXPECT_GE(line["interface_bytes"].get<std::size_t>(), 2 * line["wire_bytes"].get<std::size_t>()) << line.dump();
  }
}

TEST_F(Cli, SweepLeavesTheResultsOfAnotherExperimentAlone) {
  std::filesystem::create_directory(folder_ / "ab");
  std::string const others = "{\"event\":\"experiment\"}\n{\"event\":\"run\",\"arm\":\"none\"}\n";
  std::vector<std::string> const line{"sweep", "--max-bytes", "8", "--iters", "1", "--spec", "bf16", "--out"};
  auto const sweep = [&](char const* folder, std::vector<std::string> const& more) {
    auto arguments = line;
    arguments.push_back(path(folder));
    arguments.insert(arguments.end(), more.begin(), more.end());
    return run(arguments);
  };
  for (std::string const& text : {others, std::string{"notes\n"}}) {
    write_file(folder_ / "ab" / "results.jsonl", text);
    EXPECT_EQ(sweep("ab", {"--transport", "inproc"}), 2);
    EXPECT_NE(err().find("was not written by gradwire sweep"), std::string::npos) << err();
    EXPECT_NE(err().find("name another --out"), std::string::npos) << err();
    EXPECT_EQ(read_file(folder_ / "ab" / "results.jsonl"), text);
  }
  // An earlier sweep's results stay until there is something new.
  ASSERT_EQ(sweep("sweep", {"--transport", "inproc"}), 0) << err();
  std::string const first = read_file(folder_ / "sweep" / "results.jsonl");
  if (has_gloo()) {
    setenv("GRADWIRE_INTERFACE", "no-such-interface", 1);
    EXPECT_NE(sweep("sweep", {"--transport", "gloo", "--timeout", "5"}), 0);
    unsetenv("GRADWIRE_INTERFACE");
    EXPECT_EQ(read_file(folder_ / "sweep" / "results.jsonl"), first);
  }
  ASSERT_EQ(sweep("sweep", {"--transport", "inproc", "--ranks", "3"}), 0) << err();
  auto const records = read_json_lines(folder_ / "sweep" / "results.jsonl");
  ASSERT_EQ(records.size(), 2U);
  EXPECT_EQ(records[0]["ranks"], 3);
}

TEST_F(Cli, SweepOverProcessesKeepsFinishedCasesWhateverEndsIt) {
  if (!has_gloo()) GTEST_SKIP() << "a build without Gloo";
  for (int const signal : {SIGKILL, SIGHUP}) {
    std::filesystem::remove_all(folder_ / "sweep");
    signal_guard const guard;
    std::vector<process> one;
    // Two quick cases, then one that takes for ever.
    one.emplace_back(process_options{.arguments = {GRADWIRE_PROGRAM_FILE,
                                                   "sweep",
                                                   "--spec",
                                                   "bf16",
                                                   "--min-bytes",
                                                   "8",
                                                   "--max-bytes",
                                                   "8",
                                                   "--ranks",
                                                   "2",
                                                   "1",
                                                   "--iters",
                                                   "200",
                                                   "--warmup",
                                                   "0",
                                                   "--transport",
                                                   "gloo",
                                                   "gloo",
                                                   "gloo",
                                                   "gloo",
                                                   "gloo",
                                                   "gloo",
                                                   "gloo",
                                                   "gloo",
                                                   "--out",
                                                   path("sweep"),
                                                   "--quiet"},
                                     .output = folder_ / "out",
                                     .errors = folder_ / "err2"});
    auto const written = [&] {
      std::error_code none;
      return std::filesystem::file_size(folder_ / "sweep" / "results.jsonl", none) > 0 && !none;
    };
    for (int i = 0; i < 6000 && !written() && !one[0].poll(); ++i) usleep(5'000);
    ASSERT_FALSE(one[0].poll()) << "it ended before it could be interrupted: " << read_file(folder_ / "err2");
    one[0].signal(signal);
    ASSERT_TRUE(wait_any(one, std::chrono::seconds{60}));
    EXPECT_EQ(one[0].end()->value, signal == SIGKILL ? SIGKILL : 130);
    EXPECT_GE(read_json_lines(folder_ / "sweep" / "results.jsonl").size(), 1U);
  }
  EXPECT_NE(read_file(folder_ / "err2").find("cases are finished and kept in " + path("sweep")), std::string::npos)
      << read_file(folder_ / "err2");
}

TEST_F(Cli, SweepRefusesNonsenseInOneLine) {
  struct {
    std::vector<std::string> arguments;
    char const* said;
  } const cases[]{{{"--min-bytes", "12Q"}, "--min-bytes"},
                  {{"--max-bytes", "-4"}, "--max-bytes"},
                  {{"--factor", "1"}, "--factor"},
                  {{"--min-bytes", "1M", "--max-bytes", "1K"}, "swap"},
                  {{"--spec", "onebyte"}, "onebit"},
                  {{"--reduction", "three_shot"}, "two_shot"},
                  {{"--collective", "allreduce"}, "all_reduce"},
                  {{"--dtype", "f64"}, "bf16"},
                  {{"--ranks", "0"}, "--ranks"},
                  {{"--transport", "pigeon"}, "inproc"},
                  {{"--iters", "0"}, "--iters"},
                  {{"--count-interface", "no/such"}, "--count-interface"},
                  {{"--out", "/dev/null/x", "--max-bytes", "8"}, "/dev/null/x"}};
  for (auto const& one : cases) {
    std::vector<std::string> arguments{"sweep", "--transport", "inproc"};
    if (one.arguments.front() == "--transport") arguments = {"sweep"};
    arguments.insert(arguments.end(), one.arguments.begin(), one.arguments.end());
    EXPECT_EQ(run(arguments), 2) << one.said;
    std::string const text = err();
    EXPECT_NE(text.find(one.said), std::string::npos) << text;
    EXPECT_EQ(std::count(text.begin(), text.end(), '\n'), 1) << text;
  }
}

TEST_F(Cli, SweepSaysWhyAMethodIsSkipped) {
  ASSERT_EQ(run({"sweep", "--transport", "inproc", "--spec", "onebit", "--reduction", "dense", "two_shot",
                 "--max-bytes", "8", "--iters", "1"}),
            0)
      << err();
  EXPECT_NE(out().find("skipped onebit"), std::string::npos) << out();
  EXPECT_NE(out().find("via(two_shot)"), std::string::npos) << out();
}

// 1, −3, 1, −3, …
void write_dump(std::string const& path, int rows) {
  std::string header = "{'descr': '<f4', 'fortran_order': False, 'shape': (" + std::to_string(rows) + ", 8), }";
  header.resize(117, ' ');
  header += '\n';
  std::ofstream file{path, std::ios::binary};
  file << std::string{"\x93NUMPY\x01\x00\x76\x00", 10} << header;
  for (int i = 0; i < 8 * rows; ++i) {
    float const value = i % 2 == 0 ? 1.0F : -3.0F;
    file.write(reinterpret_cast<char const*>(&value), sizeof value);
  }
}

TEST_F(Cli, FidelityEndsOnCtrlCWithinOneMethod) {
  write_dump(path("grad.npy"), 10'000);
  for (char const* const loop : {"--repeats", "--steps"}) {
    signal_guard const guard;
    std::vector<process> one;
    one.emplace_back(process_options{.arguments = {GRADWIRE_PROGRAM_FILE, "fidelity", "--spec", "onebit", "--input",
                                                   path("grad.npy"), loop, "1000000", "--json", path(loop)},
                                     .output = folder_ / "out",
                                     .errors = folder_ / "err"});
    // It opens that file once signals are its own.
    for (int i = 0; i < 6000 && !std::filesystem::exists(path(loop)); ++i) usleep(5'000);
    one[0].signal(SIGINT);
    ASSERT_TRUE(wait_any(one, std::chrono::seconds{60})) << loop;
    EXPECT_EQ(one[0].end()->text(), "exit status 130") << loop;
  }
}

TEST_F(Cli, FidelityTellsErrorsOfADump) {
  write_dump(path("grad.npy"), 4);  // onebit sends ±2: nmse = 1/5
  ASSERT_EQ(run({"fidelity", "--spec", "onebit", "bf16", "--input", path("grad.npy"), "--steps", "4", "--json", "-"}),
            0)
      << err();
  auto const lines = read_json_lines(folder_ / "out");
  ASSERT_EQ(lines.size(), 2U);
  EXPECT_NEAR(lines[0]["nmse"].get<double>(), 0.2, 1e-6);
  EXPECT_NEAR(lines[0]["sum_error"].get<double>(), std::sqrt(0.2), 1e-6);
  EXPECT_EQ(lines[1]["nmse"], 0.0);
  EXPECT_NE(err().find("bits/element"), std::string::npos);  // the table goes to standard error

  EXPECT_EQ(run({"fidelity", "--spec", "onebit", "--input", path("none.npy")}), 2);
  EXPECT_NE(err().find("none.npy"), std::string::npos);
  EXPECT_EQ(run({"fidelity", "--spec", "onebit", "--input", path("out")}), 2);
  EXPECT_NE(err().find("not a .npy file"), std::string::npos);
}

}  // namespace
}  // namespace gradwire::program
