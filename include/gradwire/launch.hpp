#pragma once

#include <cstddef>
#include <optional>
#include <string>
#include <string_view>

#include <gradwire/env.hpp>

namespace gradwire {

//! This process's place in a world that a launcher made.
struct launch_info {
  std::string_view launcher;  //!< "torchrun", "mpirun" or "srun"
  std::size_t rank = 0;
  std::size_t world = 1;
  std::size_t local_rank = 0;
  std::string rendezvous;  //!< for gloo_options
};

//! Reads torchrun's (RANK, WORLD_SIZE, MASTER_ADDR, MASTER_PORT), mpirun's (OMPI_COMM_WORLD_*) or srun's (SLURM_*)
//! variables, in this order. Empty without a launcher. Throws errc::invalid_argument for variables that are missing,
//! not numbers or out of range, naming them.
[[nodiscard]] std::optional<launch_info> detect_launch(env const& environment = env::get());

}  // namespace gradwire
