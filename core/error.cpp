#include <gradwire/error.hpp>

namespace gradwire {

std::string_view to_string(errc code) noexcept {
  switch (code) {
    case errc::invalid_argument: return "invalid_argument";
    case errc::corrupt_payload: return "corrupt_payload";
    case errc::mismatch: return "mismatch";
    case errc::unsupported: return "unsupported";
    case errc::out_of_memory: return "out_of_memory";
    case errc::cuda: return "cuda";
    case errc::communicator: return "communicator";
    case errc::timeout: return "timeout";
  }
  return "unknown";
}

}  // namespace gradwire
