#pragma once

#include <span>

#include <gradwire/codec.hpp>

namespace gradwire::registry {

//! The codecs of the build, by name: one for each folder with a codec.cpp. Generated (compressors/CMakeLists.txt).
[[nodiscard]] std::span<codec_entry const* const> built_in();

}  // namespace gradwire::registry
