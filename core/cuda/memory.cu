#include <gradwire/cuda/memory.hpp>

#include <algorithm>
#include <cstdint>
#include <string>
#include <utility>

#include <gradwire/error.hpp>

#include "core/cuda/check.cuh"

namespace gradwire::cuda {
namespace {

// The text is built only for an error.
void check_allocation(cudaError_t code, char const* of, std::size_t bytes) {
  if (code != cudaSuccess) check(code, ("an allocation of " + std::to_string(bytes) + " bytes of " + of).c_str());
}

}  // namespace

pinned_buffer::pinned_buffer(std::size_t bytes) : bytes_{bytes} {
  if (bytes == 0) return;
  void* memory = nullptr;
  check_allocation(cudaHostAlloc(&memory, bytes, cudaHostAllocMapped), "pinned host memory", bytes);
  data_ = static_cast<std::byte*>(memory);
}

pinned_buffer::~pinned_buffer() {
  if (data_ != nullptr) static_cast<void>(cudaFreeHost(data_));
}

pinned_buffer::pinned_buffer(pinned_buffer&& other) noexcept
    : data_{std::exchange(other.data_, nullptr)}, bytes_{std::exchange(other.bytes_, 0)} {}

pinned_buffer& pinned_buffer::operator=(pinned_buffer&& other) noexcept {
  std::swap(data_, other.data_);
  std::swap(bytes_, other.bytes_);
  return *this;
}

scratch::scratch(int device, stream_ref stream) : device_{device}, stream_{stream} {
  static_cast<void>(native(stream));
  cudaMemPoolProps properties{};
  properties.allocType = cudaMemAllocationTypePinned;
  properties.location = {cudaMemLocationTypeDevice, device};
  cudaMemPool_t pool = nullptr;
  check(cudaMemPoolCreate(&pool, &properties), "cudaMemPoolCreate");
  pool_ = pool;
  // Without this every synchronisation gives the memory back to the driver, and the next step pays for it again.
  std::uint64_t keep = ~std::uint64_t{0};
  check(cudaMemPoolSetAttribute(pool, cudaMemPoolAttrReleaseThreshold, &keep), "cudaMemPoolSetAttribute");
}

scratch::~scratch() { static_cast<void>(cudaMemPoolDestroy(static_cast<cudaMemPool_t>(pool_))); }

void* scratch::do_allocate(std::size_t bytes, std::size_t) {
  void* memory = nullptr;
  device_guard const device{device_};
  check_allocation(cudaMallocFromPoolAsync(&memory, bytes, static_cast<cudaMemPool_t>(pool_), native(stream_)),
                   "device memory", bytes);
  in_use_ += bytes;
  most_ = std::max(most_, in_use_);
  return memory;
}

void scratch::do_deallocate(void* memory, std::size_t bytes, std::size_t) {
  check(cudaFreeAsync(memory, native(stream_)), "cudaFreeAsync");
  in_use_ -= bytes;
}

bool scratch::do_is_equal(std::pmr::memory_resource const& other) const noexcept { return this == &other; }

device_buffer::device_buffer(std::size_t bytes, exec const& on) : bytes_{bytes}, on_{on} {
  if (bytes == 0) return;
  if (auto* const pool = dynamic_cast<scratch*>(on.memory)) {
    expects(pool->stream() == on.stream, "exec.memory is the scratch of another stream: make one scratch per stream");
    data_ = static_cast<std::byte*>(pool->allocate(bytes));
    return;
  }
  void* memory = nullptr;
  device_guard const device{on.device};
  check_allocation(cudaMallocAsync(&memory, bytes, native(on.stream)), "device memory", bytes);
  data_ = static_cast<std::byte*>(memory);
}

device_buffer::~device_buffer() {
  if (data_ == nullptr) return;
  if (auto* const pool = dynamic_cast<scratch*>(on_.memory)) {
    pool->deallocate(data_, bytes_);
  } else {
    static_cast<void>(cudaFreeAsync(data_, static_cast<cudaStream_t>(on_.stream.handle)));
  }
}

device_buffer::device_buffer(device_buffer&& other) noexcept
    : data_{std::exchange(other.data_, nullptr)}, bytes_{std::exchange(other.bytes_, 0)}, on_{other.on_} {}

device_buffer& device_buffer::operator=(device_buffer&& other) noexcept {
  std::swap(data_, other.data_);
  std::swap(bytes_, other.bytes_);
  std::swap(on_, other.on_);
  return *this;
}

void copy_to_device(std::byte* device, std::byte const* host, std::size_t bytes, stream_ref stream) {
  if (bytes == 0) return;
  check(cudaMemcpyAsync(device, host, bytes, cudaMemcpyHostToDevice, native(stream)), "a copy to the device");
}

void copy_to_host(std::byte* host, std::byte const* device, std::size_t bytes, stream_ref stream) {
  if (bytes == 0) return;
  check(cudaMemcpyAsync(host, device, bytes, cudaMemcpyDeviceToHost, native(stream)), "a copy to the host");
}

}  // namespace gradwire::cuda
