#include "program/ab/statistics.hpp"

#include <algorithm>
#include <cmath>
#include <numeric>

#include <boost/math/distributions/students_t.hpp>

#include <gradwire/error.hpp>

namespace gradwire::program {
namespace {

constexpr std::size_t most_seeds = 100'000;

interval around(double centre, double half_width) { return {centre - half_width, centre + half_width}; }

// The larger of the two one-sided p-values.
double tost_p(double difference, double standard_error, double margin, double degrees) {
  if (standard_error == 0) return std::abs(difference) < margin ? 0 : 1;
  boost::math::students_t const t{degrees};
  double const above_low = cdf(complement(t, (difference + margin) / standard_error));
  double const below_high = cdf(t, (difference - margin) / standard_error);
  return std::max(above_low, below_high);
}

verdict judge(comparison const& c, double margin, direction better) {
  if (!c.ci90) return verdict::inconclusive;
  if (c.ci90->low > -margin && c.ci90->high < margin) return verdict::equivalent;
  bool const above = c.ci95->low > 0;
  bool const below = c.ci95->high < 0;
  if (!above && !below) return verdict::inconclusive;
  return above == (better == direction::higher) ? verdict::better : verdict::worse;
}

}  // namespace

std::string_view to_string(verdict value) noexcept {
  switch (value) {
    case verdict::equivalent: return "equivalent";
    case verdict::better: return "better";
    case verdict::worse: return "worse";
    case verdict::inconclusive: break;
  }
  return "inconclusive";
}

double students_t_quantile(double p, double degrees) { return quantile(boost::math::students_t{degrees}, p); }

comparison compare_pairs(std::span<double const> differences, double margin, direction better) {
  expects(margin > 0 && std::isfinite(margin), "the margin must be a finite number above 0");
  expects(std::all_of(differences.begin(), differences.end(), [](double d) { return std::isfinite(d); }),
          "differences must be finite: a run without a finite value is a failed seed");
  comparison result;
  result.pairs = differences.size();
  if (differences.empty()) return result;
  auto const n = static_cast<double>(differences.size());
  result.difference = std::accumulate(differences.begin(), differences.end(), 0.0) / n;
  if (differences.size() < 2) return result;
  bool const all_equal =
      std::adjacent_find(differences.begin(), differences.end(), std::not_equal_to<>{}) == differences.end();
  if (all_equal) {
    result.difference = differences.front();  // the sum may have been rounded
  } else {
    double squares = 0;
    for (double const d : differences) squares += (d - result.difference) * (d - result.difference);
    result.deviation = std::sqrt(squares / (n - 1));
  }
  double const standard_error = result.deviation / std::sqrt(n);
  result.ci95 = around(result.difference, students_t_quantile(0.975, n - 1) * standard_error);
  result.ci90 = around(result.difference, students_t_quantile(0.95, n - 1) * standard_error);
  result.p_equivalence = tost_p(result.difference, standard_error, margin, n - 1);
  result.verdict = judge(result, margin, better);
  if (result.verdict == verdict::inconclusive) {
    result.seeds_needed = seeds_to_settle(result.difference, result.deviation, margin, differences.size());
  }
  return result;
}

std::optional<std::size_t> seeds_to_settle(double difference, double deviation, double margin, std::size_t have) {
  double const size = std::abs(difference);
  auto const settles = [&](std::size_t seeds) {
    auto const n = static_cast<double>(seeds);
    double const standard_error = deviation / std::sqrt(n);
    return students_t_quantile(0.95, n - 1) * standard_error < margin - size ||
           students_t_quantile(0.975, n - 1) * standard_error < size;
  };
  // Both half-widths shrink as n grows, so the answer can be bracketed and halved.
  std::size_t low = std::max<std::size_t>(have, 1);
  std::size_t high = low + 1;
  while (!settles(high)) {
    if (high >= most_seeds) return std::nullopt;
    low = high;
    high = std::min(high * 2, most_seeds);
  }
  while (high - low > 1) {
    std::size_t const middle = low + (high - low) / 2;
    (settles(middle) ? high : low) = middle;
  }
  return high;
}

}  // namespace gradwire::program
