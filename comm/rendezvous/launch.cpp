#include <gradwire/launch.hpp>

#include <unistd.h>

#include <algorithm>
#include <charconv>
#include <cstdint>
#include <filesystem>
#include <utility>

#include <gradwire/error.hpp>

namespace gradwire {
namespace {

using variable = std::optional<std::string>;

std::size_t number(char const* name, std::string const& text, std::size_t least, std::size_t most) {
  std::size_t value = 0;
  auto const [end, failed] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (failed == std::errc{} && end == text.data() + text.size() && value >= least && value <= most) return value;
  throw error{errc::invalid_argument, std::string{name} + " is '" + text + "': it must be a whole number from " +
                                          std::to_string(least) + " to " + std::to_string(most)};
}

std::string const& require(char const* launcher, char const* name, variable const& value) {
  if (value && !value->empty()) return *value;
  throw error{errc::invalid_argument, std::string{name} + " is not set, but other variables of " + launcher +
                                          " are: start through " + launcher + ", or unset them all"};
}

constexpr std::size_t most_ranks = 1'000'000;

struct names {
  char const* launcher;
  char const* rank;
  char const* size;
  char const* local_rank;
};

launch_info place(names const& name, variable const& rank, variable const& size, variable const& local_rank) {
  launch_info result;
  result.launcher = name.launcher;
  result.world = number(name.size, require(name.launcher, name.size, size), 1, most_ranks);
  result.rank = number(name.rank, require(name.launcher, name.rank, rank), 0, result.world - 1);
  if (local_rank) result.local_rank = number(name.local_rank, *local_rank, 0, result.world - 1);
  return result;
}

std::string tcp(std::string const& host, std::size_t port) {
  bool const bare_ipv6 = host.find(':') != std::string::npos && host.front() != '[';
  return "tcp://" + (bare_ipv6 ? "[" + host + "]" : host) + ":" + std::to_string(port);
}

std::string from_master(env const& environment) {
  constexpr std::size_t usual_port = 29500;  // torch.distributed's
  auto const port =
      environment.master_port ? number("MASTER_PORT", *environment.master_port, 1, UINT16_MAX) : usual_port;
  return tcp(*environment.master_addr, port);
}

launch_info torchrun(env const& environment) {
  auto result = place({"torchrun", "RANK", "WORLD_SIZE", "LOCAL_RANK"}, environment.rank, environment.world_size,
                      environment.local_rank);
  if (environment.rendezvous) return result;
  auto const& host = require("torchrun", "MASTER_ADDR", environment.master_addr);
  auto port = number("MASTER_PORT", require("torchrun", "MASTER_PORT", environment.master_port), 1, UINT16_MAX);
  if (environment.agent_store && (*environment.agent_store == "True" || *environment.agent_store == "1")) {
    port = port == UINT16_MAX ? port - 1 : port + 1;
  }
  result.rendezvous = tcp(host, port);
  return result;
}

launch_info mpirun(env const& environment) {
  auto result = place({"mpirun", "OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE", "OMPI_COMM_WORLD_LOCAL_RANK"},
                      environment.ompi_rank, environment.ompi_size, environment.ompi_local_rank);
  if (environment.rendezvous) return result;
  if (environment.master_addr) {
    result.rendezvous = from_master(environment);
    return result;
  }
  if (environment.ompi_local_size) {
    auto const here = number("OMPI_COMM_WORLD_LOCAL_SIZE", *environment.ompi_local_size, 1, most_ranks);
    if (here != result.world) {
      throw error{
          errc::invalid_argument,
          "MASTER_ADDR is not set and mpirun's " + std::to_string(result.world) +
              " ranks are on several machines: pass the address of rank 0's machine, mpirun -x MASTER_ADDR=host"};
    }
  }
  if (!environment.ompi_job || environment.ompi_job->empty()) {
    throw error{errc::invalid_argument,
                "PMIX_NAMESPACE is not set, so this mpirun job has no name to meet under: set MASTER_ADDR, or "
                "GRADWIRE_RENDEZVOUS to tcp://host:port or file:///folder"};
  }
  auto job = *environment.ompi_job;
  std::replace_if(
      job.begin(), job.end(), [](char c) { return c == '/' || c == ' '; }, '_');
  auto const folder = std::filesystem::temp_directory_path() / ("gradwire-" + std::to_string(getuid()) + "-" + job);
  result.rendezvous = "file://" + folder.string();
  return result;
}

// "node[07-09,12],login1" gives "node07"; "rack[1-2]n[3,4]" gives "rack1n3".
std::string first_host(std::string const& list) {
  std::string host;
  for (std::size_t i = 0; i < list.size() && list[i] != ','; ++i) {
    if (list[i] != '[') {
      host += list[i];
      continue;
    }
    auto const close = list.find(']', i);
    auto const end = list.find_first_of(",-]", i);
    if (close == std::string::npos || end == i + 1) {
      throw error{errc::invalid_argument, "the list of hosts (SLURM_STEP_NODELIST, SLURM_JOB_NODELIST) is '" + list +
                                              "': it must be like node[01-04,07],login1"};
    }
    host += list.substr(i + 1, end - i - 1);
    i = close;
  }
  if (host.empty())
    throw error{errc::invalid_argument,
                "the list of hosts (SLURM_STEP_NODELIST, SLURM_JOB_NODELIST) is '" + list + "' and names no host"};
  return host;
}

// The script of sbatch has SLURM_PROCID too, but is no step, or one of the numbers that Slurm keeps for itself.
bool is_srun_step(env const& environment) {
  constexpr std::uint32_t reserved = 0xfffffff0;
  if (!environment.slurm_rank || !environment.slurm_step) return false;
  std::string const& text = *environment.slurm_step;
  std::uint32_t step = reserved;
  auto const [end, failure] = std::from_chars(text.data(), text.data() + text.size(), step);
  return failure == std::errc{} && end == text.data() + text.size() && step < reserved;
}

launch_info srun(env const& environment) {
  auto result = place({"srun", "SLURM_PROCID", "SLURM_NTASKS", "SLURM_LOCALID"}, environment.slurm_rank,
                      environment.slurm_size, environment.slurm_local_rank);
  if (environment.rendezvous) return result;
  if (environment.master_addr) {
    result.rendezvous = from_master(environment);
    return result;
  }
  auto const host = first_host(require("srun", "SLURM_STEP_NODELIST or SLURM_JOB_NODELIST", environment.slurm_nodes));
  auto const job = number("SLURM_JOB_ID", require("srun", "SLURM_JOB_ID", environment.slurm_job), 0, UINT32_MAX);
  // Ports below the range that Linux gives to outgoing connections.
  result.rendezvous = tcp(host, 20000 + job % 10000);
  return result;
}

}  // namespace

std::optional<launch_info> detect_launch(env const& environment, bool with_rendezvous) {
  if (!with_rendezvous && !environment.rendezvous) {
    auto place_only = environment;
    place_only.rendezvous = "";
    return detect_launch(place_only);
  }
  std::optional<launch_info> result;
  if (environment.rank || environment.world_size) {
    result = torchrun(environment);
  } else if (environment.ompi_rank || environment.ompi_size) {
    result = mpirun(environment);
  } else if (is_srun_step(environment)) {
    result = srun(environment);
  }
  if (result && environment.rendezvous) result->rendezvous = *environment.rendezvous;
  return result;
}

}  // namespace gradwire
