// Kernel launches: what can be checked before a kernel runs.
#include <cxxabi.h>
#include <dlfcn.h>
#include <sys/mman.h>

#include <cstdlib>
#include <cstring>
#include <map>
#include <memory>

#include "tests/cuda_sim/device.hpp"

namespace cuda_sim {
namespace {

// Without template arguments and parameters.
std::string find_name(void const* kernel) {
  Dl_info info{};
  if (dladdr(kernel, &info) == 0 || info.dli_sname == nullptr) return "(not exported)";
  int status = 0;
  std::unique_ptr<char, void (*)(void*)> const text{abi::__cxa_demangle(info.dli_sname, nullptr, nullptr, &status),
                                                    std::free};
  std::string const whole = status == 0 ? text.get() : info.dli_sname;
  std::string const name = whole.substr(0, whole.find_first_of("(<"));
  return name.substr(name.rfind(' ') == std::string::npos ? 0 : name.rfind(' ') + 1);
}

std::string const& name_of(void const* kernel) {
  static std::map<void const*, std::string> known;  // the machine's lock is held
  auto const [found, is_new] = known.try_emplace(kernel);
  if (is_new) found->second = find_name(kernel);
  return found->second;
}

bool is_mapped(std::uintptr_t address) {
  unsigned char resident = 0;
  return mincore(reinterpret_cast<void*>(address / 4096 * 4096), 1, &resident) == 0;
}

// Position-independent programs, their heaps and stacks lie here; no count or number of a kernel's does.
constexpr std::uintptr_t lowest = 0x5000'0000'0000;
constexpr std::uintptr_t highest = 0x7fff'ffff'ffff;

void check_word(machine const& all, std::uintptr_t word, std::size_t argument, std::string const& kernel, int device) {
  if (word < lowest || word > highest) return;
  auto const* const pointer = reinterpret_cast<void const*>(word);
  allocation const* const found = all.memory.find(pointer);
  if (found == nullptr) {
    if (!is_mapped(word)) return;
    fault("kernel %s: argument %zu holds %p, which is host memory: device memory is due", kernel.c_str(), argument,
          pointer);
  }
  if (!found->pinned && found->device != device) {
    fault("kernel %s: argument %zu holds memory of device %d, the stream is on device %d", kernel.c_str(), argument,
          found->device, device);
  }
}

void check_arguments(machine const& all, std::vector<argument> const& arguments, std::string const& kernel,
                     int device) {
  for (std::size_t i = 0; i < arguments.size(); ++i) {
    for (std::size_t at = 0; at + sizeof(std::uintptr_t) <= arguments[i].bytes; at += sizeof(std::uintptr_t)) {
      std::uintptr_t word = 0;
      std::memcpy(&word, static_cast<std::byte const*>(arguments[i].data) + at, sizeof word);
      check_word(all, word, i, kernel, device);
    }
  }
}

}  // namespace

cudaError_t launch(cudaLaunchConfig_t const& config, void const* kernel, std::vector<argument> const& arguments,
                   std::function<void()> body) {
  int device = 0;
  static_cast<void>(cudaGetDevice(&device));
  machine& all = machine::instance();
  std::unique_lock lock{all.mutex};
  all.held = &lock;
  std::string const& name = name_of(kernel);
  stream& on = all.find(config.stream, "a launch");
  std::size_t const threads = std::size_t{config.blockDim.x} * config.blockDim.y * config.blockDim.z;
  bool const empty = config.gridDim.x == 0 || config.gridDim.y == 0 || config.gridDim.z == 0 || threads == 0;
  if (empty || threads > 1024 || config.gridDim.x > 0x7fffffffu || config.gridDim.y > 65535 ||
      config.gridDim.z > 65535 || config.dynamicSmemBytes > 48u * 1024) {
    return cudaErrorInvalidConfiguration;
  }
  if (on.device != device) {
    fault("kernel %s: launched on a stream of device %d while device %d is current", name.c_str(), on.device, device);
  }
  std::size_t bytes = 0;
  for (argument const& one : arguments) bytes += one.bytes;
  if (bytes > 4096) fault("kernel %s: %zu bytes of arguments: 4096 is the most", name.c_str(), bytes);
  check_arguments(all, arguments, name, device);
  ++all.counts.kernels;
  auto made =
      std::make_shared<grid>(grid{name, config.gridDim, config.blockDim, config.dynamicSmemBytes, std::move(body)});
  all.push(on, {work_kind::kernel, "kernel " + name, std::move(made), {}, {}, 0, {}, {}});
  return cudaSuccess;
}

}  // namespace cuda_sim
