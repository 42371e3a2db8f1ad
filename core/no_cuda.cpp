// Takes the place of core/cuda in a build without CUDA.
#include "core/event_state.hpp"

namespace gradwire {

device_streams const* cuda_streams() noexcept { return nullptr; }

}  // namespace gradwire
