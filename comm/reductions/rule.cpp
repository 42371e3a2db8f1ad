#include <gradwire/spec.hpp>

#include <functional>
#include <mutex>
#include <numeric>
#include <optional>
#include <regex>

#include <gradwire/error.hpp>

#include "comm/reductions/text.hpp"

namespace gradwire {
namespace {

constexpr std::string_view arrow = "=>";
constexpr char const* form =
    "a rule is CONDITION=>SPEC with the condition name~REGEX, ndim=N or min_numel=N, as in 'name~embed=>topk+ef'";

enum class condition_kind : std::uint8_t { name, ndim, min_numel };

struct condition_parts {
  condition_kind kind;
  std::string_view value;
};

condition_parts read(std::string_view condition) {
  auto const after = [&](std::string_view key, char sign) -> std::optional<std::string_view> {
    if (!condition.starts_with(key)) return std::nullopt;
    std::string_view const rest = trim(condition.substr(key.size()));
    if (rest.empty() || rest.front() != sign) return std::nullopt;
    return trim(rest.substr(1));
  };
  if (auto const value = after("name", '~')) return {condition_kind::name, *value};
  if (auto const value = after("ndim", '=')) return {condition_kind::ndim, *value};
  if (auto const value = after("min_numel", '=')) return {condition_kind::min_numel, *value};
  throw error{errc::invalid_argument, "unknown condition '" + std::string{condition} + "': " + form};
}

std::size_t read_number(std::string_view condition, std::string_view value) {
  if (auto const number = reductions::parse_count(value)) return *number;
  throw error{errc::invalid_argument, "condition '" + std::string{condition} +
                                          "' wants a whole number, 0 or more, not '" + std::string{value} + "'"};
}

std::regex read_regex(std::string_view condition, std::string_view value) {
  if (value.empty()) {
    throw error{errc::invalid_argument,
                "condition '" + std::string{condition} +
                    "' has an empty expression, which every name matches: write name~.* for that"};
  }
  constexpr std::size_t longest = 4096;  // libstdc++ recurses over the expression and overflows its stack at 10,000
  if (value.size() > longest) {
    throw error{errc::invalid_argument, "a condition name~REGEX has an expression of " + std::to_string(value.size()) +
                                            " characters: use " + std::to_string(longest) + " or fewer"};
  }
  // Ranks may be threads, and libstdc++ fills a cache of the locale without a lock when it compiles an expression.
  static std::mutex one_at_a_time;
  std::scoped_lock const lock{one_at_a_time};
  try {
    return std::regex{std::string{value}, std::regex::ECMAScript};
  } catch (std::regex_error const& bad) {
    throw error{errc::invalid_argument, "condition '" + std::string{condition} + "': '" + std::string{value} +
                                            "' is no regular expression (ECMAScript): " + bad.what()};
  }
}

}  // namespace

std::size_t element_count(std::span<std::size_t const> shape) noexcept {
  return std::accumulate(shape.begin(), shape.end(), std::size_t{1}, std::multiplies<>{});
}

rule rule::parse(std::string_view text) {
  // The last arrow: a regular expression may hold one, a spec cannot.
  std::size_t const at = text.rfind(arrow);
  if (at == std::string_view::npos) {
    throw error{errc::invalid_argument, "rule '" + std::string{text} + "' has no '=>': " + form};
  }
  std::string_view const condition = trim(text.substr(0, at));
  condition_parts const parts = read(condition);
  std::string canonical;
  switch (parts.kind) {
    case condition_kind::name:
      static_cast<void>(read_regex(condition, parts.value));
      canonical = "name~" + std::string{parts.value};
      break;
    case condition_kind::ndim: canonical = "ndim=" + std::to_string(read_number(condition, parts.value)); break;
    case condition_kind::min_numel:
      canonical = "min_numel=" + std::to_string(read_number(condition, parts.value));
      break;
  }
  return {canonical, gradwire::spec::parse(trim(text.substr(at + arrow.size())))};
}

bool rule::matches(parameter_shape const& parameter) const {
  condition_parts const parts = read(condition);
  switch (parts.kind) {
    case condition_kind::name:
      return std::regex_search(parameter.name.begin(), parameter.name.end(), read_regex(condition, parts.value));
    case condition_kind::ndim: return parameter.shape.size() == read_number(condition, parts.value);
    case condition_kind::min_numel: break;
  }
  return element_count(parameter.shape) >= read_number(condition, parts.value);
}

std::string rule::text() const { return condition + std::string{arrow} + spec.text(); }

spec choose_spec(parameter_shape const& parameter, std::span<rule const> rules, spec const& fallback,
                 std::size_t min_numel) {
  for (rule const& each : rules) {
    if (each.matches(parameter)) return each.spec;
  }
  if (parameter.shape.size() <= 1 || element_count(parameter.shape) < min_numel) return spec::parse("none");
  return fallback;
}

}  // namespace gradwire
