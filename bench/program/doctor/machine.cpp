#include <sched.h>
#include <sys/resource.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <chrono>
#include <cstdlib>
#include <cstring>
#include <filesystem>

#include <fmt/format.h>
#include <hwy/targets.h>

#include <gradwire/buffer.hpp>
#include <gradwire/env.hpp>
#include <gradwire/launch.hpp>

#include "program/common/console.hpp"
#include "program/doctor/checks.hpp"

namespace gradwire::program {
namespace {

std::size_t usable_cores() {
  cpu_set_t set;
  CPU_ZERO(&set);
  if (sched_getaffinity(0, sizeof set, &set) != 0) return 1;
  return static_cast<std::size_t>(CPU_COUNT(&set));
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
  result.text = fmt::format("{} usable for {} ranks", cores, options.ranks);
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
  if (environment.rank && !environment.local_rank) {
    result.how = severity::warning;
    result.text = "RANK is set and LOCAL_RANK is not";
    result.mend = "harmless on CPU; on GPUs two ranks would share a device: set LOCAL_RANK, or start with torchrun";
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
  for (char const* const name : {"cuda", "nccl", "mpi"}) {
    result.push_back({.how = severity::info, .check = name, .text = "not in this build"});
  }
  return result;
}

}  // namespace gradwire::program
