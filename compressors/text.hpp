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

}  // namespace gradwire
