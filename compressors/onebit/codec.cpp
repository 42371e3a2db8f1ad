#include <array>
#include <cmath>
#include <span>

#include <gradwire/codec.hpp>

#include "compressors/onebit/coder.hpp"

namespace gradwire {
namespace onebit {
namespace {

constexpr std::array<std::string_view, 1> scales{"one"};

constexpr std::array keys{codec_key{.name = "block",
                                    .kind = key_kind::integer,
                                    .preset = 1024,
                                    .min = 32,
                                    .max = 65536,
                                    .help = "elements that share a scale: a multiple of 32"},
                          codec_key{.name = "scale",
                                    .kind = key_kind::choice,
                                    .choices = scales,
                                    .help = "not set: the mean magnitude; one: bare signs, as in signSGD"}};

void check(param_values const& params) {
  if (params.integer(block_key) % lanes != 0) {
    throw error{errc::invalid_argument,
                join({"onebit: block=", std::to_string(params.integer(block_key)),
                      " is not a multiple of 32 (signs are packed in words of 32 bits): use one from 32 to 65536, "
                      "such as the preset 1024"})};
  }
}

codec_traits traits(param_values const& params) {
  codec_traits traits;
  // Bare signs overshoot whatever is small.
  traits.contractive = !params.given(scale_key);
  return traits;
}

std::size_t encoded_bytes(param_values const& params, std::size_t count) {
  return blocks::encoded_bytes(count, params.integer(block_key), block_bytes);
}

// ‖x − D(Q(x))‖² = ‖x‖² − ‖x‖₁²/m for a block of m, exactly (Karimireddy et al., ICML 2019, lemma 8: the scaled sign);
// for bare signs ‖x‖² − 2‖x‖₁ + m, unless x is zero.
double error_bound(param_values const& params, std::span<float const> x) {
  double bound = 0;
  for (std::size_t const size = params.integer(block_key); !x.empty(); x = x.subspan(std::min(size, x.size()))) {
    double sum = 0;
    double squares = 0;
    for (float const value : x.first(std::min(size, x.size()))) {
      sum += std::abs(static_cast<double>(value));
      squares += static_cast<double>(value) * static_cast<double>(value);
    }
    auto const count = static_cast<double>(std::min(size, x.size()));
    bool const bare = params.given(scale_key) && sum > 0;
    bound += bare ? squares - 2 * sum + count : squares - sum * sum / count;
  }
  return bound;
}

codec_entry make() {
  codec_entry entry;
  entry.name = "onebit";
  entry.wire_id = 4;
  entry.summary = "signs, and the mean magnitude of each block; biased, so use it with +ef";
  entry.keys = keys;
  entry.check = check;
  entry.traits = traits;
  entry.granule = [](param_values const& params) { return params.integer(block_key); };
  entry.encoded_bytes = encoded_bytes;
  entry.error_bound = error_bound;
  entry.reference = blocks::functions<coder<reference_loops>>::table;
  entry.cpu = fast;
  return entry;
}

}  // namespace
}  // namespace onebit

namespace registry {

codec_entry const& onebit() {
  static codec_entry const entry = onebit::make();
  return entry;
}

}  // namespace registry
}  // namespace gradwire
