#pragma once

#include <gradwire/codec.hpp>

namespace gradwire::cast {

//! The Highway paths of the codec whose wire type is `wire`.
[[nodiscard]] codec_functions fast(dtype wire);

}  // namespace gradwire::cast
