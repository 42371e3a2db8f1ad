#include "program/ab/report.hpp"

#include <algorithm>

#include <fmt/format.h>

#include "embedded/ab_report_js.hpp"
#include "program/ab/curves.hpp"
#include "program/ab/explain.hpp"
#include "program/common/console.hpp"
#include "program/common/context.hpp"

namespace gradwire::program {
namespace {

std::string_view badge_class(std::string_view word) {
  if (word == "equivalent" || word == "better") return "good";
  if (word == "worse" || word == "failed" || word == "diverged") return "bad";
  if (word == "inconclusive") return "warn";
  return "quiet";
}

std::string badge(std::string_view word) {
  return fmt::format("<span class=\"badge {}\">{}</span>", badge_class(word), escape_html(word));
}

std::string cell(std::string_view label, std::string_view html, std::string_view kind = "num") {
  return fmt::format("<td class=\"{}\" data-label=\"{}\">{}</td>", kind, escape_html(label), html);
}

std::string log_html(std::string_view text) { return fmt::format("<pre class=\"log\">{}</pre>", escape_html(text)); }

// `text` escaped, with what stands between backticks as code.
std::string prose_html(std::string_view text) {
  std::string html;
  for (;;) {
    auto const open = text.find('`');
    auto const close = open == text.npos ? open : text.find('`', open + 1);
    if (close == text.npos) return html + escape_html(text);
    html += escape_html(text.substr(0, open));
    html += fmt::format("<code>{}</code>", escape_html(text.substr(open + 1, close - open - 1)));
    text.remove_prefix(close + 1);
  }
}

// Hyphens of numbers become minus signs.
std::string typeset(std::string text) {
  for (auto at = text.find('-'); at != text.npos; at = text.find('-', at)) text.replace(at, 1, "\u2212");
  return text;
}

std::string verdict_row(ab_report const& report, std::size_t index) {
  arm_result const& one = report.results[index];
  double const margin = report.asked.margin;
  bool const compared = !one.is_baseline && one.comparison.pairs > 0;
  std::string difference = "–";
  if (compared) {
    difference = typeset(signed_text(one.comparison.difference, margin)) + "<span class=\"sub\">" +
                 typeset(interval_text(one.comparison.ci95, margin)) + "</span>";
  }
  std::string const note =
      one.reason.empty() ? "" : fmt::format("<span class=\"sub\">{}</span>", escape_html(one.reason));
  auto const factor = [](std::optional<double> const& value) {
    return value ? factor_text(value).substr(0, factor_text(value).size() - 1) + "×" : std::string{"–"};
  };
  return fmt::format("<tr><td class=\"arm wide\" data-swatch=\"{}\">{}</td>", index, escape_html(one.arm)) +
         fmt::format("<td class=\"wide\">{}{}</td>", badge(verdict_word(one)), note) +
         cell(report.asked.metric, one.mean ? value_text(*one.mean, margin) : "–") +
         cell("difference, 95 % interval", difference) + cell("compression", factor(one.compression), "num third") +
         cell("speedup", one.is_baseline ? "–" : factor(one.speedup), "num third") +
         cell("seeds", fmt::format("{} of {}", one.good, one.good + one.bad), "num third") + "</tr>\n";
}

std::string verdict_card(ab_report const& report) {
  question const& asked = report.asked;
  std::string html = "<section class=\"card\">\n<h2>Verdicts</h2>\n";
  html += fmt::format(
      "<p class=\"note\">{} of each arm against <b>{}</b>, seed by seed; {} is better; a difference inside ±{:g} does "
      "not matter.</p>\n",
      escape_html(asked.metric), escape_html(asked.baseline), asked.better == direction::higher ? "higher" : "lower",
      asked.margin);
  html += fmt::format(
      "<div class=\"scroll\"><table class=\"stack\">\n<thead><tr><th>arm</th><th>verdict</th><th class=\"num\">{}</th>"
      "<th class=\"num\">difference</th><th class=\"num\">compression</th><th class=\"num\">speedup</th>"
      "<th class=\"num\">seeds</th></tr></thead>\n<tbody>\n",
      escape_html(asked.metric));
  for (std::size_t i = 0; i < report.results.size(); ++i) html += verdict_row(report, i);
  html += "</tbody></table></div>\n<details><summary>What the words mean</summary>\n<dl class=\"terms\">\n";
  for (term const& term : verdict_terms(asked)) {
    html += fmt::format("<dt>{}</dt><dd>{}</dd>\n", badge(term.word), escape_html(term.meaning));
  }
  html +=
      "</dl>\n<p class=\"note\">Why this test: “not significantly different” is no proof of “equal”; with few seeds "
      "anything passes. Here an arm has to show that it is close. Compression is raw bytes (f32, dense) over bytes "
      "sent. Speedup is the baseline’s training time over the arm’s";
  if (report.jobs > 1) html += fmt::format("; {} runs shared this machine at a time, so times are rough", report.jobs);
  return html + ".</p></details>\n</section>\n";
}

constexpr std::string_view pictures = R"(<section class="card">
<h2>Differences from the baseline</h2>
<p class="note">Diamond: mean difference. Thick line: 90 % interval, the one that has to fit inside the shaded margin to be equivalent. Thin line: 95 % interval. Dots: single seeds. An arrow leaves the picture.</p>
<div class="plot auto" id="forest" data-label="Differences of all arms from the baseline with their intervals"></div>
</section>
<section class="card">
<h2>Learning curves</h2>
<p class="note">Line: mean over the seeds; the wide one, below the others, is the baseline. Band: lowest and highest seed. By bytes or by time shows what a method buys: further left is cheaper. Choose a name to hide it.</p>
<div class="controls" id="curve-controls"></div>
<div class="legend" id="legend"></div>
<div class="plot" id="curves" data-label="Learning curves of all arms"></div>
</section>
<div class="grid">
<section class="card">
<h2>Bytes in a step</h2>
<p class="note">What one rank sends in a mean step, and how often the dense f32 bytes contain it.</p>
<div class="plot auto" id="bytes" data-label="Bytes sent by one rank in a step"></div>
</section>
<section class="card">
<h2>Time of a step</h2>
<p class="note"><span class="key compute"></span> compute, with the communication that hides behind it; <span class="key exposed"></span> exposed communication, which the step had to wait for.</p>
<div class="plot auto" id="time" data-label="Time of a step, compute and exposed communication"></div>
</section>
</div>
)";

std::string optional_text(std::optional<double> const& value, std::string (*text)(double)) {
  return value ? text(*value) : "–";
}

std::string run_row(ab_report const& report, run const& one) {
  std::string note;
  if (one.status != run_status::ok) {
    note = fmt::format("<span class=\"sub\">{}; {}</span>", escape_html(one.reason), escape_html(one.log));
    std::string const tail = last_lines(report.directory / one.log, 5);
    if (!tail.empty()) note += log_html(tail);
  }
  return fmt::format("<tr><td class=\"arm wide\">{}</td>", escape_html(one.arm)) +
         cell("seed", std::to_string(one.seed)) +
         fmt::format("<td data-label=\"status\">{}{}</td>",
                     one.status == run_status::ok ? std::string{"ok"} : badge(to_string(one.status)), note) +
         cell(report.asked.metric, one.value ? value_text(*one.value, report.asked.margin) : "–", "num third") +
         cell("time", optional_text(one.seconds, format_seconds), "num third") +
         cell("bytes sent", optional_text(one.wire_bytes, format_bytes), "num third") + "</tr>\n";
}

std::string runs_card(ab_report const& report) {
  bool const any_bad = std::ranges::any_of(report.runs, [](run const& one) { return one.status != run_status::ok; });
  std::string html = fmt::format(
      "<section class=\"card\">\n<details{}><summary>All {} runs</summary>\n<div class=\"scroll\"><table "
      "class=\"stack\">\n<thead><tr><th>arm</th><th class=\"num\">seed</th><th>status</th><th class=\"num\">{}</th>"
      "<th class=\"num\">time</th><th class=\"num\">bytes sent</th></tr></thead>\n<tbody>\n",
      any_bad ? " open" : "", report.runs.size(), escape_html(report.asked.metric));
  for (std::string const& arm : report.asked.arms) {
    for (run const& one : report.runs) {
      if (one.arm == arm) html += run_row(report, one);
    }
  }
  return html + "</tbody></table></div>\n</details>\n</section>\n";
}

std::string next_card(ab_report const& report) {
  auto const steps = next_steps(report.asked, report.results, report.runs, report.directory, report.command);
  std::string html = "<section class=\"card\">\n<h2>What to look at next</h2>\n<ul>\n";
  for (std::string const& step : steps) {
    auto const cut = step.find('\n');  // below it: the end of a log
    html += fmt::format("<li>{}", prose_html(step.substr(0, cut)));
    if (cut != step.npos) html += log_html(step.substr(cut + 1));
    html += "</li>\n";
  }
  bool const any_bytes =
      std::ranges::any_of(report.results, [](arm_result const& one) { return one.compression.has_value(); });
  if (any_bytes) {
    html +=
        "<li>Switch the learning curves to <i>by bytes</i> and <i>by time</i>: an arm that is equivalent by step and "
        "far to the left by bytes is the one to try on a slow link.</li>\n";
  }
  return html + "</ul>\n</section>\n";
}

std::vector<metrics> read_metrics(ab_report const& report, std::string_view arm) {
  std::vector<metrics> found;
  for (run const& one : report.runs) {
    if (one.arm != arm) continue;
    try {
      found.push_back(metrics::read(report.directory / one.metrics_file, report.asked.metric));
    } catch (program_error const&) {
      // A run without a readable metrics file has no curve; its row in the table of runs says why.
    }
  }
  return found;
}

record arm_record(ab_report const& report, arm_result const& one) {
  auto const runs = read_metrics(report, one.arm);
  record differences = record::array();
  for (auto const& [seed, difference] : one.differences) differences.push_back(record{seed, difference});
  bool const compared = !one.is_baseline && one.comparison.pairs > 0;
  return {{"name", one.arm},
          {"baseline", one.is_baseline},
          {"difference", compared ? record(one.comparison.difference) : record(nullptr)},
          {"ci95", interval_record(one.comparison.ci95)},
          {"ci90", interval_record(one.comparison.ci90)},
          {"differences", differences},
          {"compression", one.compression ? record(*one.compression) : record(nullptr)},
          {"curves", {{"eval", to_record(eval_curve(runs))}, {"loss", to_record(loss_curve(runs))}}},
          {"step", to_record(mean_step(runs))}};
}

}  // namespace

page make_page(ab_report const& report) {
  page page;
  std::string const baseline = report.asked.baseline == "none" ? "dense (none)" : report.asked.baseline;
  page.title = "Does compressed training reach what " + baseline + " reaches?";
  page.lede = summary_text(report.asked, report.results);
  page.body = verdict_card(report) + std::string{pictures} + next_card(report) + runs_card(report);
  record arms = record::array();
  for (arm_result const& one : report.results) arms.push_back(arm_record(report, one));
  page.data = {{"metric", report.asked.metric},
               {"better", report.asked.better == direction::higher ? "higher" : "lower"},
               {"margin", report.asked.margin},
               {"arms", std::move(arms)}};
  page.scripts = {embedded::ab_report_js()};
  page.facts = {{"Made by", command_text(report.command)},
                {"Each run", command_text(report.what.command)},
                {"Date", report.date}};
  return page;
}

}  // namespace gradwire::program
