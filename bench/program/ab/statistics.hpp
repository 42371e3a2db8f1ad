#pragma once

#include <cstddef>
#include <optional>
#include <span>
#include <string_view>

namespace gradwire::program {

enum class verdict : unsigned char { equivalent, better, worse, inconclusive };
[[nodiscard]] std::string_view to_string(verdict value) noexcept;

enum class direction : unsigned char { higher, lower };  //!< which values of the metric are the better ones

struct interval {
  double low = 0;
  double high = 0;
};

//! What the paired differences (arm − baseline, one for each seed) say.
struct comparison {
  std::size_t pairs = 0;
  double difference = 0;         //!< mean of the differences; 0 without any
  double deviation = 0;          //!< their sample standard deviation (n − 1); 0 with fewer than two
  std::optional<interval> ci95;  //!< of the mean difference; needs two pairs
  std::optional<interval> ci90;
  std::optional<double> p_equivalence;  //!< of the two one-sided tests: equivalent at 5 % when below 0.05
  gradwire::program::verdict verdict = verdict::inconclusive;
  std::optional<std::size_t> seeds_needed;  //!< for an inconclusive one, see seeds_to_settle
};

//! Judges with a margin > 0 in units of the metric. In this order:
//! equivalent: the 90 % interval of the mean difference lies inside (−margin, margin), which is the paired two
//! one-sided t-test at 5 % (Schuirmann 1987, J. Pharmacokinet. Biopharm. 15: 657–680); better, worse: the 95 % interval
//! lies wholly on one side of 0; inconclusive: everything else, and fewer than two pairs. Differences that are all
//! equal make intervals of no width.
[[nodiscard]] comparison compare_pairs(std::span<double const> differences, double margin, direction better);

//! The smallest number of seeds above `have` at which a mean difference and a deviation like these give a verdict: the
//! half-width t(0.95, n−1)·s/√n of the 90 % interval fits between |difference| and the margin, or t(0.975, n−1)·s/√n is
//! less than |difference|. A guide for planning: with few seeds the deviation itself is uncertain, and at exactly this
//! n the chance of a verdict is about even. Empty above 100,000.
[[nodiscard]] std::optional<std::size_t> seeds_to_settle(double difference, double deviation, double margin,
                                                         std::size_t have);

//! Quantile of Student's t with `degrees` >= 1 degrees of freedom; 0 < p < 1.
[[nodiscard]] double students_t_quantile(double p, double degrees);

}  // namespace gradwire::program
