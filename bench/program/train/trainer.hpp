#pragma once

#include <filesystem>
#include <string>

#include <gradwire/communicator.hpp>

#include "program/common/console.hpp"
#include "program/common/context.hpp"
#include "program/train/workload.hpp"

namespace gradwire::program {

struct train_files {
  std::string metrics;               //!< JSON lines; empty: none, "-": standard output
  std::string trace;                 //!< Chrome/Perfetto JSON of rank 0; empty: none
  std::filesystem::path checkpoint;  //!< directory; empty: none
  bool resume = false;
};

//! Collective: trains on this rank to the end; rank 0 writes files and the table. Returns `no` for a run that diverged.
//! Throws what the library throws, interrupted_error, and program_error when a file cannot be written or the ranks do
//! not end with equal parameters.
exit_code train_rank(communicator& comm, train_config const& config, workload_factory const& make,
                     train_files const& files, output_options const& output);

}  // namespace gradwire::program
