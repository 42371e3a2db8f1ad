#pragma once
//! What the sanitizers have to be told about fibers and device memory. The simulator itself is compiled without
//! ThreadSanitizer (its own tables are no part of the program under test); GW_SIM_TSAN says that the program is not.

#include <cstddef>

#if defined(__SANITIZE_ADDRESS__)
#define GW_SIM_ASAN 1
#elif defined(__has_feature)
#if __has_feature(address_sanitizer)
#define GW_SIM_ASAN 1
#endif
#endif

extern "C" {
void __sanitizer_start_switch_fiber(void**, void const*, std::size_t);
void __sanitizer_finish_switch_fiber(void*, void const**, std::size_t*);
void __asan_poison_memory_region(void const volatile*, std::size_t);
void __asan_unpoison_memory_region(void const volatile*, std::size_t);
void* __tsan_get_current_fiber();
void* __tsan_create_fiber(unsigned);
void __tsan_destroy_fiber(void*);
void __tsan_switch_to_fiber(void*, unsigned);
void __tsan_acquire(void*);
void __tsan_release(void*);
void AnnotateIgnoreReadsBegin(char const*, int);
void AnnotateIgnoreReadsEnd(char const*, int);
void AnnotateIgnoreWritesBegin(char const*, int);
void AnnotateIgnoreWritesEnd(char const*, int);
}

namespace cuda_sim::sanitizer {

// ---- AddressSanitizer

inline void poison([[maybe_unused]] void const* at, [[maybe_unused]] std::size_t bytes) {
#ifdef GW_SIM_ASAN
  __asan_poison_memory_region(at, bytes);
#endif
}
inline void unpoison([[maybe_unused]] void const* at, [[maybe_unused]] std::size_t bytes) {
#ifdef GW_SIM_ASAN
  __asan_unpoison_memory_region(at, bytes);
#endif
}
//! `kept`: where the left stack's own state is put; null when it is never returned to.
inline void leave_stack([[maybe_unused]] void** kept, [[maybe_unused]] void const* bottom,
                        [[maybe_unused]] std::size_t bytes) {
#ifdef GW_SIM_ASAN
  __sanitizer_start_switch_fiber(kept, bottom, bytes);
#endif
}
inline void enter_stack([[maybe_unused]] void* kept, [[maybe_unused]] void const** from,
                        [[maybe_unused]] std::size_t* bytes) {
#ifdef GW_SIM_ASAN
  __sanitizer_finish_switch_fiber(kept, from, bytes);
#endif
}

// ---- ThreadSanitizer: a stream is one of its threads. Switches make no order; release and acquire do.

#ifdef GW_SIM_TSAN
inline constexpr bool tsan = true;
inline void* new_thread() { return __tsan_create_fiber(0); }
inline void end_thread(void* thread) { __tsan_destroy_fiber(thread); }
inline void release(void const* tag) { __tsan_release(const_cast<void*>(tag)); }
inline void acquire(void const* tag) { __tsan_acquire(const_cast<void*>(tag)); }
//! What happens while it lives is done by `thread`.
class on_thread {
 public:
  explicit on_thread(void* thread) : before_{__tsan_get_current_fiber()} { __tsan_switch_to_fiber(thread, 1); }
  ~on_thread() { __tsan_switch_to_fiber(before_, 1); }
  on_thread(on_thread const&) = delete;
  on_thread& operator=(on_thread const&) = delete;

 private:
  void* before_;
};
//! Accesses while it lives are not looked at.
struct blind {
  blind() {
    AnnotateIgnoreReadsBegin("", 0);
    AnnotateIgnoreWritesBegin("", 0);
  }
  ~blind() {
    AnnotateIgnoreWritesEnd("", 0);
    AnnotateIgnoreReadsEnd("", 0);
  }
  blind(blind const&) = delete;
  blind& operator=(blind const&) = delete;
};
#else
inline constexpr bool tsan = false;
inline void* new_thread() { return nullptr; }
inline void end_thread(void*) {}
inline void release(void const*) {}
inline void acquire(void const*) {}
struct on_thread {
  explicit on_thread(void*) {}
};
struct blind {
  blind() {}
};
#endif

}  // namespace cuda_sim::sanitizer
