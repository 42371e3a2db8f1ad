#include "program/common/numbers.hpp"

#include <charconv>
#include <string>

#include <fmt/format.h>
#include <CLI/CLI.hpp>

namespace gradwire::program {

std::optional<std::uint64_t> parse_whole_number(std::string_view text, std::uint64_t least, std::uint64_t most) {
  std::uint64_t value = 0;
  char const* const last = text.data() + text.size();
  auto const [end, failure] = std::from_chars(text.data(), last, value);
  if (text.empty() || failure != std::errc{} || end != last || value < least || value > most) return std::nullopt;
  return value;
}

std::optional<std::vector<std::uint64_t>> parse_whole_numbers(std::string_view text) {
  std::vector<std::uint64_t> values;
  for (;;) {
    auto const comma = text.find(',');
    auto const value = parse_whole_number(text.substr(0, comma));
    if (!value) return std::nullopt;
    values.push_back(*value);
    if (comma == text.npos) return values;
    text.remove_prefix(comma + 1);
  }
}

CLI::Validator whole_number(std::uint64_t least, std::uint64_t most) {
  auto const canonical = [least, most](std::string& text) -> std::string {
    auto const value = parse_whole_number(text, least, most);
    if (!value) return fmt::format("'{}' is not a whole number from {} to {}", text, least, most);
    text = std::to_string(*value);  // without leading zeros, which would make it octal
    return {};
  };
  return CLI::Validator{canonical, most == any_number ? "" : fmt::format("{}..{}", least, most)};
}

CLI::Validator whole_numbers() {
  return CLI::Validator{[](std::string& text) -> std::string {
                          if (parse_whole_numbers(text)) return {};
                          return fmt::format("'{}' is not a list such as 1,2,3 of whole numbers from 0 to {}", text,
                                             any_number);
                        },
                        ""};
}

CLI::Validator number_of_seconds(double least, double most) {
  auto const checked = [least, most](std::string& text) -> std::string {
    double value = 0;
    char const* const last = text.data() + text.size();
    auto const [end, failure] = std::from_chars(text.data(), last, value);
    // A NaN fails the comparison as well.
    bool const good = !text.empty() && failure == std::errc{} && end == last && value >= least && value <= most;
    return good ? std::string{} : fmt::format("'{}' is not a number of seconds from {} to {:.0f}", text, least, most);
  };
  return CLI::Validator{checked, fmt::format("{}..{:.0f}", least, most)};
}

}  // namespace gradwire::program
