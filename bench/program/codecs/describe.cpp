#include "program/codecs/describe.hpp"

#include <algorithm>
#include <array>
#include <cmath>

#include <fmt/format.h>

#include <gradwire/inproc.hpp>
#include <gradwire/reduction.hpp>

namespace gradwire::program {
namespace {

constexpr std::size_t sample_count = std::size_t{1} << 20;

record number_or_null(double value) { return std::isfinite(value) ? record(value) : record(nullptr); }

// An end of a key's range: whole where the key is.
record bound(codec_key const& key, double value) {
  if (key.kind == key_kind::integer && std::isfinite(value)) return static_cast<std::int64_t>(value);
  return number_or_null(value);
}

record key_value(codec_key const& key, double value) {
  if (std::isnan(value)) return nullptr;
  if (key.kind == key_kind::choice) return std::string{key.choices[static_cast<std::size_t>(value)]};
  if (key.kind == key_kind::integer) return static_cast<std::int64_t>(value);
  return value;
}

record traits_record(codec_traits const& traits) {
  record result{{"fixed_size", traits.fixed_size},   {"unbiased", traits.unbiased},
                {"contractive", traits.contractive}, {"bit_exact", traits.bit_exact},
                {"needs_shape", traits.needs_shape}, {"elementwise", traits.elementwise}};
  result["sums_on_wire"] = traits.sums_on_wire ? record(to_string(*traits.sums_on_wire)) : record(nullptr);
  result["omega"] = number_or_null(traits.omega);
  return result;
}

record devices(codec_entry const& entry) {
  record result{"cpu"};
  if (entry.cuda != nullptr) result.push_back("cuda");
  return result;
}

}  // namespace

double bits_per_element(codec const& method, std::size_t count) {
  return 8 * static_cast<double>(method.encoded_bytes(count)) / static_cast<double>(count);
}

std::string traits_text(codec_traits const& traits) {
  std::vector<std::string> words;
  if (traits.unbiased)
    words.push_back(traits.omega == 0 ? "exact" : fmt::format("unbiased, omega {:.3g}", traits.omega));
  if (traits.contractive) words.emplace_back("contractive");
  if (traits.sums_on_wire) words.push_back(fmt::format("sums on the wire as {}", to_string(*traits.sums_on_wire)));
  if (!traits.fixed_size) words.emplace_back("varying size");
  if (traits.needs_shape) words.emplace_back("needs matrices");
  return fmt::format("{}", fmt::join(words, ", "));
}

std::string_view type_text(codec_key const& key) {
  switch (key.kind) {
    case key_kind::integer: return "integer";
    case key_kind::real: return "real";
    case key_kind::choice: return "choice";
  }
  return "unknown";
}

std::string range_text(codec_key const& key) {
  if (key.kind == key_kind::choice) return fmt::format("{}", fmt::join(key.choices, "|"));
  if (key.kind == key_kind::integer) return fmt::format("{:.0f}..{:.0f}", key.min, key.max);
  return fmt::format("{:.10g}..{:.10g}", key.min, key.max);
}

std::string value_text(codec_key const& key, double value) {
  if (std::isnan(value)) return "";
  if (key.kind == key_kind::choice) return std::string{key.choices[static_cast<std::size_t>(value)]};
  return fmt::format("{:.10g}", value);
}

record codec_record(codec_entry const& entry) {
  codec const preset = codec::parse(entry.name);
  record keys = record::array();
  for (codec_key const& key : entry.keys) {
    record line{{"name", key.name}, {"type", type_text(key)}, {"default", key_value(key, key.preset)}};
    if (key.kind == key_kind::choice) {
      line["choices"] = std::vector<std::string>(key.choices.begin(), key.choices.end());
    } else {
      line["min"] = bound(key, key.min);
      line["max"] = bound(key, key.max);
    }
    line["help"] = key.help;
    keys.push_back(line);
  }
  return {{"event", "codec"},
          {"name", entry.name},
          {"wire_id", entry.wire_id},
          {"version", entry.version},
          {"summary", entry.summary},
          {"keys", keys},
          {"bits_per_element", bits_per_element(preset, sample_count)},
          {"traits", traits_record(preset.traits())},
          {"devices", devices(entry)}};
}

std::vector<spec_cost> spec_costs(spec const& how) {
  std::array<segment, 1> const whole{{{.count = sample_count}}};
  std::vector<spec_cost> costs;
  for (auto const ranks : std::initializer_list<std::size_t>{2, 4, 8, 16}) {
    auto const group = make_inproc_group(ranks);
    auto const chosen = make_reduction(*group.front(), how, whole, dtype::f32);
    // Rank 0 never sends less than another one.
    costs.push_back({ranks, std::string{chosen->name()}, chosen->wire_bytes(), dense_bytes(sample_count, ranks)});
  }
  return costs;
}

record spec_record(std::string_view given, spec const& how) {
  record parameters = record::object();
  auto const keys = how.codec.entry().keys;
  for (std::size_t i = 0; i < keys.size(); ++i) {
    parameters[std::string{keys[i].name}] = key_value(keys[i], how.codec.params().values[i]);
  }
  record reductions = record::array();
  for (spec_cost const& cost : spec_costs(how)) {
    reductions.push_back({{"ranks", cost.ranks},
                          {"reduction", cost.reduction},
                          {"wire_bytes", cost.wire_bytes},
                          {"dense_bytes", std::llround(cost.dense_bytes)}});
  }
  return {{"event", "spec"},
          {"given", given},
          {"spec", how.text()},
          {"method", how.codec.entry().name},
          {"parameters", parameters},
          {"error_feedback", how.error_feedback},
          {"via", how.via},
          {"warmup_steps", how.warmup_steps},
          {"bits_per_element", bits_per_element(how.codec, sample_count)},
          {"traits", traits_record(how.codec.traits())},
          {"reductions", reductions}};
}

}  // namespace gradwire::program
