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
  std::size_t local_rank = 0;  //!< 0 where the launcher's variable is missing
  std::string rendezvous;      //!< for gloo_options
};

//! Reads torchrun's (RANK, WORLD_SIZE, MASTER_ADDR, MASTER_PORT), mpirun's (OMPI_COMM_WORLD_*) or srun's (SLURM_*)
//! variables, in this order. Empty without a launcher. Throws errc::invalid_argument for variables that are missing,
//! not numbers or out of range, naming them.
//!
//! The rendezvous is, in this order: GRADWIRE_RENDEZVOUS; MASTER_ADDR with MASTER_PORT (29500 without one, except under
//! torchrun, which always sets it), and with the port after it (before it for 65535) where torchrun's agent holds
//! MASTER_PORT itself (TORCHELASTIC_USE_AGENT_STORE=True); for mpirun on one machine a folder named after the job under
//! the system's temporary folder; for srun the first host of the step with port 20000 + job id modulo 10000. Without
//! `with_rendezvous` only GRADWIRE_RENDEZVOUS is, and nothing is asked of the other variables: for MPI, whose ranks
//! know each other.
[[nodiscard]] std::optional<launch_info> detect_launch(env const& environment = env::get(),
                                                       bool with_rendezvous = true);

}  // namespace gradwire
