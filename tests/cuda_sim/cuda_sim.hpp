#pragma once
//! Control of the simulated CUDA devices, for tests. README.md tells what the simulator finds and what it cannot.

#include <cstddef>
#include <cstdint>
#include <string>

namespace cuda_sim {

//! When the device works, between the calls of the host.
enum class pace : std::uint8_t {
  eager,   //!< all that can run has run when a call returns
  lazy,    //!< nothing runs but what a host wait needs, as late as it can: a missing wait shows for certain
  random,  //!< each call lets a random number of steps run, on streams drawn at random, thread block by thread block
  uneven   //!< as random, but some streams starve for long stretches
};
//! In which order the threads between two barriers and the blocks of a grid run.
enum class order : std::uint8_t { forward, backward, random };

struct options {
  std::uint64_t seed = 1;
  cuda_sim::pace pace = pace::eager;
  cuda_sim::order order = order::forward;
  int devices = 2;
  std::size_t memory = std::size_t{1} << 32;  //!< bytes of a device; more is cudaErrorMemoryAllocation
  bool closed = true;     //!< device memory is closed to the host; false is faster, and such a touch goes unseen
  unsigned seconds = 60;  //!< that a kernel may run before it is reported as hanging
  bool keep_schedule = false;
  bool race_check = false;           //!< under ThreadSanitizer: looks for races between CUDA threads too
  std::size_t atomics = 20'000'000;  //!< of one thread in one block before it is reported as spinning
};

//! Throws std::logic_error while work is queued. The same options and the same calls from one host thread give the
//! same schedule.
void configure(options const& wanted);

//! What the program asked for so far.
struct counts {
  std::size_t kernels = 0;
  std::size_t blocks = 0;
  std::size_t copies = 0;       //!< cudaMemcpyAsync and cudaMemsetAsync
  std::size_t synchronous = 0;  //!< calls that wait for the device: synchronize, query, cudaMalloc, cudaFree
  std::size_t allocations = 0;  //!< cudaMallocAsync and from pools
  std::size_t live = 0;         //!< allocations of device memory that are not freed
};
[[nodiscard]] counts count();

//! Every fault ends the process with this status, after one line "cuda_sim: …" on stderr that names it.
inline constexpr int fault_status = 86;

//! With options.keep_schedule: a line per step, the stream's number and what it did.
[[nodiscard]] std::string schedule();

}  // namespace cuda_sim
