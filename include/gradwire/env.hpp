#pragma once

#include <optional>
#include <string>

namespace gradwire {

//! Every environment variable that gradwire reads, read once at first use. Library code takes options structs; only
//! launch.hpp and the program look here.
struct env {
  std::optional<std::string> rank;                  //!< RANK (torchrun): this process's rank
  std::optional<std::string> world_size;            //!< WORLD_SIZE (torchrun)
  std::optional<std::string> local_rank;            //!< LOCAL_RANK (torchrun): rank on this machine
  std::optional<std::string> master_addr;           //!< MASTER_ADDR: machine of rank 0
  std::optional<std::string> master_port;           //!< MASTER_PORT
  std::optional<std::string> agent_store;           //!< TORCHELASTIC_USE_AGENT_STORE: torchrun holds MASTER_PORT itself
  std::optional<std::string> ompi_rank;             //!< OMPI_COMM_WORLD_RANK (mpirun)
  std::optional<std::string> ompi_size;             //!< OMPI_COMM_WORLD_SIZE
  std::optional<std::string> ompi_local_rank;       //!< OMPI_COMM_WORLD_LOCAL_RANK
  std::optional<std::string> ompi_local_size;       //!< OMPI_COMM_WORLD_LOCAL_SIZE: ranks on this machine
  std::optional<std::string> ompi_job;              //!< PMIX_NAMESPACE: names the mpirun job
  std::optional<std::string> slurm_rank;            //!< SLURM_PROCID (srun)
  std::optional<std::string> slurm_step;            //!< SLURM_STEP_ID
  std::optional<std::string> slurm_size;            //!< SLURM_NTASKS
  std::optional<std::string> slurm_local_rank;      //!< SLURM_LOCALID
  std::optional<std::string> slurm_job;             //!< SLURM_JOB_ID
  std::optional<std::string> slurm_nodes;           //!< SLURM_STEP_NODELIST or SLURM_JOB_NODELIST
  std::optional<std::string> rendezvous;            //!< GRADWIRE_RENDEZVOUS: tcp://host:port or file:///folder
  std::optional<std::string> interface;             //!< GRADWIRE_INTERFACE: network interface that Gloo binds to
  std::optional<std::string> cuda_visible_devices;  //!< CUDA_VISIBLE_DEVICES, for `gradwire doctor`

  //! The process's environment, read once.
  static env const& get();
  //! Reads the environment now; for tests.
  static env read();
};

}  // namespace gradwire
