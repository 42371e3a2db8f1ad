#include <algorithm>
#include <cmath>
#include <limits>

#include "compressors/cast/entry.hpp"

namespace gradwire {
namespace {

// Not contractive in the strict sense: f32 subnormals under 2^-134 become zero, what is within 2^-9 of 2^128 infinite.
codec_traits traits(param_values const&) {
  codec_traits traits;
  traits.elementwise = true;
  traits.sums_on_wire = dtype::bf16;
  return traits;
}

// Half a unit in the last place: 2^-8 of a normal number, 2^-134 below 2^-126; 2^128 (1 - 2^-9) is the first to round
// to infinity.
double error_bound(param_values const&, std::span<float const> x) {
  double bound = 0;
  for (float const value : x) {
    double const magnitude = std::abs(static_cast<double>(value));
    if (magnitude >= 0x1.ffp127) return std::numeric_limits<double>::infinity();
    double const error = magnitude < 0x1p-126 ? std::min(magnitude, 0x1p-134) : 0x1p-8 * magnitude;
    bound += error * error;
  }
  return bound;
}

codec_entry make() {
  codec_entry entry = cast::entry<bf16>(dtype::bf16, traits, error_bound);
  entry.name = "bf16";
  entry.wire_id = 3;
  entry.summary = "every element as bfloat16: the range of f32 in 16 bits";
  return entry;
}

}  // namespace

namespace registry {

codec_entry const& bf16() {
  static codec_entry const entry = make();
  return entry;
}

}  // namespace registry
}  // namespace gradwire
