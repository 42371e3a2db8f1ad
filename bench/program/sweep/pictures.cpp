#include "program/sweep/pictures.hpp"

#include <algorithm>
#include <ctime>

#include <fmt/chrono.h>
#include <fmt/format.h>
#include <fmt/ranges.h>

#include "embedded/sweep_js.hpp"
#include "program/common/console.hpp"
#include "program/common/shell.hpp"
#include "program/report/page.hpp"

namespace gradwire::program::sweep {
namespace {

constexpr char const* averaging_body = R"(
<div class="controls" id="settings"></div>
<div class="legend" id="legend"></div>
<section class="card">
  <h2>Break-even: time relative to dense, by size</h2>
  <p class="note">Under the line at 1.0 a method is faster than dense (<code>none</code>, by the transport's own
  all-reduce) in the same run and setting. p50 of the slowest rank's time, encoding and decoding included. Both axes
  are logarithmic.</p>
  <div class="plot" id="ratio" data-label="time relative to dense by size, one line per method"></div>
</section>
<section class="card">
  <h2>Error against cost: the Pareto front</h2>
  <p class="note">Down and to the left is better. The dashed line joins the methods that no other method beats in one
  without losing in the other. The error is that of one call, ‖result − mean‖² / ‖mean‖² on Gaussian gradients;
  error feedback (<code>+ef</code>) makes up for it over later steps, which <code>gradwire fidelity --steps</code>
  shows.</p>
  <div class="controls" id="pareto-controls"></div>
  <div class="plot" id="pareto" data-label="error against cost, one point per method, with the Pareto front"></div>
</section>
<section class="card">
  <h2>Break-even sizes</h2>
  <p class="note">The smallest size from which on every size measured here is faster than dense in the same run and
  setting.</p>
  <div class="scroll" id="break-even"></div>
</section>
<section class="card">
  <h2>Every case</h2>
  <div class="scroll" id="cases"></div>
</section>
)";

constexpr char const* raw_body = R"(
<div class="controls" id="settings"></div>
<section class="card">
  <h2>Every case</h2>
  <p class="note">Raw bytes: nothing is encoded. busbw is algbw times the collective's factor in nccl-tests.</p>
  <div class="scroll" id="cases"></div>
</section>
)";

// What came out, in a sentence or two.
std::string lede_of(std::vector<case_result> const& results) {
  std::size_t wrong = 0;
  for (auto const& one : results) wrong += one.wrong;
  std::string text;
  auto const found = break_evens(results);
  auto const best = std::max_element(found.begin(), found.end(), [](break_even const& a, break_even const& b) {
    return a.last_speedup < b.last_speedup;
  });
  if (best != found.end()) {
    std::string const where =
        fmt::format("At {}, the largest size, ", format_bytes(static_cast<double>(best->last_bytes)));
    text = best->last_speedup > 1 ? fmt::format("{}{} is {:.2f} times as fast as dense over {}. ", where, best->spec,
                                                best->last_speedup, best->setting)
                                  : where + "no method is faster than dense. ";
  }
  return text + (wrong == 0 ? fmt::format("All elements of {} case{} were right.", results.size(),
                                          results.size() == 1 ? "" : "s")
                            : fmt::format("{} elements were WRONG: see the cases below.", wrong));
}

nlohmann::json data_of(std::vector<case_result> const& results) {
  auto cases = nlohmann::json::array();
  for (auto const& one : results) {
    nlohmann::json line = to_record(one);
    line["setting"] = one.setting();
    line["baseline"] = is_dense_baseline(one);
    cases.push_back(std::move(line));
  }
  auto evens = nlohmann::json::array();
  for (auto const& one : break_evens(results)) {
    evens.push_back({{"setting", one.setting},
                     {"spec", one.spec},
                     {"reduction", one.reduction},
                     {"bytes", one.bytes ? nlohmann::json(*one.bytes) : nlohmann::json(nullptr)},
                     {"best_speedup", one.best_speedup},
                     {"best_bytes", one.best_bytes}});
  }
  return {{"cases", std::move(cases)}, {"break_evens", std::move(evens)}};
}

}  // namespace

void write_sweep_page(std::filesystem::path const& file, collective_kind collective,
                      std::vector<case_result> const& results, std::vector<std::string> const& command_line) {
  page sweep;
  sweep.title = fmt::format("gradwire sweep: {} of {}", to_string(collective), to_string(results.front().type));
  sweep.lede = lede_of(results);
  sweep.body = collective == collective_kind::all_reduce ? averaging_body : raw_body;
  sweep.data = data_of(results);
  sweep.scripts = {embedded::sweep_js()};
  sweep.facts = {{"Command", command_text(command_line)},
                 {"Date", fmt::format("{:%Y-%m-%d %H:%M} UTC", fmt::gmtime(std::time(nullptr)))}};
  write_page(file, sweep);
}

}  // namespace gradwire::program::sweep
