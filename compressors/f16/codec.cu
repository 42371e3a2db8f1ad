#include "compressors/cast/kernels.cuh"

namespace gradwire::registry {

codec_functions const& f16_cuda() { return cast::on_cuda<gradwire::f16>::functions; }

}  // namespace gradwire::registry
