#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <string>

#include "include/cuda_runtime.h"
#include "tests/cuda_sim/cuda_sim.hpp"

namespace cuda_sim {

//! Ends the process: see fault_status.
[[noreturn]] [[gnu::format(printf, 1, 2)]] void fault(char const* text, ...);

//! What a launch asks for.
struct grid {
  std::string name;
  dim3 blocks;
  dim3 threads;
  std::size_t dynamic_shared = 0;
  std::function<void()> body;
};

//! Runs one thread block to its end on the calling thread, every CUDA thread a fiber.
void run_block(grid const& of, uint3 index, order threads, std::uint64_t seed, options const& limits);

//! "kernel x block (0,0,0) thread (1,0,0)" of the thread that runs now; empty outside kernels. Safe in signal handlers.
char const* running_thread();

}  // namespace cuda_sim
