#pragma once

#include <string>
#include <string_view>
#include <vector>

#include <gradwire/codec.hpp>
#include <gradwire/spec.hpp>

#include "program/common/json_lines.hpp"

namespace gradwire::program {

//! Encoded bits per element of a tensor of `count` elements.
[[nodiscard]] double bits_per_element(codec const& method, std::size_t count);
//! "unbiased, omega 3" and the like; empty for none.
[[nodiscard]] std::string traits_text(codec_traits const& traits);
//! "integer", "real" or "choice".
[[nodiscard]] std::string_view type_text(codec_key const& key);
//! "16..65536", "absmax|minmax".
[[nodiscard]] std::string range_text(codec_key const& key);
//! A key's value as in a spec; empty when it is not set.
[[nodiscard]] std::string value_text(codec_key const& key, double value);

[[nodiscard]] record codec_record(codec_entry const& entry);

//! What a spec sends to average 1 Mi f32 numbers over some ranks.
struct spec_cost {
  std::size_t ranks = 0;
  std::string reduction;
  std::size_t wire_bytes = 0;
  double dense_bytes = 0;
};
[[nodiscard]] std::vector<spec_cost> spec_costs(spec const& how);
[[nodiscard]] record spec_record(std::string_view given, spec const& how);

}  // namespace gradwire::program
