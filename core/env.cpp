#include <gradwire/env.hpp>

#include <cstdlib>

namespace gradwire {
namespace {

std::optional<std::string> variable(char const* name) {
  char const* const value = std::getenv(name);  // NOLINT(concurrency-mt-unsafe): read once, before threads write it
  return value == nullptr ? std::nullopt : std::optional<std::string>{value};
}

}  // namespace

env env::read() {
  env result;
  result.rank = variable("RANK");
  result.world_size = variable("WORLD_SIZE");
  result.local_rank = variable("LOCAL_RANK");
  result.master_addr = variable("MASTER_ADDR");
  result.master_port = variable("MASTER_PORT");
  result.agent_store = variable("TORCHELASTIC_USE_AGENT_STORE");
  result.ompi_rank = variable("OMPI_COMM_WORLD_RANK");
  result.ompi_size = variable("OMPI_COMM_WORLD_SIZE");
  result.ompi_local_rank = variable("OMPI_COMM_WORLD_LOCAL_RANK");
  result.ompi_local_size = variable("OMPI_COMM_WORLD_LOCAL_SIZE");
  result.ompi_job = variable("PMIX_NAMESPACE");
  result.slurm_rank = variable("SLURM_PROCID");
  result.slurm_step = variable("SLURM_STEP_ID");
  result.slurm_size = variable("SLURM_NTASKS");
  result.slurm_local_rank = variable("SLURM_LOCALID");
  result.slurm_job = variable("SLURM_JOB_ID");
  result.slurm_nodes = variable("SLURM_STEP_NODELIST");
  if (!result.slurm_nodes) result.slurm_nodes = variable("SLURM_JOB_NODELIST");
  result.rendezvous = variable("GRADWIRE_RENDEZVOUS");
  result.interface = variable("GRADWIRE_INTERFACE");
  result.cuda_visible_devices = variable("CUDA_VISIBLE_DEVICES");
  return result;
}

env const& env::get() {
  static env const values = read();
  return values;
}

}  // namespace gradwire
