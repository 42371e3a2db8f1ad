#pragma once
//! Payloads as they are worked out by hand: in words of 32 bits.

#include <cstdint>
#include <vector>

namespace gradwire::test {

using words = std::vector<std::uint32_t>;

//! The quiet NaN that marks a spoiled block.
inline constexpr std::uint32_t nan_word = 0x7fc00000u;

}  // namespace gradwire::test
