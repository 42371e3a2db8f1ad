#pragma once

#include <filesystem>
#include <span>
#include <string>
#include <vector>

#include "program/ab/judge.hpp"
#include "program/ab/results_file.hpp"
#include "program/report/page.hpp"

namespace gradwire::program {

//! What report.html shows.
struct ab_report {
  question asked;
  experiment what;
  std::vector<arm_result> results;
  std::vector<run> runs;             //!< of all arms and seeds; their metrics files are read for the curves
  std::filesystem::path directory;   //!< where logs and metrics files lie
  std::vector<std::string> command;  //!< the command line that was given
  std::size_t jobs = 1;
  std::string date;
};

[[nodiscard]] page make_page(ab_report const& report);

}  // namespace gradwire::program
