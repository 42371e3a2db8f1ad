#include "comm/reductions/plan.hpp"

#include <algorithm>

namespace gradwire::reductions {
namespace {

// A place between two elements of a list of segments: before element `element` of segment `index`; never at the end of
// a segment, which is the begin of the next one.
struct cut {
  std::size_t index = 0;
  std::size_t element = 0;
};

segment part_of(segment const& whole, std::size_t begin, std::size_t end) {
  segment part = whole;
  part.offset += begin;
  part.residual_offset += begin;
  part.first += begin;
  part.count = end - begin;
  return part;
}

// The place in `whole` that is nearest to byte `target` of its payload.
std::size_t nearest_element(codec const& method, segment const& whole, std::size_t target) {
  std::size_t const granule = method.granule();
  if (granule == 0) return 2 * target < method.encoded_bytes(whole.count) ? 0 : whole.count;
  std::size_t const bytes = std::max<std::size_t>(method.encoded_bytes(granule), 1);
  // Rounded to the nearest granule; all but the last one of a segment are full.
  return std::min((target + bytes / 2) / bytes * granule, whole.count);
}

}  // namespace

std::vector<std::vector<segment>> cut_evenly(codec const& method, std::span<segment const> segments,
                                             std::size_t parts) {
  std::size_t const total = method.encoded_bytes(segments);
  std::vector<cut> cuts{{0, 0}};
  std::size_t index = 0;
  std::size_t begin = 0;  // of segment `index`, in bytes
  for (std::size_t part = 1; part < parts; ++part) {
    // total·part/parts without overflow
    std::size_t const target = total / parts * part + total % parts * part / parts;
    while (index < segments.size() && begin + method.encoded_bytes(segments[index].count) <= target) {
      begin += method.encoded_bytes(segments[index].count);
      ++index;
    }
    cut at{index, 0};
    if (index < segments.size()) {
      at.element = nearest_element(method, segments[index], target - begin);
      if (at.element == segments[index].count) at = {index + 1, 0};
    }
    cuts.push_back(at);
  }
  cuts.push_back({segments.size(), 0});

  std::vector<std::vector<segment>> result(parts);
  for (std::size_t part = 0; part < parts; ++part) {
    cut const from = cuts[part];
    cut const to = cuts[part + 1];
    for (std::size_t i = from.index; i < segments.size() && i <= to.index; ++i) {
      std::size_t const first = i == from.index ? from.element : 0;
      std::size_t const last = i == to.index ? to.element : segments[i].count;
      if (last > first || (segments[i].count == 0 && i < to.index)) {
        result[part].push_back(part_of(segments[i], first, last));
      }
    }
  }
  return result;
}

std::vector<piece> cut_small(codec const& method, std::span<segment const> segments, std::size_t elements) {
  std::size_t const granule = method.granule();
  std::vector<piece> result;
  std::size_t offset = 0;
  for (segment const& whole : segments) {
    std::size_t const step =
        granule == 0 ? std::max<std::size_t>(whole.count, 1) : granule * std::max<std::size_t>(elements / granule, 1);
    for (std::size_t begin = 0; begin < whole.count; begin += step) {
      segment const part = part_of(whole, begin, std::min(begin + step, whole.count));
      std::size_t const bytes = method.encoded_bytes(part.count);
      result.push_back({part, offset, bytes});
      offset += bytes;
    }
    if (whole.count == 0) offset += method.encoded_bytes(0);
  }
  return result;
}

}  // namespace gradwire::reductions
