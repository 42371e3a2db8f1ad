#include "program/ab/explain.hpp"

#include <algorithm>
#include <cmath>

#include <fmt/format.h>

#include "program/common/console.hpp"

namespace gradwire::program {
namespace {

int places(double margin) { return std::clamp(static_cast<int>(std::ceil(-std::log10(margin))), 0, 12) + 2; }

std::string joined_arms(std::span<arm_result const> results, std::string_view word) {
  std::vector<std::string> names;
  for (arm_result const& one : results) {
    if (verdict_word(one) == word) names.push_back(one.arm);
  }
  if (names.size() < 2) return names.empty() ? "" : names.front();
  if (names.size() > 4) return fmt::format("{} arms", names.size());
  std::string const last = names.back();
  names.pop_back();
  return fmt::format("{} and {}", fmt::join(names, ", "), last);
}

// The command with --seeds set to `seeds` and --resume, what follows `--` untouched; empty if the seeds were a list.
std::string with_seeds(std::span<std::string const> command, std::size_t seeds) {
  std::vector<std::string> words{command.begin(), std::ranges::find(command, "--")};
  std::vector<std::string> const rest{command.begin() + static_cast<std::ptrdiff_t>(words.size()), command.end()};
  if (std::ranges::any_of(words, [](auto const& word) { return word.starts_with("--seed-list"); })) return {};
  for (auto at = words.begin(); at != words.end();) {
    bool const split = *at == "--seeds" && at + 1 != words.end();
    bool const drop = split || at->starts_with("--seeds=") || *at == "--resume";
    at = drop ? words.erase(at, at + (split ? 2 : 1)) : at + 1;
  }
  words.insert(words.end(), {"--seeds", std::to_string(seeds), "--resume"});
  words.insert(words.end(), rest.begin(), rest.end());
  return command_text(words);
}

void explain_failures(std::vector<std::string>& lines, std::span<run const> runs,
                      std::filesystem::path const& directory) {
  constexpr std::size_t most = 3;
  std::size_t bad = 0;
  for (run const& one : runs) {
    if (one.status == run_status::ok || ++bad > most) continue;
    std::string line = fmt::format("{}, seed {}, {}: {}; log: {}", one.arm, one.seed, to_string(one.status), one.reason,
                                   (directory / one.log).string());
    std::string const tail = last_lines(directory / one.log, 3);
    if (!tail.empty()) line += "\n" + tail;
    lines.push_back(std::move(line));
  }
  if (bad > most) lines.push_back(fmt::format("{} more runs failed or diverged: see results.jsonl", bad - most));
}

}  // namespace

std::string value_text(double value, double margin) {
  if (!(std::abs(value) < 1e6)) return fmt::format("{:.4g}", value);
  return fmt::format("{:.{}f}", value, places(margin));
}

std::string signed_text(double value, double margin) {
  return fmt::format("{}{}", value > 0 ? "+" : "", value_text(value, margin));
}

std::string interval_text(std::optional<interval> const& value, double margin) {
  if (!value) return "no interval";
  return fmt::format("[{}, {}]", signed_text(value->low, margin), signed_text(value->high, margin));
}

std::string factor_text(std::optional<double> const& factor) {
  if (!factor) return "-";
  return *factor < 10 ? fmt::format("{:.2f}x", *factor)
                      : (*factor < 100 ? fmt::format("{:.1f}x", *factor) : fmt::format("{:.0f}x", *factor));
}

std::string summary_text(question const& asked, std::span<arm_result const> results) {
  std::string text = fmt::format("Against {} within ±{:g} {} over {} seed{}: ", asked.baseline, asked.margin,
                                 asked.metric, asked.seeds.size(), asked.seeds.size() == 1 ? "" : "s");
  std::string list;
  for (std::string_view const word : {"equivalent", "better", "worse", "inconclusive"}) {
    std::string const names = joined_arms(results, word);
    if (names.empty()) continue;
    auto const several = std::ranges::count(results, word, verdict_word) > 1;
    list += fmt::format("{}{} {} {}", list.empty() ? "" : "; ", names, several ? "are" : "is", word);
  }
  std::size_t bad = 0;
  for (arm_result const& one : results) bad += one.bad;
  if (bad > 0) list += fmt::format("; {} run{} failed or diverged", bad, bad == 1 ? "" : "s");
  return text + (list.empty() ? "no other arm" : list) + ".";
}

std::vector<term> verdict_terms(question const& asked) {
  std::string const m = fmt::format("{:g}", asked.margin);
  return {
      {"equivalent", fmt::format("as good as {} for this purpose: the 90 % interval of the difference lies inside ±{} "
                                 "(paired two one-sided t-tests at 5 %)",
                                 asked.baseline, m)},
      {"better", "not equivalent, and the 95 % interval of the difference lies wholly on the good side of 0"},
      {"worse", "not equivalent, and the 95 % interval of the difference lies wholly on the bad side of 0"},
      {"inconclusive",
       "none of these: the seeds so far allow both a difference that matters and none at all, or runs failed or "
       "diverged and the seeds that are left do not show that it is worse"},
  };
}

std::string verdict_table(question const& asked, std::span<arm_result const> results) {
  table rows{{{"arm", align::left},
              {"verdict", align::left},
              {asked.metric},
              {"difference"},
              {"95 % interval"},
              {"seeds"},
              {"compression"},
              {"speedup"},
              {"note", align::left}}};
  for (arm_result const& one : results) {
    bool const compared = !one.is_baseline && one.comparison.pairs > 0;
    rows.add({one.arm, std::string{verdict_word(one)}, one.mean ? value_text(*one.mean, asked.margin) : "-",
              compared ? signed_text(one.comparison.difference, asked.margin) : "-",
              one.is_baseline ? "-" : interval_text(one.comparison.ci95, asked.margin),
              fmt::format("{}/{}", one.good, one.good + one.bad), factor_text(one.compression),
              one.is_baseline ? "-" : factor_text(one.speedup), one.reason});
  }
  std::string text = rows.text() + "\n";
  for (term const& term : verdict_terms(asked)) {
    bool const used = std::ranges::any_of(results, [&](auto const& one) { return verdict_word(one) == term.word; });
    if (used) text += fmt::format("{:<13} {}\n", term.word + ":", term.meaning);
  }
  return text;
}

std::vector<std::string> next_steps(question const& asked, std::span<arm_result const> results,
                                    std::span<run const> runs, std::filesystem::path const& directory,
                                    std::span<std::string const> command) {
  std::vector<std::string> lines;
  explain_failures(lines, runs, directory);
  std::size_t seeds = 0;
  for (arm_result const& one : results) seeds = std::max(seeds, one.comparison.seeds_needed.value_or(0));
  std::string const again = seeds > 0 ? with_seeds(command, seeds) : "";
  if (!again.empty()) lines.push_back("to settle what is inconclusive, only the missing seeds are run: " + again);
  if (std::ranges::any_of(results, [](auto const& one) { return one.comparison.verdict == verdict::worse; })) {
    lines.push_back("a worse arm may only need error feedback (+ef) or dense first steps (+warmup(steps=N))");
  }
  if (asked.seeds.size() < 5) {
    lines.push_back("fewer than 5 seeds make wide intervals: five or more are worth their time");
  }
  for (arm_result const& one : results) {
    if (one.comparison.verdict == verdict::equivalent && one.speedup && *one.speedup < 1) {
      lines.push_back(
          "an equivalent arm was slower here: compression pays when the link is slower than the encoder; "
          "`gradwire sweep` and `gradwire doctor` print the break-even");
      break;
    }
  }
  return lines;
}

}  // namespace gradwire::program
