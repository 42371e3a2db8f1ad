#pragma once

#include <string_view>

namespace gradwire {

//! "major.minor.patch" of the library, as CMake's project() has it.
[[nodiscard]] std::string_view version() noexcept;

}  // namespace gradwire
