#include "tests/cuda_sim/block.hpp"

#include <sys/mman.h>
#include <unistd.h>

#include <boost/context/detail/fcontext.hpp>

#include <algorithm>
#include <array>
#include <cstdarg>
#include <cstdio>
#include <cstdlib>
#include <optional>
#include <random>
#include <utility>
#include <vector>

#include "tests/cuda_sim/sanitizer.hpp"

constinit thread_local uint3 threadIdx{};
constinit thread_local uint3 blockIdx{};
constinit thread_local dim3 blockDim{};
constinit thread_local dim3 gridDim{};

namespace cuda_sim {

constinit thread_local unsigned linear_thread = 0;

void fault(char const* text, ...) {
  std::va_list arguments;
  va_start(arguments, text);
  std::fprintf(stderr, "cuda_sim: ");
  std::vfprintf(stderr, text, arguments);
  std::fprintf(stderr, "\n");
  va_end(arguments);
  std::fflush(stderr);
  std::_Exit(fault_status);
}

namespace {

using boost::context::detail::fcontext_t;
using boost::context::detail::jump_fcontext;
using boost::context::detail::make_fcontext;
using boost::context::detail::transfer_t;

constexpr std::size_t stack_bytes = std::size_t{256} << 10;
constexpr std::size_t page = 4096;
constexpr std::size_t canary_bytes = 64;
constexpr unsigned char canary = 0xc5;

enum class state : std::uint8_t { ready, at_barrier, at_warp_call, done };

class block;

struct fiber {
  fcontext_t context = nullptr;
  std::byte* stack = nullptr;
  void* asan_stack = nullptr;
  block* home = nullptr;
  unsigned linear = 0;
  uint3 index{};
  cuda_sim::state state = state::ready;
  place at{};  // the barrier or warp call it waits at
  bool predicate = false;
  warp_call call{};
  unsigned mask = 0;
  int source = 0;
  std::uint64_t value = 0;
  std::uint64_t result = 0;
  std::size_t atomics = 0;
  void* tsan = nullptr;
};

struct shared {
  void const* tag;
  char const* name;
  std::byte* data;
  std::size_t bytes;
};

std::byte* new_stack() {
  void* const memory =
      mmap(nullptr, stack_bytes + page, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (memory == MAP_FAILED) fault("no memory for the stack of a simulated thread");
  mprotect(memory, page, PROT_NONE);
  return static_cast<std::byte*>(memory) + page;
}

// ThreadSanitizer forgets what earlier threads did on a stack when it is mapped anew.
void fresh(std::byte* stack) {
  constexpr std::size_t used = std::size_t{32} << 10;
  mmap(stack + stack_bytes - used, used, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED, -1, 0);
}

// One thread block at work; there is one of these, used again for every block.
class block {
 public:
  void run(grid const& of, uint3 index, order threads, std::uint64_t seed, options const& limits);

  // Called on a fiber's stack.
  bool wait_at_barrier(bool predicate, place from);
  std::uint64_t wait_for_warp(warp_call call, unsigned mask, std::uint64_t value, int source, place from);
  void* shared_variable(void const* tag, std::size_t bytes, std::size_t alignment, char const* name);
  void* shared_dynamic() const { return dynamic_ == nullptr ? nullptr : dynamic_->data; }
  void count_atomic(place from);
  [[nodiscard]] bool on_fiber() const { return current_ != nullptr; }
  char const* where();

 private:
  static void entry(transfer_t from);
  void resume(fiber& one);
  void leave(fiber& one, bool for_ever);
  void start(grid const& of, uint3 index);
  void end_threads();
  void release_barrier();
  void explain_standstill();
  [[nodiscard]] bool warp_complete(fiber const& one) const;
  void finish_warp_call(fiber& last);
  std::byte* new_shared(void const* tag, std::size_t bytes, std::size_t alignment, char const* name);
  void drop_shared();

  std::vector<fiber> fibers_;  // as many as any block had
  std::size_t count_ = 0;
  std::size_t alive_ = 0;
  std::size_t waiting_ = 0;
  bool any_predicate_ = false;
  bool barrier_result_ = false;
  std::vector<unsigned> ready_;
  std::vector<unsigned> batch_;
  std::vector<shared> shared_;
  shared const* dynamic_ = nullptr;
  grid const* grid_ = nullptr;
  uint3 index_{};
  options const* limits_ = nullptr;
  fiber* current_ = nullptr;
  std::vector<void*> finished_threads_;
  std::array<std::uint64_t, 2 + 32> tags_{};  // of barriers, two in turn, and of __syncwarp, one for each warp
  unsigned barriers_ = 0;
  fcontext_t main_ = nullptr;
  void* asan_main_ = nullptr;
  void const* main_stack_ = nullptr;
  std::size_t main_stack_bytes_ = 0;
};

thread_local block* running = nullptr;

void block::entry(transfer_t from) {
  auto& one = *static_cast<fiber*>(from.data);
  block& home = *one.home;
  home.main_ = from.fctx;
  sanitizer::enter_stack(nullptr, &home.main_stack_, &home.main_stack_bytes_);
  home.grid_->body();
  one.state = state::done;
  home.leave(one, true);
}

void block::leave(fiber& one, bool for_ever) {
  sanitizer::leave_stack(for_ever ? nullptr : &one.asan_stack, main_stack_, main_stack_bytes_);
  transfer_t const back = jump_fcontext(main_, nullptr);
  main_ = back.fctx;
  sanitizer::enter_stack(one.asan_stack, nullptr, nullptr);
}

void block::resume(fiber& one) {
  std::optional<sanitizer::on_thread> on;
  if (one.tsan != nullptr) on.emplace(one.tsan);
  current_ = &one;
  threadIdx = one.index;
  linear_thread = one.linear;
  sanitizer::leave_stack(&asan_main_, one.stack, stack_bytes);
  transfer_t const back = jump_fcontext(one.context, &one);
  one.context = back.fctx;
  sanitizer::enter_stack(asan_main_, nullptr, nullptr);
  current_ = nullptr;
}

void block::start(grid const& of, uint3 index) {
  grid_ = &of;
  index_ = index;
  count_ = std::size_t{of.threads.x} * of.threads.y * of.threads.z;
  alive_ = count_;
  waiting_ = 0;
  any_predicate_ = false;
  while (fibers_.size() < count_) {
    fibers_.emplace_back();
    fibers_.back().stack = new_stack();
  }
  blockIdx = index;
  blockDim = of.threads;
  gridDim = of.blocks;
  ready_.clear();
  for (std::size_t i = 0; i < count_; ++i) {
    fiber& one = fibers_[i];
    auto const linear = static_cast<unsigned>(i);
    one.home = this;
    one.linear = linear;
    one.index = {linear % of.threads.x, linear / of.threads.x % of.threads.y, linear / of.threads.x / of.threads.y};
    one.state = state::ready;
    one.atomics = 0;
    if (sanitizer::tsan) fresh(one.stack);
    if (sanitizer::tsan && limits_->race_check) one.tsan = sanitizer::new_thread();
    one.context = make_fcontext(one.stack + stack_bytes, stack_bytes, entry);
    ready_.push_back(linear);
  }
  dynamic_ = nullptr;
  if (of.dynamic_shared != 0) {
    shared_.reserve(64);  // the pointer below stays good
    static_cast<void>(new_shared(this, of.dynamic_shared, 16, "dynamic shared memory"));
    dynamic_ = &shared_.front();
  }
}

void block::run(grid const& of, uint3 index, order threads, std::uint64_t seed, options const& limits) {
  limits_ = &limits;
  start(of, index);
  std::mt19937_64 engine{seed};
  alarm(limits.seconds);
  while (alive_ != 0) {
    if (ready_.empty()) {
      if (waiting_ != alive_) explain_standstill();
      release_barrier();
    }
    batch_.swap(ready_);
    ready_.clear();
    if (threads == order::backward) std::reverse(batch_.begin(), batch_.end());
    if (threads == order::random) std::shuffle(batch_.begin(), batch_.end(), engine);
    for (unsigned const linear : batch_) {
      resume(fibers_[linear]);
      if (fibers_[linear].state == state::done) --alive_;
    }
  }
  alarm(0);
  end_threads();
  drop_shared();
  grid_ = nullptr;
}

// What the threads did comes before what their stream does next.
void block::end_threads() {
  if (!sanitizer::tsan || !limits_->race_check) return;
  for (std::size_t i = 0; i < count_; ++i) {
    void* const thread = std::exchange(fibers_[i].tsan, nullptr);
    {
      sanitizer::on_thread const on{thread};
      sanitizer::release(grid_);
    }
    finished_threads_.push_back(thread);
  }
  sanitizer::acquire(grid_);
  // A number that is used again would hide a race between two blocks.
  if (finished_threads_.size() < 2048) return;
  for (void* const thread : finished_threads_) sanitizer::end_thread(thread);
  finished_threads_.clear();
}

bool block::wait_at_barrier(bool predicate, place from) {
  fiber& one = *current_;
  one.state = state::at_barrier;
  one.at = from;
  any_predicate_ = any_predicate_ || predicate;
  ++waiting_;
  void const* const tag = one.tsan == nullptr ? nullptr : &tags_[barriers_ % 2];
  if (tag != nullptr) sanitizer::release(tag);
  leave(one, false);
  if (tag != nullptr) sanitizer::acquire(tag);
  return barrier_result_;
}

// All threads that have not returned wait at a barrier: it must be one and the same, and nobody may be missing.
void block::release_barrier() {
  fiber const* first = nullptr;
  for (std::size_t i = 0; i < count_; ++i) {
    fiber const& one = fibers_[i];
    if (one.state != state::at_barrier) continue;
    if (first == nullptr) first = &one;
    if (one.at.line == first->at.line && std::strcmp(one.at.file, first->at.file) == 0) continue;
    fault("kernel %s block (%u,%u,%u): barrier in divergent code: thread %u is at %s:%d, thread %u at %s:%d",
          grid_->name.c_str(), index_.x, index_.y, index_.z, first->linear, first->at.file, first->at.line, one.linear,
          one.at.file, one.at.line);
  }
  if (waiting_ != count_) {
    fault(
        "kernel %s block (%u,%u,%u): barrier in divergent code: %s:%d was reached by %zu of %zu threads, the others "
        "have returned",
        grid_->name.c_str(), index_.x, index_.y, index_.z, first->at.file, first->at.line, waiting_, count_);
  }
  for (std::size_t i = 0; i < count_; ++i) {
    fibers_[i].state = state::ready;
    ready_.push_back(static_cast<unsigned>(i));
  }
  waiting_ = 0;
  ++barriers_;
  barrier_result_ = any_predicate_;
  any_predicate_ = false;
}

// Nothing can go on, and not all wait at a barrier: a warp call lacks lanes of its mask.
void block::explain_standstill() {
  for (std::size_t i = 0; i < count_; ++i) {
    fiber const& one = fibers_[i];
    if (one.state != state::at_warp_call) continue;
    for (unsigned lane = 0; lane < 32; ++lane) {
      if ((one.mask >> lane & 1u) == 0) continue;
      fiber const& other = fibers_[(one.linear & ~31u) + lane];
      if (other.state == state::at_warp_call && other.call == one.call && other.mask == one.mask) continue;
      char const* const what = other.state == state::done         ? "has returned"
                               : other.state == state::at_barrier ? "is at the barrier"
                                                                  : "is at another warp function";
      bool const placed = other.state != state::done;
      fault(
          "kernel %s block (%u,%u,%u): lanes missing from the mask 0x%x: thread %u waits at %s:%d for lane %u, which "
          "%s %s:%d",
          grid_->name.c_str(), index_.x, index_.y, index_.z, one.mask, one.linear, one.at.file, one.at.line, lane, what,
          placed ? other.at.file : "", placed ? other.at.line : 0);
    }
  }
  fault("kernel %s: its threads wait for each other", grid_->name.c_str());
}

bool block::warp_complete(fiber const& one) const {
  unsigned const first = one.linear & ~31u;
  for (unsigned lane = 0; lane < 32; ++lane) {
    if ((one.mask >> lane & 1u) == 0) continue;
    if (first + lane >= count_) {
      fault("kernel %s: %s:%d: mask 0x%x names lane %u, which the block does not have", grid_->name.c_str(),
            one.at.file, one.at.line, one.mask, lane);
    }
    fiber const& other = fibers_[first + lane];
    if (other.state != state::at_warp_call || other.call != one.call || other.mask != one.mask) return false;
  }
  return true;
}

std::uint64_t combine(warp_call call, std::uint64_t all, std::uint64_t one, unsigned lane) {
  switch (call) {
    case warp_call::ballot: return all | one << lane;
    case warp_call::any:
    case warp_call::bit_or: return all | one;
    case warp_call::all: return all & one;
    case warp_call::add: return static_cast<std::uint32_t>(all + one);
    case warp_call::min: return std::min(all, one);
    case warp_call::max: return std::max(all, one);
    case warp_call::sync:
    case warp_call::shuffle: return 0;
  }
  return 0;
}

void block::finish_warp_call(fiber& last) {
  fiber* const lanes = &fibers_[last.linear & ~31u];
  std::uint64_t all = last.call == warp_call::min || last.call == warp_call::all ? ~std::uint64_t{0} : 0;
  for (unsigned lane = 0; lane < 32; ++lane) {
    if ((last.mask >> lane & 1u) != 0) all = combine(last.call, all, lanes[lane].value, lane);
  }
  for (unsigned lane = 0; lane < 32; ++lane) {
    if ((last.mask >> lane & 1u) == 0) continue;
    fiber& one = lanes[lane];
    one.result = all;
    if (one.call == warp_call::shuffle) {
      if ((one.mask >> (one.source & 31) & 1u) == 0) {
        fault("kernel %s: %s:%d: lane %u reads from lane %d, which is not in the mask 0x%x", grid_->name.c_str(),
              one.at.file, one.at.line, lane, one.source, one.mask);
      }
      one.result = lanes[one.source & 31].value;
    }
    one.state = state::ready;
    if (&one != &last) ready_.push_back(one.linear);
  }
}

std::uint64_t block::wait_for_warp(warp_call call, unsigned mask, std::uint64_t value, int source, place from) {
  fiber& one = *current_;
  if ((mask >> (one.linear & 31u) & 1u) == 0) {
    fault("kernel %s: %s:%d: thread %u calls a warp function with the mask 0x%x, which leaves it out",
          grid_->name.c_str(), from.file, from.line, one.linear, mask);
  }
  one.state = state::at_warp_call;
  one.at = from;
  one.call = call;
  one.mask = mask;
  one.value = value;
  one.source = source;
  // Of the warp functions only __syncwarp orders memory.
  void const* const tag = one.tsan == nullptr || call != warp_call::sync ? nullptr : &tags_[2 + one.linear / 32];
  if (tag != nullptr) sanitizer::release(tag);
  if (warp_complete(one)) {
    finish_warp_call(one);
  } else {
    leave(one, false);
  }
  if (tag != nullptr) sanitizer::acquire(tag);
  return one.result;
}

// Storage of its own for every block: filled with NaN, guarded, and seen by AddressSanitizer.
std::byte* block::new_shared(void const* tag, std::size_t bytes, std::size_t alignment, char const* name) {
  std::size_t const used = (bytes + 15) / 16 * 16;
  auto* const memory = static_cast<std::byte*>(
      std::aligned_alloc(std::max<std::size_t>(alignment, 64), (used + canary_bytes + 63) / 64 * 64));
  std::memset(memory, 0xff, bytes);
  std::memset(memory + bytes, canary, used + canary_bytes - bytes);
  sanitizer::poison(memory + bytes, used + canary_bytes - bytes);
  shared_.push_back({tag, name, memory, bytes});
  return memory;
}

void* block::shared_variable(void const* tag, std::size_t bytes, std::size_t alignment, char const* name) {
  for (shared const& one : shared_) {
    if (one.tag == tag) return one.data;
  }
  return new_shared(tag, bytes, alignment, name);
}

void block::drop_shared() {
  for (shared const& one : shared_) {
    std::size_t const used = (one.bytes + 15) / 16 * 16;
    sanitizer::unpoison(one.data + one.bytes, used + canary_bytes - one.bytes);
    for (std::size_t i = one.bytes; i < used + canary_bytes; ++i) {
      if (one.data[i] == std::byte{canary}) continue;
      fault("kernel %s block (%u,%u,%u): shared memory overrun: %s has %zu bytes and byte %zu was written",
            grid_->name.c_str(), index_.x, index_.y, index_.z, one.name, one.bytes, i);
    }
    std::free(one.data);
  }
  shared_.clear();
}

void block::count_atomic(place from) {
  if (++current_->atomics < limits_->atomics) return;
  fault(
      "kernel %s block (%u,%u,%u): thread %u spins at %s:%d: %zu atomic operations; blocks need not run side by side, "
      "so none may wait for another",
      grid_->name.c_str(), index_.x, index_.y, index_.z, current_->linear, from.file, from.line, current_->atomics);
}

char const* block::where() {
  static char text[512];
  if (grid_ == nullptr || current_ == nullptr) return "";
  uint3 const t = current_->index;
  std::snprintf(text, sizeof text, "kernel %.300s block (%u,%u,%u) thread (%u,%u,%u)", grid_->name.c_str(), index_.x,
                index_.y, index_.z, t.x, t.y, t.z);
  return text;
}

block& the_block() {
  if (running == nullptr || !running->on_fiber()) fault("device code was called from host code");
  return *running;
}

}  // namespace

void run_block(grid const& of, uint3 index, order threads, std::uint64_t seed, options const& limits) {
  // Never destroyed: a fault inside a kernel ends the process.
  static block& one = *new block;
  running = &one;
  one.run(of, index, threads, seed, limits);
  running = nullptr;
}

char const* running_thread() { return running == nullptr ? "" : running->where(); }

void barrier(place from) { static_cast<void>(the_block().wait_at_barrier(false, from)); }
int barrier_or(bool predicate, place from) { return the_block().wait_at_barrier(predicate, from) ? 1 : 0; }
std::uint64_t warp(warp_call call, unsigned mask, std::uint64_t value, int source, place from) {
  return the_block().wait_for_warp(call, mask, value, source, from);
}
void* shared_variable(void const* tag, std::size_t bytes, std::size_t alignment, char const* name) {
  return the_block().shared_variable(tag, bytes, alignment, name);
}
void* shared_dynamic() { return the_block().shared_dynamic(); }
void count_atomic(place from) { the_block().count_atomic(from); }

}  // namespace cuda_sim
