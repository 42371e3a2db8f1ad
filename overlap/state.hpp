#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

namespace gradwire::overlap {

//! What a later step depends on, of one rank.
struct saved_state {
  struct saved_parameter {
    std::string name;
    std::string text;             //!< dtype, shape and method
    std::vector<float> residual;  //!< empty without feedback
  };
  struct owner_run {
    std::uint32_t parameter = 0;
    std::uint64_t first = 0;
    std::vector<float> values;
  };

  std::uint64_t rank = 0;
  std::uint64_t ranks = 1;
  std::uint64_t step = 0;
  std::uint64_t seed = 0;
  bool rebuilt = false;              //!< `order` is that of the first backward
  std::vector<std::uint32_t> order;  //!< parameters as backward completes them
  std::vector<saved_parameter> parameters;
  std::vector<owner_run> owner_runs;
};

//! Little-endian, behind a header with magic, version, length and CRC-32.
[[nodiscard]] std::vector<std::byte> write_state(saved_state const& state);
//! Checks length, version and checksum before anything else. Throws errc::corrupt_payload that says what is wrong.
[[nodiscard]] saved_state read_state(std::span<std::byte const> bytes);

}  // namespace gradwire::overlap
