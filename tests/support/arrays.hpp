#pragma once
//! Buffers and inputs that many suites need.

#include <array>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <random>
#include <span>
#include <vector>

#include <gtest/gtest.h>

#include <gradwire/dtype.hpp>

namespace gradwire::test {

//! Element counts around every boundary that vector code, words, blocks and pages have; the last is 2^20 + 3.
inline constexpr std::array<std::size_t, 11> all_sizes{0, 1, 2, 31, 32, 33, 255, 256, 257, 4097, 1048579};
[[nodiscard]] inline std::span<std::size_t const> sizes() { return all_sizes; }
//! Without the one that takes long.
[[nodiscard]] inline std::span<std::size_t const> small_sizes() {
  return std::span{all_sizes}.first(all_sizes.size() - 1);
}

//! `bytes` bytes that begin `misalignment` bytes behind a 64-byte boundary, with guard bytes on both sides.
class guarded {
 public:
  explicit guarded(std::size_t bytes, std::size_t misalignment = 0)
      : bytes_{bytes}, before_{guard + misalignment}, storage_(guard + 64 + misalignment + bytes + guard, filling) {
    auto const address = reinterpret_cast<std::uintptr_t>(storage_.data() + guard);
    before_ += (64 - address % 64) % 64;
  }

  [[nodiscard]] std::byte* data() { return storage_.data() + before_; }
  [[nodiscard]] std::span<std::byte> bytes() { return {data(), bytes_}; }
  [[nodiscard]] std::span<std::byte> with_guards() { return storage_; }
  //! True while nothing was written outside.
  [[nodiscard]] bool intact() const {
    std::span const all{storage_};
    for (std::byte const b : all.first(before_)) {
      if (b != filling) return false;
    }
    for (std::byte const b : all.subspan(before_ + bytes_)) {
      if (b != filling) return false;
    }
    return true;
  }

 private:
  static constexpr std::size_t guard = 64;
  static constexpr std::byte filling{0xa5};
  std::size_t bytes_;
  std::size_t before_;
  std::vector<std::byte> storage_;
};

//! Standard normal numbers, times `scale`.
[[nodiscard]] inline std::vector<float> gaussian(std::size_t count, std::uint32_t seed, float scale = 1) {
  std::mt19937 engine{seed};
  std::normal_distribution<float> normal;
  std::vector<float> values(count);
  for (float& value : values) value = scale * normal(engine);
  return values;
}

//! Writes `values` as elements of `type` to `to` (any alignment), rounded.
inline void write_as(dtype type, std::span<float const> values, std::byte* to) {
  for (std::size_t i = 0; i < values.size(); ++i) {
    if (type == dtype::f32) {
      std::memcpy(to + 4 * i, &values[i], 4);
    } else {
      std::uint16_t const bits = type == dtype::f16 ? to_f16(values[i]).bits : to_bf16(values[i]).bits;
      std::memcpy(to + 2 * i, &bits, 2);
    }
  }
}

//! The elements of `type` at `from` (any alignment) as float.
[[nodiscard]] inline std::vector<float> read_as(dtype type, std::byte const* from, std::size_t count) {
  std::vector<float> values(count);
  for (std::size_t i = 0; i < count; ++i) {
    if (type == dtype::f32) {
      std::memcpy(&values[i], from + 4 * i, 4);
    } else {
      std::uint16_t bits = 0;
      std::memcpy(&bits, from + 2 * i, 2);
      values[i] = type == dtype::f16 ? to_float(f16{bits}) : to_float(bf16{bits});
    }
  }
  return values;
}

}  // namespace gradwire::test
