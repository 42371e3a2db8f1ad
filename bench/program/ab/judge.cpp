#include "program/ab/judge.hpp"

#include <algorithm>
#include <cmath>

#include <fmt/format.h>

namespace gradwire::program {
namespace {

run const* find_run(std::span<run const> runs, std::string_view arm, std::uint64_t seed) {
  auto const found = std::ranges::find_if(runs, [&](run const& one) { return one.arm == arm && one.seed == seed; });
  return found == runs.end() ? nullptr : &*found;
}

bool good(run const* one) { return one != nullptr && one->status == run_status::ok; }

std::optional<double> ratio(double above, double below) {
  return above > 0 && below > 0 ? std::optional{above / below} : std::nullopt;
}

void count_seeds(arm_result& result, question const& asked, std::span<run const> runs) {
  double sum = 0;
  double raw = 0;
  double wire = 0;
  for (std::uint64_t const seed : asked.seeds) {
    run const* const own = find_run(runs, result.arm, seed);
    if (own == nullptr) continue;
    if (!good(own)) {
      ++result.bad;
      continue;
    }
    ++result.good;
    sum += *own->value;
    if (own->raw_bytes && own->wire_bytes) {
      raw += *own->raw_bytes;
      wire += *own->wire_bytes;
    }
  }
  if (result.good > 0) result.mean = sum / static_cast<double>(result.good);
  result.compression = ratio(raw, wire);
}

void pair_seeds(arm_result& result, question const& asked, std::span<run const> runs) {
  double own_seconds = 0;
  double baseline_seconds = 0;
  for (std::uint64_t const seed : asked.seeds) {
    run const* const own = find_run(runs, result.arm, seed);
    run const* const baseline = find_run(runs, asked.baseline, seed);
    if (!good(own) || !good(baseline)) continue;
    if (!result.is_baseline) result.differences.push_back({seed, *own->value - *baseline->value});
    if (own->seconds && baseline->seconds) {
      own_seconds += *own->seconds;
      baseline_seconds += *baseline->seconds;
    }
  }
  result.speedup = ratio(baseline_seconds, own_seconds);
}

std::string seeds_text(std::size_t count) { return fmt::format("{} seed{}", count, count == 1 ? "" : "s"); }

std::string explain(arm_result const& result, std::size_t baseline_bad) {
  comparison const& c = result.comparison;
  if (result.bad > 0) {
    return fmt::format("{} of {} runs failed or diverged", result.bad, result.bad + result.good);
  }
  if (c.pairs < 2 && baseline_bad > 0) return "the baseline failed on too many seeds to compare with";
  if (c.pairs == 0) return "no run to compare";
  if (c.pairs == 1) return "one seed gives no interval: run at least 2, better 5";
  if (c.verdict == verdict::inconclusive) {
    return c.seeds_needed ? fmt::format("about {} seeds would settle it", *c.seeds_needed)
                          : std::string{"no practical number of seeds would settle it at this margin"};
  }
  if (c.deviation == 0 && c.verdict != verdict::inconclusive) {
    return fmt::format("all {} differences are equal, so the intervals have no width", c.pairs);
  }
  if (baseline_bad > 0) return fmt::format("without {} on which the baseline failed", seeds_text(baseline_bad));
  return {};
}

}  // namespace

record interval_record(std::optional<interval> const& value) {
  return value ? record{value->low, value->high} : record(nullptr);
}

record arm_result::to_record(question const& asked, std::optional<double> const& baseline_mean) const {
  record line{{"event", "verdict"}, {"arm", arm}, {"baseline", asked.baseline}, {"metric", asked.metric}};
  line["seeds"] = comparison.pairs;
  line["failed_seeds"] = bad;
  line["mean"] = optional_record(mean);
  line["baseline_mean"] = optional_record(baseline_mean);
  line["difference"] = comparison.pairs > 0 ? record(comparison.difference) : record(nullptr);
  line["ci95"] = interval_record(comparison.ci95);
  line["ci90"] = interval_record(comparison.ci90);
  line["margin"] = asked.margin;
  line["better"] = asked.better == direction::higher ? "higher" : "lower";
  line["p_equivalence"] = optional_record(comparison.p_equivalence);
  line["verdict"] = to_string(comparison.verdict);
  line["seeds_needed"] = comparison.seeds_needed ? record(*comparison.seeds_needed) : record(nullptr);
  line["compression"] = optional_record(compression);
  line["speedup"] = optional_record(speedup);
  if (!reason.empty()) line["reason"] = reason;
  return line;
}

std::vector<arm_result> judge_arms(question const& asked, std::span<run const> runs) {
  std::vector<arm_result> results;
  for (std::string const& arm : asked.arms) {
    arm_result result;
    result.arm = arm;
    result.is_baseline = arm == asked.baseline;
    count_seeds(result, asked, runs);
    pair_seeds(result, asked, runs);
    results.push_back(std::move(result));
  }
  auto const baseline = std::ranges::find_if(results, [](arm_result const& one) { return one.is_baseline; });
  std::size_t const baseline_bad = baseline == results.end() ? 0 : baseline->bad;
  for (arm_result& result : results) {
    if (result.is_baseline) {
      if (result.bad > 0) result.reason = fmt::format("{} failed or diverged", seeds_text(result.bad));
      continue;
    }
    std::vector<double> differences;
    for (seed_difference const& one : result.differences) differences.push_back(one.difference);
    result.comparison = compare_pairs(differences, asked.margin, asked.better);
    if (result.bad > 0 && result.comparison.verdict != verdict::worse) {
      result.comparison.verdict = verdict::inconclusive;
      result.comparison.seeds_needed.reset();
    }
    result.reason = explain(result, baseline_bad);
  }
  return results;
}

bool any_worse_or_failed(std::span<arm_result const> results) {
  return std::ranges::any_of(
      results, [](arm_result const& one) { return one.bad > 0 || one.comparison.verdict == verdict::worse; });
}

std::string_view verdict_word(arm_result const& result) {
  return result.is_baseline ? "baseline" : to_string(result.comparison.verdict);
}

}  // namespace gradwire::program
