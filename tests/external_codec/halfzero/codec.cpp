// An example of a codec outside the tree: the first element of each pair as f32, zero for the second. A pair with a
// number that is not finite is sent as NaN. Built into the library with -DGRADWIRE_EXTRA_CODECS=<this folder>; a
// program of its own would pass the same entry to register_codec.
#include <gradwire/codec.hpp>

#include <cstring>
#include <limits>

#include "compressors/feedback/format.hpp"
#include "compressors/gradient.hpp"

namespace gradwire {
namespace {

std::size_t encoded_bytes(param_values const&, std::size_t count) { return (count + 1) / 2 * sizeof(float); }

void encode(exec const&, param_values const&, const_elements in, std::span<segment const> segments, random_key,
            std::byte* payload) {
  for (segment const& one : segments) {
    with_type(in, [&](auto const* values) {
      for (std::size_t i = 0; i < one.count; i += 2, payload += sizeof(float)) {
        float const unsent = i + 1 < one.count ? to_float(values[one.offset + i + 1]) : 0.0f;
        float const first = to_float(values[one.offset + i]);
        bool const is_sound = feedback::finite(first) && feedback::finite(unsent);
        float const value = is_sound ? first : std::numeric_limits<float>::quiet_NaN();
        std::memcpy(payload, &value, sizeof value);
      }
    });
  }
}

void decode(exec const&, param_values const&, std::byte const* payload, std::span<segment const> segments, elements out,
            float scale) {
  for (segment const& one : segments) {
    with_type(out, [&]<class T>(T* values) {
      for (std::size_t i = 0; i < one.count; i += 2, payload += sizeof(float)) {
        float value = 0;
        std::memcpy(&value, payload, sizeof value);
        values[one.offset + i] = from_float<T>(scale * value);
        float const second = feedback::finite(value) ? 0.0f : value;
        if (i + 1 < one.count) values[one.offset + i + 1] = from_float<T>(second);
      }
    });
  }
}

double error_bound(param_values const&, std::span<float const> x) {
  double bound = 0;
  for (std::size_t i = 1; i < x.size(); i += 2) bound += static_cast<double>(x[i]) * static_cast<double>(x[i]);
  return bound;
}

codec_entry make() {
  codec_entry entry;
  entry.name = "halfzero";
  entry.wire_id = 250;
  entry.summary = "every second element as f32, zero for the others; an example";
  entry.traits = [](param_values const&) { return codec_traits{}; };
  entry.granule = [](param_values const&) { return std::size_t{2}; };
  entry.encoded_bytes = encoded_bytes;
  entry.error_bound = error_bound;
  entry.reference.encode = encode;
  entry.reference.decode = decode;
  return entry;
}

}  // namespace

namespace registry {

codec_entry const& halfzero() {
  static codec_entry const entry = make();
  return entry;
}

}  // namespace registry
}  // namespace gradwire
