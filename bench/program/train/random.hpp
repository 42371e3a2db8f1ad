#pragma once

#include <cmath>
#include <cstddef>
#include <cstdint>
#include <numbers>

#include "core/random.hpp"

namespace gradwire::program {

//! What training draws random numbers for. Far above the stages that reductions use, so that no two share numbers.
enum class draw : std::uint64_t { initial_weights = std::uint64_t{1} << 40, order, noise };

//! Numbers that depend on (seed, purpose, step, id) and nothing else.
class random_stream {
 public:
  random_stream(std::uint64_t seed, draw purpose, std::uint64_t step, std::uint32_t id) noexcept
      : key_{with_stage({seed, step}, static_cast<std::uint64_t>(purpose))}, id_{id} {}

  [[nodiscard]] std::uint32_t next() noexcept {
    if (used_ == words_.size()) {
      words_ = random_block(key_, id_, block_++);
      used_ = 0;
    }
    return words_[used_++];
  }
  //! 0 .. n−1. The bias is below n / 2^32.
  [[nodiscard]] std::size_t below(std::size_t n) noexcept {
    return static_cast<std::size_t>((std::uint64_t{next()} * std::uint64_t{n}) >> 32);
  }
  //! [0, 1), a multiple of 2^-24: exact in f32.
  [[nodiscard]] float uniform() noexcept { return static_cast<float>(next() >> 8) * 0x1p-24f; }
  //! Box and Muller, Annals of Mathematical Statistics 29 (1958).
  [[nodiscard]] double normal() noexcept {
    double const radius = std::sqrt(-2 * std::log((static_cast<double>(next()) + 1) * 0x1p-32));
    return radius * std::cos(2 * std::numbers::pi * static_cast<double>(next()) * 0x1p-32);
  }

 private:
  random_key key_;
  std::uint32_t id_;
  std::uint64_t block_ = 0;
  std::array<std::uint32_t, 4> words_{};
  std::size_t used_ = 4;
};

}  // namespace gradwire::program
