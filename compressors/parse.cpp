#include <charconv>
#include <cmath>
#include <cstdint>
#include <string>
#include <system_error>

#include <gradwire/codec.hpp>
#include <gradwire/error.hpp>

#include "compressors/text.hpp"

namespace gradwire {
namespace {

// Shortest text that reads back as the same number; whole numbers without a point.
std::string number(double value) {
  char text[32];
  bool const whole = value == std::floor(value) && std::abs(value) < 0x1p53;
  auto const end = whole ? std::to_chars(text, text + sizeof text, static_cast<std::int64_t>(value)).ptr
                         : std::to_chars(text, text + sizeof text, value).ptr;
  return {text, end};
}

std::string quoted(std::string_view text) {
  // Keeps an error of one line even when a whole file is passed as a spec.
  constexpr std::size_t most = 60;
  return join({"'", text.substr(0, most), text.size() > most ? "…'" : "'"});
}

std::string choices(codec_key const& key) {
  std::string text;
  for (std::string_view const choice : key.choices) {
    if (!text.empty()) text += '|';
    text += choice;
  }
  return text;
}

std::string allowed(codec_key const& key) {
  if (key.kind == key_kind::choice) return choices(key);
  std::string_view const kind = key.kind == key_kind::integer ? "an integer from " : "a number from ";
  return join({kind, number(key.min), " to ", number(key.max)});
}

std::string known_keys(codec_entry const& entry) {
  std::string text;
  for (codec_key const& key : entry.keys) {
    if (!text.empty()) text += "; ";
    text += join({key.name, "=", allowed(key)});
  }
  return text.empty() ? "it takes no keys" : join({"it takes ", text});
}

void check_value(codec_entry const& entry, codec_key const& key, double value, std::string const& given) {
  bool ok = value >= key.min && value <= key.max;
  if (key.kind == key_kind::choice) ok = value >= 0 && value < static_cast<double>(key.choices.size());
  if (key.kind != key_kind::real) ok = ok && value == std::floor(value);
  if (ok) return;
  throw error{errc::invalid_argument,
              join({entry.name, ": ", key.name, "=", given, " is not allowed: use ", allowed(key)})};
}

double parse_value(codec_entry const& entry, codec_key const& key, std::string_view text) {
  auto const refuse = [&](std::string_view why) {
    return error{errc::invalid_argument,
                 join({entry.name, ": ", key.name, "=", quoted(text), " ", why, ": use ", allowed(key)})};
  };
  if (text.empty()) throw refuse("is empty");
  if (key.kind == key_kind::choice) {
    for (std::size_t i = 0; i < key.choices.size(); ++i) {
      if (key.choices[i] == text) return static_cast<double>(i);
    }
    throw refuse("is no choice");
  }
  char const* const begin = text.data();
  char const* const end = begin + text.size();
  double value = 0;
  std::from_chars_result read{};
  if (key.kind == key_kind::integer) {
    std::int64_t whole = 0;
    read = std::from_chars(begin, end, whole);
    value = static_cast<double>(whole);
  } else {
    read = std::from_chars(begin, end, value);
  }
  if (read.ec == std::errc::result_out_of_range && read.ptr == end) throw refuse("is out of range");
  if (read.ec != std::errc{} || read.ptr != end || !std::isfinite(value)) {
    throw refuse(key.kind == key_kind::integer ? "is no integer" : "is no finite number");
  }
  check_value(entry, key, value, quoted(text));
  return value;
}

void parse_key(codec_entry const& entry, std::string_view text, param_values& values, std::uint32_t& seen) {
  auto const equals = text.find('=');
  std::string_view const name = trim(text.substr(0, equals));
  if (equals == std::string_view::npos || name.empty()) {
    throw error{errc::invalid_argument,
                join({entry.name, ": ", quoted(trim(text)), " is not of the form key=value; ", known_keys(entry)})};
  }
  for (std::size_t i = 0; i < entry.keys.size(); ++i) {
    if (entry.keys[i].name != name) continue;
    if ((seen >> i & 1u) != 0) {
      throw error{errc::invalid_argument, join({entry.name, ": key '", name, "' is given twice: give it once"})};
    }
    seen |= 1u << i;
    values.values[i] = parse_value(entry, entry.keys[i], trim(text.substr(equals + 1)));
    return;
  }
  throw error{errc::invalid_argument, join({entry.name, ": unknown key ", quoted(name), "; ", known_keys(entry)})};
}

param_values presets(codec_entry const& entry) {
  param_values values;
  for (std::size_t i = 0; i < entry.keys.size(); ++i) values.values[i] = entry.keys[i].preset;
  return values;
}

error malformed(std::string_view text, std::string_view why) {
  return {errc::invalid_argument, join({"spec ", quoted(text), " ", why, ": write name or name(key=value,…)"})};
}

}  // namespace

codec::codec(codec_entry const& entry, param_values const& params, implementation impl)
    : entry_{&entry}, params_{params}, impl_{impl} {
  for (std::size_t i = 0; i < entry.keys.size(); ++i) {
    codec_key const& key = entry.keys[i];
    if (params_.given(i)) {
      check_value(entry, key, params_.real(i), number(params_.real(i)));
    } else if (key.preset == key.preset) {
      throw error{errc::invalid_argument,
                  join({entry.name, ": ", key.name, " has no value (NaN): use ", allowed(key)})};
    }
  }
  // What lies behind the keys never matters, so that equal codecs have equal values.
  for (std::size_t i = entry.keys.size(); i < param_values::capacity; ++i) params_.values[i] = 0;
  if (entry.check != nullptr) entry.check(params_);
}

codec codec::parse(std::string_view text, implementation impl) {
  std::string_view const spec = trim(text);
  auto const open = spec.find('(');
  std::string_view const name = trim(spec.substr(0, open));
  if (name.empty()) throw malformed(text, "names no method");
  // Before the name is looked up: a stray ')' is a slip of the pen, not an unknown method.
  if (open == std::string_view::npos && spec.find(')') != std::string_view::npos) {
    throw malformed(text, "closes a parenthesis that was not opened");
  }
  codec_entry const& entry = find_codec(name);
  param_values values = presets(entry);
  if (open == std::string_view::npos) return codec{entry, values, impl};

  auto const close = spec.find(')', open);
  if (close == std::string_view::npos) throw malformed(text, "has no closing parenthesis");
  if (close + 1 != spec.size()) throw malformed(text, "goes on behind the closing parenthesis");
  std::string_view rest = spec.substr(open + 1, close - open - 1);
  if (rest.find('(') != std::string_view::npos) throw malformed(text, "has a parenthesis inside the parentheses");
  if (trim(rest).empty()) return codec{entry, values, impl};
  std::uint32_t seen = 0;
  for (;;) {
    auto const comma = rest.find(',');
    parse_key(entry, rest.substr(0, comma), values, seen);
    if (comma == std::string_view::npos) break;
    rest.remove_prefix(comma + 1);
  }
  return codec{entry, values, impl};
}

std::string codec::text() const {
  std::string keys;
  for (std::size_t i = 0; i < entry_->keys.size(); ++i) {
    if (!params_.given(i)) continue;
    codec_key const& key = entry_->keys[i];
    if (!keys.empty()) keys += ',';
    bool const choice = key.kind == key_kind::choice;
    keys += join({key.name, "=", choice ? std::string{key.choices[params_.integer(i)]} : number(params_.real(i))});
  }
  return keys.empty() ? std::string{entry_->name} : join({entry_->name, "(", keys, ")"});
}

}  // namespace gradwire
