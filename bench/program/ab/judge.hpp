#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "program/ab/runs.hpp"
#include "program/ab/statistics.hpp"

namespace gradwire::program {

//! What is asked: everything that the verdicts depend on besides the runs.
struct question {
  std::vector<std::string> arms;  //!< the baseline among them
  std::string baseline;
  std::vector<std::uint64_t> seeds;
  std::string metric;
  double margin = 0.01;
  direction better = direction::higher;
};

//! [low, high], or null when there is none.
[[nodiscard]] record interval_record(std::optional<interval> const& value);

struct seed_difference {
  std::uint64_t seed = 0;
  double difference = 0;  //!< arm − baseline
};

//! One arm over all its seeds.
struct arm_result {
  std::string arm;
  bool is_baseline = false;
  std::size_t good = 0;  //!< seeds with a value
  std::size_t bad = 0;   //!< failed or diverged ones
  std::optional<double> mean;
  std::vector<seed_difference> differences;  //!< seeds with a value here and for the baseline; none for the baseline
  gradwire::program::comparison comparison;  //!< left as it is for the baseline
  std::string reason;                        //!< why there is no clear verdict, or what else to know; may be empty
  std::optional<double> compression;         //!< raw bytes / wire bytes over the good seeds
  std::optional<double> speedup;             //!< baseline seconds / arm seconds over the seeds that both have

  //! {"event":"verdict",…} of an arm that is not the baseline.
  [[nodiscard]] record to_record(question const& asked, std::optional<double> const& baseline_mean) const;
};

//! One result for each arm, in the order of the question. An arm with a failed seed is never equivalent or better: the
//! seeds that are left are no fair sample of it. It is worse if those show it, else inconclusive.
[[nodiscard]] std::vector<arm_result> judge_arms(question const& asked, std::span<run const> runs);

//! True if an arm is worse or a run (of the baseline, too) failed or diverged: exit status 1.
[[nodiscard]] bool any_worse_or_failed(std::span<arm_result const> results);

//! "equivalent", …, as in the record; "baseline" for the baseline. What failed runs did to it stands in `reason`.
[[nodiscard]] std::string_view verdict_word(arm_result const& result);

}  // namespace gradwire::program
