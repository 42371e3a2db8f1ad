#pragma once

#include <span>
#include <string>
#include <string_view>

namespace gradwire::program {

//! `text` as one word for a POSIX shell, unchanged where it needs no quotes.
[[nodiscard]] std::string shell_word(std::string_view text);
//! The words as they would be typed in a shell.
[[nodiscard]] std::string command_text(std::span<std::string const> command);

}  // namespace gradwire::program
