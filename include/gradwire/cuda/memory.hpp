#pragma once

#include <cstddef>
#include <memory_resource>
#include <span>

#include <gradwire/exec.hpp>
#include <gradwire/stream.hpp>

namespace gradwire::cuda {

//! Owns host memory that devices can reach and copies run at full speed from. Move-only.
class pinned_buffer {
 public:
  pinned_buffer() noexcept = default;
  //! Waits for devices, so it belongs into set-up. Throws errc::out_of_memory.
  explicit pinned_buffer(std::size_t bytes);
  ~pinned_buffer();
  pinned_buffer(pinned_buffer&& other) noexcept;
  pinned_buffer& operator=(pinned_buffer&& other) noexcept;
  pinned_buffer(pinned_buffer const&) = delete;
  pinned_buffer& operator=(pinned_buffer const&) = delete;

  [[nodiscard]] std::byte* data() noexcept { return data_; }
  [[nodiscard]] std::size_t size() const noexcept { return bytes_; }
  [[nodiscard]] std::span<std::byte> bytes() noexcept { return {data_, bytes_}; }

 private:
  std::byte* data_ = nullptr;
  std::size_t bytes_ = 0;
};

//! Device memory in the order of one stream: what is allocated is there for all that is enqueued on the stream
//! afterwards, what is deallocated is reused by it alone. For exec::memory. Keeps what it has once taken from the
//! driver until it is destroyed. To be used from one thread at a time.
class scratch final : public std::pmr::memory_resource {
 public:
  //! `device` is that of `stream`. Throws errc::cuda.
  scratch(int device, stream_ref stream);
  //! All allocations are given back by then.
  ~scratch() override;
  scratch(scratch const&) = delete;
  scratch& operator=(scratch const&) = delete;
  scratch(scratch&&) = delete;
  scratch& operator=(scratch&&) = delete;

  [[nodiscard]] stream_ref stream() const noexcept { return stream_; }
  [[nodiscard]] std::size_t bytes_in_use() const noexcept { return in_use_; }
  //! The most bytes that were in use at one time.
  [[nodiscard]] std::size_t high_water_mark() const noexcept { return most_; }

 private:
  void* do_allocate(std::size_t bytes, std::size_t alignment) override;
  void do_deallocate(void* memory, std::size_t bytes, std::size_t alignment) override;
  [[nodiscard]] bool do_is_equal(std::pmr::memory_resource const& other) const noexcept override;

  int device_;
  stream_ref stream_;
  void* pool_ = nullptr;
  std::size_t in_use_ = 0;
  std::size_t most_ = 0;
};

//! Owns device memory in the order of a stream, aligned to 256. Not initialised. Move-only.
class device_buffer {
 public:
  device_buffer() noexcept = default;
  //! From `on.memory` where that is a scratch of `on.stream`, otherwise from the driver's pool (cudaMallocAsync).
  //! Throws errc::out_of_memory, and errc::invalid_argument for the scratch of another stream.
  device_buffer(std::size_t bytes, exec const& on);
  //! Freed behind everything enqueued on the stream so far. Never throws.
  ~device_buffer();
  device_buffer(device_buffer&& other) noexcept;
  device_buffer& operator=(device_buffer&& other) noexcept;
  device_buffer(device_buffer const&) = delete;
  device_buffer& operator=(device_buffer const&) = delete;

  //! Device memory: not for the host to touch.
  [[nodiscard]] std::byte* data() const noexcept { return data_; }
  [[nodiscard]] std::size_t size() const noexcept { return bytes_; }

 private:
  std::byte* data_ = nullptr;
  std::size_t bytes_ = 0;
  exec on_;
};

//! Enqueue a copy on `stream` and return. `host` is pinned memory and lives until the stream is past the copy.
void copy_to_device(std::byte* device, std::byte const* host, std::size_t bytes, stream_ref stream);
void copy_to_host(std::byte* host, std::byte const* device, std::size_t bytes, stream_ref stream);

}  // namespace gradwire::cuda
