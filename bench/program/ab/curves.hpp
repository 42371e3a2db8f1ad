#pragma once

#include <optional>
#include <span>
#include <string>
#include <vector>

#include "program/ab/runs.hpp"
#include "program/common/json_lines.hpp"

namespace gradwire::program {

//! One point of a learning curve over the seeds of an arm.
struct curve_point {
  double step = 0;
  double mean = 0;
  double low = 0;  //!< smallest and largest over the seeds
  double high = 0;
  std::size_t seeds = 0;
  std::optional<double> wire_bytes;  //!< sent up to here, mean over the seeds that counted them
  std::optional<double> seconds;     //!< trained up to here, likewise
};

//! The evals of all runs, step by step; values that are not finite are left out.
[[nodiscard]] std::vector<curve_point> eval_curve(std::span<metrics const> runs);

//! The training loss in at most `bins` bins of equal width in steps: the mean in each bin of each run, then over the
//! runs. A point stands at the last step of its bin.
[[nodiscard]] std::vector<curve_point> loss_curve(std::span<metrics const> runs, std::size_t bins = 100);

//! Means over the steps of all runs; the first step of a run, which warms up, does not count where there are others.
struct step_cost {
  std::optional<double> raw_bytes;
  std::optional<double> wire_bytes;
  std::optional<double> compute_seconds;  //!< seconds − exposed_seconds
  std::optional<double> exposed_seconds;
};
[[nodiscard]] step_cost mean_step(std::span<metrics const> runs);

[[nodiscard]] record to_record(std::span<curve_point const> curve);
[[nodiscard]] record to_record(step_cost const& cost);

}  // namespace gradwire::program
