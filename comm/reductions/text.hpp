#pragma once

#include <charconv>
#include <cstddef>
#include <optional>
#include <string_view>

#include "compressors/text.hpp"

namespace gradwire::reductions {

//! A whole number with nothing around it but blanks.
[[nodiscard]] inline std::optional<std::size_t> parse_count(std::string_view text) {
  std::string_view const digits = trim(text);
  std::size_t value = 0;
  auto const [end, failure] = std::from_chars(digits.data(), digits.data() + digits.size(), value);
  if (failure != std::errc{} || end != digits.data() + digits.size()) return std::nullopt;
  return value;
}

}  // namespace gradwire::reductions
