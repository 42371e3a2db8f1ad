#pragma once

#include <vector>

#include <gradwire/handshake.hpp>
#include <gradwire/reducer.hpp>

#include "overlap/model.hpp"

namespace gradwire::overlap {

//! The options, unless this build cannot follow them (errc::unsupported) or one is out of range
//! (errc::invalid_argument).
[[nodiscard]] reducer_options checked(reducer_options options);

//! What all ranks must have in common before the first reduction.
[[nodiscard]] std::vector<config_field> configuration(model const& of, reducer_options const& options);

}  // namespace gradwire::overlap
