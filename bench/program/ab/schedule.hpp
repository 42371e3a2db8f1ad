#pragma once

#include <chrono>
#include <filesystem>
#include <functional>
#include <vector>

#include "program/ab/judge.hpp"
#include "program/ab/results_file.hpp"
#include "program/ab/runs.hpp"

namespace gradwire::program {

struct schedule_options {
  std::filesystem::path directory;  //!< logs/ and metrics/ are made in it
  std::size_t jobs = 1;
  std::chrono::milliseconds run_timeout{std::chrono::hours{24}};
  pick choice = pick::last;
};

//! What is to be run: every arm of a seed before the next seed, so that an interrupted experiment has whole pairs.
//! Commands are filled in, file names chosen. `program`, if not empty, stands for the first word of the command.
[[nodiscard]] std::vector<run> plan_runs(question const& asked, experiment const& experiment,
                                         std::filesystem::path const& directory, std::string const& program = {});

//! Runs them, `jobs` at a time, each in a process group of its own; `finished` is called after each end, in the order
//! of the ends. Whatever leaves this function, no process is left behind. Throws interrupted_error after Ctrl-C, and
//! program_error if a program cannot be started at all. Needs the main thread.
void execute_runs(std::vector<run> planned, schedule_options const& options, std::string_view metric,
                  std::function<void(run const&)> const& finished);

}  // namespace gradwire::program
