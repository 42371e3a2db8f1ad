#pragma once

#include <cstddef>
#include <memory_resource>
#include <span>

namespace gradwire {

//! Owns `size()` bytes of host memory, aligned to 64. Not initialised. Move-only.
class buffer {
 public:
  buffer() noexcept = default;
  //! Throws errc::out_of_memory, which names the size asked for.
  explicit buffer(std::size_t bytes, std::pmr::memory_resource* memory = std::pmr::get_default_resource());
  ~buffer();
  buffer(buffer&& other) noexcept;
  //! Swaps: the memory that was here is freed with `other`.
  buffer& operator=(buffer&& other) noexcept;
  buffer(buffer const&) = delete;
  buffer& operator=(buffer const&) = delete;

  [[nodiscard]] std::byte* data() noexcept { return data_; }
  [[nodiscard]] std::byte const* data() const noexcept { return data_; }
  [[nodiscard]] std::size_t size() const noexcept { return bytes_; }
  [[nodiscard]] std::span<std::byte> bytes() noexcept { return {data_, bytes_}; }
  [[nodiscard]] std::span<std::byte const> bytes() const noexcept { return {data_, bytes_}; }
  //! The memory as elements of T, size() / sizeof(T) of them.
  template <class T>
  [[nodiscard]] std::span<T> as() noexcept {
    return {reinterpret_cast<T*>(data_), bytes_ / sizeof(T)};
  }
  template <class T>
  [[nodiscard]] std::span<T const> as() const noexcept {
    return {reinterpret_cast<T const*>(data_), bytes_ / sizeof(T)};
  }

 private:
  std::byte* data_ = nullptr;
  std::size_t bytes_ = 0;
  std::pmr::memory_resource* memory_ = nullptr;
};

}  // namespace gradwire
