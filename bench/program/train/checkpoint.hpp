#pragma once

#include <cstddef>
#include <filesystem>
#include <vector>

#include <gradwire/communicator.hpp>

#include "program/common/json_lines.hpp"
#include "program/train/optimizer.hpp"
#include "program/train/workload.hpp"

namespace gradwire::program {

//! What a run has done so far.
struct train_totals {
  std::size_t steps = 0;
  std::size_t samples = 0;  //!< over all ranks: the place in the data order
  double seconds = 0;
  double raw_bytes = 0;
  double wire_bytes = 0;
};

//! A run between two steps.
struct checkpoint {
  train_totals totals;
  std::size_t optimizer_steps = 0;
  std::vector<std::vector<float>> weights;
  std::vector<std::vector<float>> optimizer;
  std::vector<std::vector<std::byte>> reducer;  //!< by rank
};

//! The file in a --checkpoint directory.
[[nodiscard]] std::filesystem::path checkpoint_file(std::filesystem::path const& directory);

//! Collective. Rank 0 writes one file with the state of all ranks: to a temporary name, then renamed. Throws
//! program_error when it cannot be written.
void save_checkpoint(communicator& comm, std::filesystem::path const& directory, train_config const& config,
                     train_totals const& totals, std::span<weight const> weights, optimizer& opt,
                     std::vector<std::byte> reducer_state);

//! Collective: rank 0 reads, the others receive. Throws program_error on every rank: the file is missing, damaged, or
//! of a run with another configuration (the field, both values).
[[nodiscard]] checkpoint load_checkpoint(communicator& comm, std::filesystem::path const& directory,
                                         train_config const& config);

//! Puts back weights and optimizer; the reducer and the totals are the caller's.
void restore(checkpoint const& from, std::span<weight> weights, optimizer& opt);

}  // namespace gradwire::program
