#pragma once

#include <condition_variable>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <random>
#include <string>
#include <vector>

#include "tests/cuda_sim/block.hpp"
#include "tests/cuda_sim/cuda_sim.hpp"
#include "tests/cuda_sim/memory.hpp"

namespace cuda_sim {

//! One point in a stream: a record of an event.
struct point {
  bool reached = false;
  struct stream* in = nullptr;  //!< where it will be reached
};

struct event {
  std::shared_ptr<point> last;  //!< null: never recorded
};

enum class work_kind : std::uint8_t { kernel, device, host, record, wait };

//! What a stream does next. Kernels run block by block, all else in one step.
struct operation {
  work_kind kind;
  std::string name;
  std::shared_ptr<cuda_sim::grid> grid;    //!< kernel
  std::function<void()> work;              //!< device (copies, allocations), host
  std::shared_ptr<cuda_sim::point> point;  //!< record, wait
  std::size_t next_block = 0;
  std::vector<std::uint32_t> blocks;      //!< in the order drawn; empty: as they come
  std::shared_ptr<std::uint64_t> queued;  //!< ThreadSanitizer's tag of the moment
};

struct stream {
  int device;
  std::size_t number;
  std::deque<operation> queue;
  bool busy = false;  //!< a host function runs
  std::uint64_t priority = 0;
  void* tsan = nullptr;
  std::optional<std::vector<operation>> captured;
};

struct graph {
  std::vector<operation> operations;
};

//! All devices and what is queued on them. One lock guards it; work runs on whichever host thread calls.
class machine {
 public:
  static machine& instance();

  std::mutex mutex;
  cuda_sim::options options;
  cuda_sim::memory memory;
  cuda_sim::counts counts;
  std::vector<std::unique_ptr<stream>> streams;
  std::string kept_schedule;
  std::unique_lock<std::mutex>* held = nullptr;  //!< of the call that runs

  //! Faults for the default stream and for what is none of ours.
  stream& find(void* handle, char const* call);
  //! Queues, and lets the device work as its pace has it.
  void push(stream& on, operation what);
  void launch_graph(stream& on, graph const& of);
  //! Runs until `done`, as the pace has it; `from` is the stream that the host waits for.
  void wait(std::unique_lock<std::mutex>& lock, stream& from, std::function<bool()> const& done);
  //! One step towards the end of `from`'s queue, as when the host asks whether it is there.
  void look(stream& from);
  //! Faults while a stream is captured: `call` would end the capture.
  void refuse_in_capture(char const* call) const;
  void start(cuda_sim::options const& wanted);

 private:
  [[nodiscard]] bool ready(stream const& one) const;
  [[nodiscard]] stream* pick();
  [[nodiscard]] stream* needed_for(stream& one, int depth = 0) const;
  void step(stream& one, bool alone);
  void run_host_function(stream& one);
  void run_kernel(stream& one, bool alone);
  void run_some();
  void let_work(std::size_t steps);
  void finish(stream& one);
  [[noreturn]] void deadlock();

  std::mt19937_64 engine_;
  std::condition_variable host_function_done_;
};

}  // namespace cuda_sim
