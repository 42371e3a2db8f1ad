#pragma once

#include <cstddef>
#include <cstdint>
#include <deque>
#include <map>

namespace cuda_sim {

//! In which part of its life an allocation is, in the order of its stream.
enum class life : std::uint8_t {
  promised,  //!< cudaMallocAsync was called, its stream is not there yet
  live,
  freed
};

struct allocation {
  std::byte* data;
  std::size_t bytes;
  int device;
  bool pinned;  //!< host memory that devices reach
  cuda_sim::life life;
  std::byte* mapping;
  std::size_t mapped;
};

//! Device memory lies between guard pages, right before the second one, and is closed to the host: it opens while a
//! device works. A touch outside, before its time, after it, or by the host is a fault that says which.
class memory {
 public:
  //! Null when the device has not that much left.
  std::byte* allocate(std::size_t bytes, int device, life at, std::size_t limit);
  std::byte* allocate_pinned(std::size_t bytes);
  void set_life(std::byte* data, life to);
  void release_pinned(void* data);

  //! Null: none of ours.
  [[nodiscard]] allocation const* find(void const* pointer) const;
  //! `closed`: closed to the host and to other devices than the one that works. Otherwise it is open once and for all,
  //! but for what is not allocated yet, or not any more.
  void set_closed(bool closed);
  //! The memory of one device (-1: of all) opens or closes.
  void open(int device);
  void close();
  //! Faults when bytes behind an allocation were written.
  void check_ends(char const* after) const;
  [[nodiscard]] std::size_t live_count() const;
  //! What a touch of this address means. Safe in a signal handler but for its text.
  [[nodiscard]] char const* explain(void const* address) const;

 private:
  void protect(allocation const& one, bool open) const;

  std::map<std::uintptr_t, allocation> all_;
  std::deque<std::uintptr_t> freed_;
  bool is_closed_ = true;
  bool is_open_ = false;
  int open_device_ = -1;
};

void catch_wrong_accesses(memory const& of);
//! Of the calling thread: fibers have no room for a handler.
void handle_signals_aside();

}  // namespace cuda_sim
