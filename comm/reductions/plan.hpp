#pragma once

#include <cstddef>
#include <span>
#include <vector>

#include <gradwire/codec.hpp>

namespace gradwire::reductions {

//! Cuts a list of segments into `parts` runs that lie one behind the other, as equal in encoded bytes as the codec's
//! granule allows; some may be empty. The payloads of the parts, one behind the other, are the payload of the whole.
[[nodiscard]] std::vector<std::vector<segment>> cut_evenly(codec const& method, std::span<segment const> segments,
                                                           std::size_t parts);

//! A part of one segment and where its payload lies in the payload of the whole list.
struct piece {
  segment part;
  std::size_t payload_offset = 0;
  std::size_t payload_bytes = 0;
};

//! Cuts every segment into pieces of at most about `elements` elements (the codec's granule decides; a segment that
//! must not be cut stays whole), so that work on one piece stays in the cache.
[[nodiscard]] std::vector<piece> cut_small(codec const& method, std::span<segment const> segments,
                                           std::size_t elements);

}  // namespace gradwire::reductions
