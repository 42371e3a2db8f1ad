#pragma once

#include <cstdint>
#include <limits>
#include <optional>
#include <string_view>
#include <vector>

namespace CLI {
class Validator;
}

namespace gradwire::program {

inline constexpr std::uint64_t any_number = std::numeric_limits<std::uint64_t>::max();

//! Plain decimal digits; empty for anything else and outside least..most.
[[nodiscard]] std::optional<std::uint64_t> parse_whole_number(std::string_view text, std::uint64_t least = 0,
                                                              std::uint64_t most = any_number);
//! "1,2,3"; empty when one of them is none.
[[nodiscard]] std::optional<std::vector<std::uint64_t>> parse_whole_numbers(std::string_view text);

// What every numeric option is transformed by: CLI11's own conversion wraps negative numbers, stops at the largest and
// takes an empty text for 0. They refuse with what was given and what is allowed, which --help shows as well.
[[nodiscard]] CLI::Validator whole_number(std::uint64_t least = 0, std::uint64_t most = any_number);
[[nodiscard]] CLI::Validator whole_numbers();
//! A finite number of seconds; fractions are fine.
[[nodiscard]] CLI::Validator number_of_seconds(double least, double most);

}  // namespace gradwire::program
