#include "tests/cuda_sim/device.hpp"

#include <algorithm>
#include <chrono>
#include <numeric>
#include <stdexcept>
#include <utility>

#include "tests/cuda_sim/sanitizer.hpp"

namespace cuda_sim {

machine& machine::instance() {
  // Never destroyed: threads of the program may outlive main().
  static machine& one = *new machine;
  static bool const started = [] {
    catch_wrong_accesses(one.memory);
    one.start({});
    return true;
  }();
  static_cast<void>(started);
  handle_signals_aside();
  return one;
}

void machine::start(cuda_sim::options const& wanted) {
  for (auto const& one : streams) {
    if (!one->queue.empty()) throw std::logic_error{"cuda_sim::configure: work is queued: synchronize first"};
  }
  options = wanted;
  engine_.seed(wanted.seed);
  memory.set_closed(wanted.closed);
  kept_schedule.clear();
}

stream& machine::find(void* handle, char const* call) {
  if (handle == nullptr) {
    fault("%s on the default stream: it waits for all others; every operation names a stream of its own", call);
  }
  for (auto const& one : streams) {
    if (one.get() == handle) return *one;
  }
  fault("%s: %p is no stream, or one that was destroyed", call, handle);
}

void machine::refuse_in_capture(char const* call) const {
  for (auto const& one : streams) {
    if (one->captured) fault("%s while stream %zu is captured: it cannot be part of a graph", call, one->number);
  }
}

bool machine::ready(stream const& one) const {
  if (one.queue.empty() || one.busy) return false;
  operation const& head = one.queue.front();
  return head.kind != work_kind::wait || head.point->reached;
}

stream* machine::pick() {
  std::vector<stream*> able;
  for (auto const& one : streams) {
    if (ready(*one)) able.push_back(one.get());
  }
  if (able.empty()) return nullptr;
  if (options.pace != pace::uneven) return able[engine_() % able.size()];
  if (engine_() % 16 == 0) able[engine_() % able.size()]->priority = engine_();
  return *std::max_element(able.begin(), able.end(), [](auto* a, auto* b) { return a->priority < b->priority; });
}

// The stream whose next step `one` waits for, in the end: itself, or where the event at its head is recorded.
stream* machine::needed_for(stream& one, int depth) const {
  if (one.queue.empty() || depth > 1000) return nullptr;
  if (ready(one)) return &one;
  if (one.busy) return nullptr;
  return needed_for(*one.queue.front().point->in, depth + 1);
}

void machine::finish(stream& one) {
  sanitizer::release(&one);
  one.queue.pop_front();
}

void machine::run_kernel(stream& one, bool alone) {
  operation& head = one.queue.front();
  grid const& of = *head.grid;
  std::size_t const total = std::size_t{of.blocks.x} * of.blocks.y * of.blocks.z;
  // Blocks take turns with other streams only where there are others.
  std::size_t const end = alone ? total : head.next_block + 1;
  memory.open(one.device);
  for (; head.next_block < end; ++head.next_block) {
    std::size_t const i = head.blocks.empty() ? head.next_block : head.blocks[head.next_block];
    uint3 const index{static_cast<unsigned>(i % of.blocks.x), static_cast<unsigned>(i / of.blocks.x % of.blocks.y),
                      static_cast<unsigned>(i / of.blocks.x / of.blocks.y)};
    run_block(of, index, options.order, options.seed + i, options);
    ++counts.blocks;
  }
  if (head.next_block < total) return;
  memory.check_ends(of.name.c_str());
  finish(one);
}

void machine::step(stream& one, bool alone) {
  operation& head = one.queue.front();
  if (options.keep_schedule) kept_schedule += std::to_string(one.number) + " " + head.name + "\n";
  if (head.kind == work_kind::host) return run_host_function(one);
  sanitizer::on_thread const on{one.tsan};
  sanitizer::acquire(head.queued.get());
  switch (head.kind) {
    case work_kind::kernel: return run_kernel(one, alone);
    case work_kind::device:
      memory.open(-1);
      head.work();
      memory.check_ends(head.name.c_str());
      break;
    case work_kind::record:
      sanitizer::release(head.point.get());
      head.point->reached = true;
      break;
    case work_kind::wait: sanitizer::acquire(head.point.get()); break;
    case work_kind::host: break;
  }
  finish(one);
}

// The function may wait for other threads of the host, which may need the lock.
void machine::run_host_function(stream& one) {
  operation const head = one.queue.front();
  std::unique_lock<std::mutex>* const mine = held;
  one.busy = true;
  memory.close();
  mine->unlock();
  {
    sanitizer::on_thread const on{one.tsan};
    sanitizer::acquire(head.queued.get());
    head.work();
  }
  mine->lock();
  held = mine;
  one.busy = false;
  finish(one);
  host_function_done_.notify_all();
}

void machine::let_work(std::size_t steps) {
  for (std::size_t i = 0; i < steps; ++i) {
    stream* const next = pick();
    if (next == nullptr) break;
    auto const others = std::count_if(streams.begin(), streams.end(), [&](auto const& one) { return ready(*one); });
    step(*next, options.pace == pace::eager || others == 1);
  }
  memory.close();
}

void machine::run_some() {
  switch (options.pace) {
    case pace::eager: return let_work(static_cast<std::size_t>(-1));
    case pace::lazy: return;
    case pace::random:
    case pace::uneven: return let_work(engine_() % 8);
  }
}

void machine::push(stream& on, operation what) {
  if (on.captured) {
    on.captured->push_back(std::move(what));
    return;
  }
  if (sanitizer::tsan) {
    what.queued = std::make_shared<std::uint64_t>();
    sanitizer::release(what.queued.get());
  }
  if (what.kind == work_kind::kernel && options.order != order::forward) {
    grid const& of = *what.grid;
    what.blocks.resize(std::size_t{of.blocks.x} * of.blocks.y * of.blocks.z);
    std::iota(what.blocks.begin(), what.blocks.end(), 0u);
    if (options.order == order::backward) std::reverse(what.blocks.begin(), what.blocks.end());
    if (options.order == order::random) std::shuffle(what.blocks.begin(), what.blocks.end(), engine_);
  }
  on.queue.push_back(std::move(what));
  run_some();
}

void machine::launch_graph(stream& on, graph const& of) {
  for (operation const& one : of.operations) push(on, one);
}

void machine::deadlock() {
  std::string heads;
  for (auto const& one : streams) {
    if (one->queue.empty()) continue;
    heads += "; stream " + std::to_string(one->number) + " stands at " + one->queue.front().name;
  }
  fault("deadlock: the host waits and no stream can go on%s", heads.c_str());
}

void machine::look(stream& from) {
  if (options.pace == pace::lazy) {
    // Who asks again and again sleeps in between: some steps each time.
    for (int i = 0; i < 8; ++i) {
      if (stream* const next = needed_for(from)) step(*next, true);
    }
    memory.close();
  } else {
    let_work(1 + engine_() % 4);
  }
}

void machine::wait(std::unique_lock<std::mutex>& lock, stream& from, std::function<bool()> const& done) {
  auto const until = std::chrono::steady_clock::now() + std::chrono::seconds{options.seconds};
  while (!done()) {
    stream* const next = options.pace == pace::lazy ? needed_for(from) : pick();
    if (next != nullptr) {
      step(*next, options.pace == pace::lazy);
      continue;
    }
    memory.close();
    bool const a_host_function_runs =
        std::any_of(streams.begin(), streams.end(), [](auto const& one) { return one->busy; });
    if (!a_host_function_runs) deadlock();
    if (host_function_done_.wait_until(lock, until) == std::cv_status::timeout) deadlock();
  }
  memory.close();
  sanitizer::acquire(&from);
}

void configure(options const& wanted) {
  machine& all = machine::instance();
  std::scoped_lock const lock{all.mutex};
  all.start(wanted);
}

counts count() {
  machine& all = machine::instance();
  std::scoped_lock const lock{all.mutex};
  counts result = all.counts;
  result.live = all.memory.live_count();
  return result;
}

std::string schedule() {
  machine& all = machine::instance();
  std::scoped_lock const lock{all.mutex};
  return all.kept_schedule;
}

}  // namespace cuda_sim
