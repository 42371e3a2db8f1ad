#include <gradwire/spec.hpp>

#include <cmath>
#include <cstdio>
#include <initializer_list>

#include <gradwire/error.hpp>
#include <gradwire/reduction.hpp>

#include "comm/reductions/entry.hpp"
#include "comm/reductions/text.hpp"
#include "compressors/text.hpp"

namespace gradwire {
namespace {

constexpr std::size_t most_warmup_steps = 1'000'000'000;
constexpr std::string_view allowed_modifiers = "ef, via(REDUCTION), warmup(steps=N)";

[[noreturn]] void refuse(std::string_view text, std::initializer_list<std::string_view> why) {
  throw error{errc::invalid_argument, join({"spec '", text, "': ", join(why)})};
}

// `method+modifier+…`, cut at the plus signs outside parentheses.
std::vector<std::string_view> split(std::string_view text) {
  std::vector<std::string_view> parts;
  int depth = 0;
  std::size_t begin = 0;
  for (std::size_t i = 0; i <= text.size(); ++i) {
    if (i == text.size() || (text[i] == '+' && depth == 0)) {
      parts.push_back(trim(text.substr(begin, i - begin)));
      begin = i + 1;
    } else if (text[i] == '(') {
      ++depth;
    } else if (text[i] == ')') {
      --depth;
    }
  }
  return parts;
}

struct modifier {
  std::string_view name;
  std::string_view arguments;  // between the parentheses
  bool called = false;         // has parentheses
};

modifier read_modifier(std::string_view whole, std::string_view part) {
  std::size_t const open = part.find('(');
  if (open == std::string_view::npos) return {part, {}, false};
  if (part.back() != ')') refuse(whole, {"'", part, "' has no closing parenthesis at its end"});
  return {trim(part.substr(0, open)), trim(part.substr(open + 1, part.size() - open - 2)), true};
}

std::string known_reductions() {
  std::string names;
  for (std::string_view const name : reduction_names()) names += (names.empty() ? "" : ", ") + std::string{name};
  return names;
}

void read_via(std::string_view whole, modifier const& given, spec& result) {
  for (std::string_view const name : reduction_names()) {
    if (given.arguments == name) {
      result.via = std::string{name};
      return;
    }
  }
  refuse(whole, {"via(", given.arguments, ") is unknown: via(...) takes one of ", known_reductions()});
}

void read_warmup(std::string_view whole, modifier const& given, spec& result) {
  std::string const rule = join({"warmup takes one key, steps: an integer from 1 to ",
                                 std::to_string(most_warmup_steps), ", as in warmup(steps=500)"});
  std::size_t const equals = given.arguments.find('=');
  if (equals == std::string_view::npos) refuse(whole, {rule});
  std::string_view const key = trim(given.arguments.substr(0, equals));
  if (key != "steps") refuse(whole, {"warmup has no key '", key, "': ", rule});
  auto const steps = reductions::parse_count(given.arguments.substr(equals + 1));
  if (!steps || *steps == 0 || *steps > most_warmup_steps) {
    refuse(whole, {"warmup(", given.arguments, ") is out of range: ", rule});
  }
  result.warmup_steps = *steps;
}

void read_part(std::string_view whole, std::string_view part, spec& result) {
  modifier const given = read_modifier(whole, part);
  if (given.name == "ef") {
    if (given.called) refuse(whole, {"ef takes no arguments: write +ef"});
    result.error_feedback = true;
  } else if (given.name == "via") {
    read_via(whole, given, result);
  } else if (given.name == "warmup") {
    read_warmup(whole, given, result);
  } else if (given.name.empty()) {
    refuse(whole, {"there is an empty modifier: after each + comes one of ", allowed_modifiers});
  } else {
    refuse(whole, {"unknown modifier '", given.name, "': the modifiers are ", allowed_modifiers});
  }
}

// Combinations that are known to fail; see also reduction_entry::refusal.
void check_feedback(std::string_view whole, spec const& given) {
  if (!given.error_feedback) return;
  codec_traits const traits = given.codec.traits();
  std::string const method = given.codec.text();
  if (traits.unbiased && traits.omega == 0) {
    refuse(whole, {"'", method, "' loses nothing, so there is nothing to feed back: leave +ef away"});
  }
  if (traits.unbiased && !(traits.omega < 1)) {
    // Error feedback needs a contraction. An unbiased codec with E‖D(Q(x)) − x‖² ≤ ω‖x‖² and ω ≥ 1 is none: the
    // residual can grow from step to step (Karimireddy et al. 2019; QSGD with s = 1 on a quadratic diverges).
    char omega[64];
    std::snprintf(omega, sizeof omega, "%.3g", traits.omega);
    std::string const bound = std::isinf(traits.omega) ? std::string{"the relative error of its rounding has no bound"}
                                                       : join({"it has omega = ", omega, " (1 or more)"});
    refuse(whole, {"error feedback around '", method, "' diverges: it is unbiased and ", bound,
                   ", so a step can lose more than it was given and the residual grows without end. Leave +ef away "
                   "(an unbiased method needs none), or take a contraction, such as onebit+ef, topk+ef or ",
                   given.codec.entry().name, " with nearest rounding, more bits or smaller blocks"});
  }
}

}  // namespace

spec spec::parse(std::string_view text) {
  std::vector<std::string_view> const parts = split(text);
  if (parts.front().empty()) {
    refuse(text, {"no method given; the form is METHOD{+MODIFIER}, with the modifiers ", allowed_modifiers});
  }
  spec result{.codec = gradwire::codec::parse(parts.front())};
  std::vector<std::string_view> seen;
  for (std::size_t i = 1; i < parts.size(); ++i) {
    std::string_view const name = trim(parts[i].substr(0, parts[i].find('(')));
    for (std::string_view const earlier : seen) {
      if (earlier == name) refuse(text, {"'", name, "' is given twice: give it once"});
    }
    seen.push_back(name);
    read_part(text, parts[i], result);
  }
  check_feedback(text, result);
  if (result.via != "auto") {
    std::string const refusal = reductions::find_entry(result.via).refusal(result.codec, result.error_feedback);
    if (!refusal.empty()) refuse(text, {refusal});
  }
  return result;
}

std::string spec::text() const {
  std::string result = codec.text();
  if (error_feedback) result += "+ef";
  if (via != "auto") result += join({"+via(", via, ")"});
  if (warmup_steps != 0) result += join({"+warmup(steps=", std::to_string(warmup_steps), ")"});
  return result;
}

}  // namespace gradwire
