#pragma once

#include <charconv>
#include <cstddef>
#include <optional>
#include <string_view>

namespace gradwire::reductions {

//! Without blanks at either end.
[[nodiscard]] constexpr std::string_view trim(std::string_view text) {
  constexpr std::string_view blanks = " \t\n\r";
  std::size_t const begin = text.find_first_not_of(blanks);
  if (begin == std::string_view::npos) return {};
  return text.substr(begin, text.find_last_not_of(blanks) - begin + 1);
}

//! A whole number with nothing around it but blanks.
[[nodiscard]] inline std::optional<std::size_t> parse_count(std::string_view text) {
  std::string_view const digits = trim(text);
  std::size_t value = 0;
  auto const [end, failure] = std::from_chars(digits.data(), digits.data() + digits.size(), value);
  if (failure != std::errc{} || end != digits.data() + digits.size()) return std::nullopt;
  return value;
}

}  // namespace gradwire::reductions
