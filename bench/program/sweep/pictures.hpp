#pragma once

#include <filesystem>
#include <string>
#include <vector>

#include "program/sweep/result.hpp"

namespace gradwire::program::sweep {

//! sweep.html: break-even pictures (time over dense time by size), error against time with the Pareto front, and every
//! case as a table; one self-contained file. `results` are not empty.
void write_sweep_page(std::filesystem::path const& file, collective_kind collective,
                      std::vector<case_result> const& results, std::vector<std::string> const& command_line);

}  // namespace gradwire::program::sweep
