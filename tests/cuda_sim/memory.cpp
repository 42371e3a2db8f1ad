#include "tests/cuda_sim/memory.hpp"

#include <sys/mman.h>
#include <unistd.h>

#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <iterator>

#include "tests/cuda_sim/block.hpp"
#include "tests/cuda_sim/sanitizer.hpp"

namespace cuda_sim {
namespace {

constexpr std::size_t page = 4096;
constexpr std::size_t alignment = 256;  // what cudaMalloc promises
constexpr unsigned char end_mark = 0xc5;
constexpr std::size_t remembered = 64;  // freed allocations

memory const* watched = nullptr;

std::size_t round_up(std::size_t bytes, std::size_t to) { return (bytes + to - 1) / to * to; }

void on_alarm(int) {
  constexpr char text[] = "cuda_sim: a kernel runs for ever: ";
  static_cast<void>(!write(2, text, sizeof text - 1));
  char const* const where = running_thread();
  static_cast<void>(!write(2, where, std::strlen(where)));
  static_cast<void>(!write(2, "\n", 1));
  _exit(fault_status);
}

void on_fault(int, siginfo_t* what, void*) { fault("%s", watched->explain(what->si_addr)); }

}  // namespace

std::byte* memory::allocate(std::size_t bytes, int device, life at, std::size_t limit) {
  std::size_t taken = 0;
  for (auto const& [address, one] : all_) {
    if (!one.pinned && one.life != life::freed && one.device == device) taken += one.bytes;
  }
  if (bytes > limit || taken > limit - bytes) return nullptr;
  std::size_t const used = round_up(std::max<std::size_t>(bytes, 1), alignment);
  std::size_t const pages = round_up(used, page);
  void* const mapping = mmap(nullptr, pages + 2 * page, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (mapping == MAP_FAILED) return nullptr;
  auto* const first = static_cast<std::byte*>(mapping) + page;
  std::byte* const data = first + (pages - used);
  mprotect(first, pages, PROT_READ | PROT_WRITE);
  std::memset(data, 0xff, bytes);  // NaN: what was not written does not pass for a number
  std::memset(data + bytes, end_mark, used - bytes);
  sanitizer::poison(data + bytes, used - bytes);
  allocation const made{data, bytes, device, false, at, static_cast<std::byte*>(mapping), pages + 2 * page};
  all_[reinterpret_cast<std::uintptr_t>(data)] = made;
  protect(made, is_open_ && at == life::live && (open_device_ == -1 || open_device_ == device));
  return data;
}

std::byte* memory::allocate_pinned(std::size_t bytes) {
  auto* const data = static_cast<std::byte*>(std::aligned_alloc(page, round_up(std::max<std::size_t>(bytes, 1), page)));
  all_[reinterpret_cast<std::uintptr_t>(data)] = {data, bytes, -1, true, life::live, nullptr, 0};
  return data;
}

void memory::release_pinned(void* data) {
  auto const found = all_.find(reinterpret_cast<std::uintptr_t>(data));
  if (found == all_.end() || !found->second.pinned) fault("cudaFreeHost: %p was not given by cudaHostAlloc", data);
  all_.erase(found);
  std::free(data);
}

void memory::protect(allocation const& one, bool open) const {
  if (mprotect(one.mapping + page, one.mapped - 2 * page, open ? PROT_READ | PROT_WRITE : PROT_NONE) != 0) {
    fault("mprotect failed");
  }
}

// The addresses of what was freed last stay taken, so that a late touch is known for what it is.
void memory::set_life(std::byte* data, life to) {
  allocation& one = all_.at(reinterpret_cast<std::uintptr_t>(data));
  one.life = to;
  protect(one, to == life::live && is_open_ && (open_device_ == -1 || open_device_ == one.device));
  if (to != life::freed) return;
  madvise(one.mapping + page, one.mapped - 2 * page, MADV_DONTNEED);
  freed_.push_back(reinterpret_cast<std::uintptr_t>(data));
  if (freed_.size() <= remembered) return;
  allocation const& oldest = all_.at(freed_.front());
  sanitizer::unpoison(oldest.mapping, oldest.mapped);
  munmap(oldest.mapping, oldest.mapped);
  all_.erase(freed_.front());
  freed_.pop_front();
}

allocation const* memory::find(void const* pointer) const {
  auto next = all_.upper_bound(reinterpret_cast<std::uintptr_t>(pointer));
  if (next == all_.begin()) return nullptr;
  allocation const& one = std::prev(next)->second;
  auto const at = reinterpret_cast<std::uintptr_t>(pointer);
  auto const begin = reinterpret_cast<std::uintptr_t>(one.data);
  // One past the end counts: an empty range may begin there.
  return at <= begin + one.bytes ? &one : nullptr;
}

void memory::set_closed(bool closed) {
  is_closed_ = true;
  close();
  if (!closed) open(-1);
  is_closed_ = closed;
}

void memory::open(int device) {
  if (!is_closed_) return;
  if (is_open_ && open_device_ == device) return;
  is_open_ = true;
  open_device_ = device;
  for (auto const& [address, one] : all_) {
    if (!one.pinned) protect(one, one.life == life::live && (device == -1 || one.device == device));
  }
}

void memory::close() {
  if (!is_closed_ || !is_open_) return;
  is_open_ = false;
  for (auto const& [address, one] : all_) {
    if (!one.pinned && one.life == life::live) protect(one, false);
  }
}

void memory::check_ends(char const* after) const {
  for (auto const& [address, one] : all_) {
    if (one.pinned || one.life != life::live || (open_device_ != -1 && one.device != open_device_)) continue;
    std::size_t const slack = round_up(std::max<std::size_t>(one.bytes, 1), alignment) - one.bytes;
    sanitizer::unpoison(one.data + one.bytes, slack);
    for (std::size_t i = 0; i < slack; ++i) {
      if (one.data[one.bytes + i] == std::byte{end_mark}) continue;
      fault("%s wrote %zu bytes past the end of an allocation of %zu bytes", after, i + 1, one.bytes);
    }
    sanitizer::poison(one.data + one.bytes, slack);
  }
}

std::size_t memory::live_count() const {
  std::size_t live = 0;
  for (auto const& [address, one] : all_) live += !one.pinned && one.life != life::freed ? 1 : 0;
  return live;
}

char const* memory::explain(void const* address) const {
  static char text[1024];
  char const* const thread = running_thread();
  char const* const who = thread[0] != '\0' ? thread : is_open_ ? "a copy" : "host code";
  for (auto const& [begin, one] : all_) {
    auto const* const at = static_cast<std::byte const*>(address);
    if (one.pinned || at < one.mapping || at >= one.mapping + one.mapped) continue;
    if (at >= one.mapping + one.mapped - page) {
      std::snprintf(text, sizeof text, "%s touched memory %td bytes past the end of an allocation of %zu bytes", who,
                    at - (one.data + one.bytes) + 1, one.bytes);
    } else if (at < one.mapping + page) {
      std::snprintf(text, sizeof text, "%s touched memory %td bytes before an allocation of %zu bytes", who,
                    one.data - at, one.bytes);
    } else if (one.life == life::freed) {
      std::snprintf(text, sizeof text, "%s touched freed device memory: an allocation of %zu bytes", who, one.bytes);
    } else if (one.life == life::promised) {
      std::snprintf(text, sizeof text,
                    "%s touched device memory before its cudaMallocAsync in stream order: a wait is missing", who);
    } else if (!is_open_) {
      std::snprintf(text, sizeof text, "host code touched device memory: byte %td of an allocation of %zu bytes",
                    at - one.data, one.bytes);
    } else {
      std::snprintf(text, sizeof text, "%s on device %d touched memory of device %d", who, open_device_, one.device);
    }
    return text;
  }
  std::snprintf(text, sizeof text, "%s touched %p, which is no memory at all", who, address);
  return text;
}

void handle_signals_aside() {
  static thread_local bool done = false;
  if (done) return;
  done = true;
  stack_t alternate{};
  alternate.ss_size = 65536;
  alternate.ss_sp = std::malloc(alternate.ss_size);  // for as long as the thread lives
  sigaltstack(&alternate, nullptr);
}

void catch_wrong_accesses(memory const& of) {
  watched = &of;
  struct sigaction action {};
  action.sa_sigaction = on_fault;
  action.sa_flags = SA_SIGINFO | SA_ONSTACK;
  sigaction(SIGSEGV, &action, nullptr);
  sigaction(SIGBUS, &action, nullptr);
  struct sigaction hang {};
  hang.sa_handler = on_alarm;
  hang.sa_flags = SA_ONSTACK;
  sigaction(SIGALRM, &hang, nullptr);
}

}  // namespace cuda_sim
