#pragma once

#include <cstddef>

#include <gradwire/codec.hpp>
#include <gradwire/macros.hpp>

#include "compressors/quant/format.hpp"

namespace gradwire::quant {

//! Positions in codec_entry::keys.
inline constexpr std::size_t bits_key = 0;
inline constexpr std::size_t block_key = 1;
inline constexpr std::size_t scale_key = 2;
inline constexpr std::size_t round_key = 3;

//! The keys' values.
struct settings {
  unsigned bits;
  std::size_t block;
  scaling scale;
  rounding round;
  bool is_centred;
  float top;

  explicit settings(param_values const& params)
      : bits{static_cast<unsigned>(params.integer(bits_key))},
        block{params.integer(block_key)},
        scale{static_cast<scaling>(params.integer(scale_key))},
        round{static_cast<rounding>(params.integer(round_key))},
        is_centred{centred(scale, bits)},
        top{static_cast<float>(top_code(scale, bits))} {}

  [[nodiscard]] GW_HD std::size_t bytes(std::size_t count) const noexcept {
    return header_bytes(scale) + code_bytes(count, bits);
  }
};

}  // namespace gradwire::quant
