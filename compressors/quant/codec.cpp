#include <algorithm>
#include <array>
#include <cmath>
#include <span>

#include <gradwire/codec.hpp>

#include "compressors/quant/coder.hpp"

namespace gradwire {
namespace quant {
namespace {

using std::string_view_literals::operator""sv;

constexpr std::array scale_names{"absmax"sv, "minmax"sv};
constexpr std::array round_names{"nearest"sv, "stochastic"sv};

constexpr std::array keys{
    codec_key{.name = "bits", .kind = key_kind::integer, .preset = 4, .min = 1, .max = 8, .help = "bits of an element"},
    codec_key{.name = "block",
              .kind = key_kind::integer,
              .preset = 256,
              .min = 32,
              .max = 65536,
              .help = "elements that share a scale: a multiple of 32"},
    codec_key{.name = "scale",
              .kind = key_kind::choice,
              .preset = 0,
              .min = 0,
              .max = 1,
              .choices = scale_names,
              .help = "levels from -max|x| to max|x| with an exact zero, or from the block's minimum to its maximum"},
    codec_key{.name = "round",
              .kind = key_kind::choice,
              .preset = 0,
              .min = 0,
              .max = 1,
              .choices = round_names,
              .help = "to the nearest level, or up and down at random without bias"}};

void check(param_values const& params) {
  if (std::size_t const block = params.integer(block_key); block % 32 != 0) {
    throw error{errc::invalid_argument,
                join({"quant: block=", std::to_string(block),
                      " is not a multiple of 32 (so that any number of bits fills whole words): use one from 32 to "
                      "65536, such as the preset 256"})};
  }
}

// Largest possible Σ (x − D)² / Σ x² over a block, where an element between two levels, away from both ends, loses at
// most `loss` units². README.md derives these.
double worst_ratio_between_ends(settings const& set, double loss) {
  auto const n = static_cast<double>(set.block);
  auto const top = static_cast<double>(top_code(set.scale, set.bits));
  if (set.scale == scaling::minmax) return (n - 2) * loss * 2 / (top * top);
  return (n - 1) * loss * 4 / (top * top);  // absmax with one bit: ends at ±top/2
}

double omega(settings const& set) {
  if (!set.is_centred) return worst_ratio_between_ends(set, 0.25);
  auto const n = static_cast<double>(set.block);
  auto const top = static_cast<double>(top_code(set.scale, set.bits));
  return (std::sqrt(1 + (n - 1) / (top * top)) - 1) / 2;
}

bool contractive(settings const& set) {
  bool const is_nearest = set.round == rounding::nearest;
  if (!set.is_centred) return worst_ratio_between_ends(set, is_nearest ? 0.25 : 1) < 1;
  auto const n = static_cast<double>(set.block);
  auto const top = static_cast<double>(top_code(set.scale, set.bits));
  return is_nearest || n - 1 < top * top;
}

codec_traits traits(param_values const& params) {
  settings const set{params};
  codec_traits traits;
  traits.contractive = contractive(set);
  traits.unbiased = set.round == rounding::stochastic;
  if (traits.unbiased) traits.omega = omega(set);
  return traits;
}

// An element loses at most half a unit, with stochastic rounding less than a whole one.
double error_bound(param_values const& params, std::span<float const> x) {
  settings const set{params};
  double const loss = set.round == rounding::nearest ? 0.25 : 1;
  double bound = 0;
  for (; !x.empty(); x = x.subspan(std::min(set.block, x.size()))) {
    auto const block = x.first(std::min(set.block, x.size()));
    auto const [low, high] = std::ranges::minmax(block);
    double const range = set.scale == scaling::minmax
                             ? static_cast<double>(high) - static_cast<double>(low)
                             : 2.0 * static_cast<double>(std::max(magnitude(low), magnitude(high)));
    double const unit = range / static_cast<double>(top_code(set.scale, set.bits) * (set.is_centred ? 2 : 1));
    bound += static_cast<double>(block.size()) * loss * unit * unit;
  }
  return bound;
}

codec_entry make() {
  codec_entry entry;
  entry.name = "quant";
  entry.wire_id = 5;
  entry.summary = "1 to 8 bits per element between the extremes of each block";
  entry.keys = keys;
  entry.check = check;
  entry.traits = traits;
  entry.granule = [](param_values const& params) { return settings{params}.block; };
  entry.encoded_bytes = [](param_values const& params, std::size_t count) {
    settings const set{params};
    return blocks::encoded_bytes(count, set.block, [&](std::size_t elements) { return set.bytes(elements); });
  };
  entry.error_bound = error_bound;
  entry.reference = blocks::functions<coder<reference_loops>>::table;
  entry.cpu = fast;
  return entry;
}

}  // namespace
}  // namespace quant

namespace registry {

codec_entry const& quant() {
  static codec_entry const entry = quant::make();
  return entry;
}

}  // namespace registry
}  // namespace gradwire
