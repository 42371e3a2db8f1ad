#include "program/common/shell.hpp"

#include <algorithm>
#include <cctype>

namespace gradwire::program {

std::string shell_word(std::string_view text) {
  bool const plain = !text.empty() && std::ranges::all_of(text, [](unsigned char c) {
    return std::isalnum(c) != 0 || std::string_view{"_-+=.,:/@%"}.find(static_cast<char>(c)) != std::string_view::npos;
  });
  if (plain) return std::string{text};
  std::string word = "'";
  for (char const c : text) word += c == '\'' ? std::string{"'\\''"} : std::string{c};
  return word + "'";
}

std::string command_text(std::span<std::string const> command) {
  std::string text;
  for (std::string const& word : command) {
    if (!text.empty()) text += ' ';
    text += shell_word(word);
  }
  return text;
}

}  // namespace gradwire::program
