#include <gradwire/version.hpp>

namespace gradwire {

std::string_view version() noexcept { return GRADWIRE_VERSION; }

}  // namespace gradwire
