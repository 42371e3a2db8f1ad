#include <algorithm>
#include <cmath>
#include <limits>

#include "compressors/cast/entry.hpp"

namespace gradwire {
namespace {

// Not contractive in the strict sense: what is under 2^-25 becomes zero, what is beyond 65504 infinite.
codec_traits traits(param_values const&) {
  codec_traits traits;
  traits.elementwise = true;
  traits.sums_on_wire = dtype::f16;
  return traits;
}

// Half a unit in the last place: 2^-11 of a normal number, 2^-25 below 2^-14; 65520 is the first to round to infinity.
double error_bound(param_values const&, std::span<float const> x) {
  double bound = 0;
  for (float const value : x) {
    double const magnitude = std::abs(static_cast<double>(value));
    if (magnitude >= 65520.0) return std::numeric_limits<double>::infinity();
    double const error = magnitude < 0x1p-14 ? std::min(magnitude, 0x1p-25) : 0x1p-11 * magnitude;
    bound += error * error;
  }
  return bound;
}

codec_entry make() {
  codec_entry entry = cast::entry<f16>(dtype::f16, traits, error_bound);
  entry.name = "f16";
  entry.wire_id = 2;
  entry.summary = "every element as IEEE 754 binary16; up to 65504";
  return entry;
}

}  // namespace

namespace registry {

codec_entry const& f16() {
  static codec_entry const entry = make();
  return entry;
}

}  // namespace registry
}  // namespace gradwire
