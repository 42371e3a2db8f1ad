#pragma once

#include <cstring>
#include <string>
#include <utility>
#include <vector>

#include <gradwire/cuda/memory.hpp>
#include <gradwire/cuda/stream.hpp>

#include "tests/compressors/device.hpp"

namespace gradwire::test {

//! A CUDA device, whichever the build has.
class cuda_device : public device {
 public:
  explicit cuda_device(std::string name) : name_{std::move(name)} {}

  [[nodiscard]] std::string_view name() const override { return name_; }
  [[nodiscard]] exec on() override { return {device_kind::cuda, 0, stream_.ref(), &scratch_}; }
  [[nodiscard]] std::byte const* in(std::span<std::byte const> host) override { return upload(host); }
  [[nodiscard]] std::byte* inout(std::span<std::byte> host) override {
    std::byte* const there = upload(host);
    back_.push_back({host, there});
    return there;
  }

  void finish() override {
    for (auto const& [host, there] : back_) {
      cuda::pinned_buffer pinned{host.size()};
      cuda::copy_to_host(pinned.data(), there, host.size(), stream_.ref());
      landed_.push_back(std::move(pinned));
    }
    auto const back = std::exchange(back_, {});
    auto const landed = std::exchange(landed_, {});
    buffers_.clear();
    try {
      synchronize(stream_.ref());
    } catch (...) {
      sent_.clear();
      throw;
    }
    sent_.clear();
    for (std::size_t i = 0; i < back.size(); ++i) {
      if (back[i].first.empty()) continue;
      std::memcpy(back[i].first.data(), const_cast<cuda::pinned_buffer&>(landed[i]).data(), back[i].first.size());
    }
  }

 private:
  std::byte* upload(std::span<std::byte const> host) {
    std::size_t const shift = reinterpret_cast<std::uintptr_t>(host.data()) % 64;
    buffers_.emplace_back(host.size() + shift, exec{device_kind::cuda, 0, stream_.ref(), &scratch_});
    cuda::pinned_buffer pinned{host.size()};
    if (!host.empty()) std::memcpy(pinned.data(), host.data(), host.size());
    cuda::copy_to_device(buffers_.back().data() + shift, pinned.data(), host.size(), stream_.ref());
    sent_.push_back(std::move(pinned));
    return buffers_.back().data() + shift;
  }

  std::string name_;
  cuda::stream stream_;
  cuda::scratch scratch_{0, stream_.ref()};
  std::vector<cuda::device_buffer> buffers_;
  std::vector<cuda::pinned_buffer> sent_;
  std::vector<cuda::pinned_buffer> landed_;
  std::vector<std::pair<std::span<std::byte>, std::byte*>> back_;
};

}  // namespace gradwire::test
