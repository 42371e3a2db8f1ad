#include <sched.h>
#include <sys/resource.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <chrono>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <optional>
#include <utility>

#include <fmt/format.h>
#include <hwy/targets.h>

#include <gradwire/buffer.hpp>
#include <gradwire/env.hpp>
#include <gradwire/launch.hpp>

#include "program/common/console.hpp"
#include "program/common/numbers.hpp"
#include "program/doctor/checks.hpp"

namespace gradwire::program {
namespace {

std::size_t usable_cores() {
  cpu_set_t set;
  CPU_ZERO(&set);
  if (sched_getaffinity(0, sizeof set, &set) != 0) return 1;
  return static_cast<std::size_t>(CPU_COUNT(&set));
}

std::optional<std::string> variable(char const* name) {
  char const* const value = std::getenv(name);  // NOLINT(concurrency-mt-unsafe): before threads
  return value == nullptr ? std::nullopt : std::optional<std::string>{value};
}

// This process among those of its machine, as its launcher says; only a look at what is set, so not in gradwire::env.
struct local_place_of {
  char const* rank_name;
  char const* size_name;
  std::optional<std::string> rank{};
  std::optional<std::string> size{};
};

local_place_of local_place() {
  for (auto place : {local_place_of{"LOCAL_RANK", "LOCAL_WORLD_SIZE"},
                     local_place_of{"OMPI_COMM_WORLD_LOCAL_RANK", "OMPI_COMM_WORLD_LOCAL_SIZE"},
                     local_place_of{"SLURM_LOCALID", "SLURM_NTASKS_PER_NODE"}}) {
    place.rank = variable(place.rank_name);
    place.size = variable(place.size_name);
    if (place.rank && !place.size && place.rank_name == std::string_view{"LOCAL_RANK"}) {
      place.size_name = "WORLD_SIZE";  // no machine has more of them
      place.size = variable("WORLD_SIZE");
    }
    if (place.rank) return place;
  }
  return {"LOCAL_RANK", "LOCAL_WORLD_SIZE"};
}

}  // namespace

std::string_view to_string(severity how) noexcept {
  switch (how) {
    case severity::ok: return "ok";
    case severity::info: return "info";
    case severity::warning: return "warning";
    case severity::failure: return "failure";
  }
  return "unknown";
}

finding check_cpu() {
  std::vector<std::string> names;
  std::int64_t const targets = hwy::SupportedTargets();
  // A target is one bit; better ones have lower bits.
  for (std::int64_t bit = 1; bit > 0 && bit <= targets; bit *= 2) {
    if ((targets & bit) != 0) names.emplace_back(hwy::TargetName(bit));
  }
  finding result{.check = "cpu targets"};
  result.text = fmt::format("{} is used; this machine can run {}", names.empty() ? "plain code" : names.front(),
                            fmt::join(names, ", "));
  result.values["targets"] = names;
  if (names.empty() || names.front() == "SSE2" || names.front() == "EMU128" || names.front() == "SCALAR") {
    result.how = severity::warning;
    result.mend =
        "codecs will run several times slower than on a processor with AVX2; in a virtual machine, pass the "
        "host's processor through";
  }
  return result;
}

finding check_memory_speed() {
  constexpr std::size_t bytes = std::size_t{64} << 20;
  buffer from{bytes};
  buffer to{bytes};
  std::memset(from.data(), 1, bytes);
  std::memset(to.data(), 2, bytes);
  double best = 1e9;
  for (int i = 0; i < 5; ++i) {
    auto const begin = std::chrono::steady_clock::now();
    std::memcpy(to.data(), from.data(), bytes);
    best = std::min(best, std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count());
  }
  double const gbps = 2 * static_cast<double>(bytes) / best / 1e9;
  finding result{.check = "memory bandwidth"};
  result.text = fmt::format("{:.3g} GB/s read and written by one core's memcpy of 64 MiB", gbps);
  result.values["memcpy_gbps"] = gbps;
  return result;
}

finding check_cores(doctor_options const& options) {
  std::size_t const cores = usable_cores();
  finding result{.check = "cores"};
  result.text = fmt::format("{} usable for {} rank{}", cores, options.ranks, options.ranks == 1 ? "" : "s");
  result.values = {{"cores", cores}, {"ranks", options.ranks}};
  if (options.ranks > cores) {
    result.how = severity::warning;
    result.mend = fmt::format("ranks will take turns, so times say little; use --ranks {} for timing", cores);
  }
  return result;
}

finding check_temporary_folder() {
  finding result{.check = "temporary folder"};
  std::error_code failure;
  auto const folder = std::filesystem::temp_directory_path(failure);
  auto const space = failure ? std::filesystem::space_info{} : std::filesystem::space(folder, failure);
  result.values["path"] = folder.string();
  if (failure || access(folder.c_str(), W_OK | X_OK) != 0) {
    result.how = severity::failure;
    result.text = fmt::format("'{}' cannot be written to", folder.string());
    result.mend = "set TMPDIR to a folder with room: ranks of one machine meet there";
    return result;
  }
  result.text = fmt::format("{} has {} free", folder.string(), format_bytes(static_cast<double>(space.available)));
  result.values["free_bytes"] = space.available;
  if (space.available < (std::uintmax_t{1} << 20)) {
    result.how = severity::failure;
    result.mend = "free some space, or set TMPDIR to a folder with room";
  }
  return result;
}

finding check_open_files(doctor_options const& options) {
  rlimit limit{};
  getrlimit(RLIMIT_NOFILE, &limit);
  finding result{.check = "open files"};
  result.text = fmt::format("{} allowed a process", limit.rlim_cur);
  result.values["limit"] = limit.rlim_cur;
  // A socket for each pair, both ways, and some room.
  if (limit.rlim_cur < 2 * options.ranks + 64) {
    result.how = severity::failure;
    result.mend = fmt::format("ulimit -n {}", 4 * options.ranks + 256);
  }
  return result;
}

finding check_launch() {
  finding result{.check = "launcher"};
  try {
    auto const launch = detect_launch();
    if (!launch) {
      result.text = "none: the program starts its own ranks on this machine";
      return result;
    }
    result.text = fmt::format("{}: rank {} of {}, local rank {}, meeting at {}", launch->launcher, launch->rank,
                              launch->world, launch->local_rank, launch->rendezvous);
    result.values = {{"launcher", launch->launcher},
                     {"rank", launch->rank},
                     {"world", launch->world},
                     {"local_rank", launch->local_rank}};
  } catch (std::exception const& failure) {
    result.how = severity::failure;
    result.text = failure.what();
    result.mend = "start every rank with torchrun, mpirun or srun, or unset these variables";
  }
  return result;
}

finding check_local_rank() {
  env const& environment = env::get();
  finding result{.check = "rank and device"};
  result.text = "CPU ranks need no device of their own";
  auto const place = local_place();
  if (environment.rank && !environment.local_rank) {
    result.how = severity::warning;
    result.text = "RANK is set and LOCAL_RANK is not";
    result.mend = "harmless on CPU; on GPUs two ranks would share a device: set LOCAL_RANK, or start with torchrun";
  } else if (place.rank) {
    auto const rank = parse_whole_number(*place.rank);
    auto const size = parse_whole_number(place.size.value_or(""), 1);
    result.values["local_rank"] = *place.rank;
    if (size) result.values["local_size"] = *size;
    if (!rank || (size && *rank >= *size)) {
      result.how = severity::warning;
      result.text =
          size ? fmt::format("{}={} is out of range: {}={}", place.rank_name, *place.rank, place.size_name, *size)
               : fmt::format("{}={} is not a whole number", place.rank_name, *place.rank);
      result.mend = fmt::format(
          "harmless on CPU; on GPUs it names a device that is not there: set {} to 0{}, another for each rank of this "
          "machine",
          place.rank_name, size ? fmt::format("..{}", *size - 1) : ", 1, …");
    }
  }
  if (environment.cuda_visible_devices) {
    result.values["cuda_visible_devices"] = *environment.cuda_visible_devices;
    result.text +=
        fmt::format("; CUDA_VISIBLE_DEVICES={} has no effect in this build", *environment.cuda_visible_devices);
  }
  return result;
}

std::vector<finding> check_gpu() {
  std::vector<finding> result;
  for (auto const& [name, mend] :
       {std::pair{"cuda", "nothing: ranks average on the CPU"}, std::pair{"nccl", "use --transport gloo or inproc"}}) {
    result.push_back({.how = severity::info, .check = name, .text = "not in this build", .mend = mend});
  }
  return result;
}

}  // namespace gradwire::program
