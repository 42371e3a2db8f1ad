#pragma once

#include <initializer_list>
#include <string>
#include <string_view>

namespace gradwire {

//! The parts one after another: for error texts.
[[nodiscard]] inline std::string join(std::initializer_list<std::string_view> parts) {
  std::string text;
  for (std::string_view const part : parts) text += part;
  return text;
}

//! Without blanks at either end.
[[nodiscard]] constexpr std::string_view trim(std::string_view text) {
  constexpr std::string_view blanks = " \t\n\r";
  std::size_t const begin = text.find_first_not_of(blanks);
  if (begin == std::string_view::npos) return {};
  return text.substr(begin, text.find_last_not_of(blanks) - begin + 1);
}

}  // namespace gradwire
