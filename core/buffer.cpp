#include <gradwire/buffer.hpp>

#include <new>
#include <string>
#include <utility>

#include <gradwire/error.hpp>

namespace gradwire {
namespace {

constexpr std::size_t alignment = 64;

}  // namespace

buffer::buffer(std::size_t bytes, std::pmr::memory_resource* memory) : memory_{memory} {
  if (bytes == 0) return;
  try {
    data_ = static_cast<std::byte*>(memory_->allocate(bytes, alignment));
  } catch (std::bad_alloc const&) {
    throw error{errc::out_of_memory, "no host memory for a buffer of " + std::to_string(bytes) + " bytes"};
  }
  bytes_ = bytes;
}

buffer::~buffer() {
  if (data_ != nullptr) memory_->deallocate(data_, bytes_, alignment);
}

buffer::buffer(buffer&& other) noexcept
    : data_{std::exchange(other.data_, nullptr)},
      bytes_{std::exchange(other.bytes_, 0)},
      memory_{std::exchange(other.memory_, nullptr)} {}

buffer& buffer::operator=(buffer&& other) noexcept {
  std::swap(data_, other.data_);
  std::swap(bytes_, other.bytes_);
  std::swap(memory_, other.memory_);
  return *this;
}

}  // namespace gradwire
