#pragma once

#include <filesystem>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "program/ab/judge.hpp"

namespace gradwire::program {

//! A value of the metric with two places more than the margin has: 0.9731 at a margin of 0.01.
[[nodiscard]] std::string value_text(double value, double margin);
//! The same with its sign, "+0.0012".
[[nodiscard]] std::string signed_text(double value, double margin);
//! "[-0.0031, +0.0012]"; "no interval" without one.
[[nodiscard]] std::string interval_text(std::optional<interval> const& value, double margin);
//! "31.2x", "0.97x"; "-" without one.
[[nodiscard]] std::string factor_text(std::optional<double> const& factor);

//! One or two sentences for people: which arms are equivalent, worse, …
[[nodiscard]] std::string summary_text(question const& asked, std::span<arm_result const> results);

//! A word of the verdicts and what it means for this question.
struct term {
  std::string word;
  std::string meaning;
};
[[nodiscard]] std::vector<term> verdict_terms(question const& asked);

//! The verdicts as a table for a terminal, with a line for each word.
[[nodiscard]] std::string verdict_table(question const& asked, std::span<arm_result const> results);

//! What to look at or run next, a line each. `command`: the command line that was given, program name first.
[[nodiscard]] std::vector<std::string> next_steps(question const& asked, std::span<arm_result const> results,
                                                  std::span<run const> runs, std::filesystem::path const& directory,
                                                  std::span<std::string const> command);

}  // namespace gradwire::program
