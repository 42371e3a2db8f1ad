#pragma once

#include <gradwire/codec.hpp>

#include "compressors/cast/fast.hpp"
#include "compressors/cast/reference.hpp"

namespace gradwire::cast {

//! The entry of a codec that sends every element as a `Wire`, but for its name, id and summary.
template <class Wire>
[[nodiscard]] codec_entry entry(dtype wire, codec_traits (*traits)(param_values const&),
                                double (*error_bound)(param_values const&, std::span<float const>)) {
  codec_entry entry;
  entry.traits = traits;
  entry.granule = [](param_values const&) { return granule<Wire>; };
  entry.encoded_bytes = [](param_values const&, std::size_t count) { return encoded_bytes<Wire>(count); };
  entry.error_bound = error_bound;
  entry.reference = reference<Wire>::functions;
  entry.cpu = fast(wire);
  return entry;
}

}  // namespace gradwire::cast
