#include "compressors/cast/kernels.cuh"

namespace gradwire::registry {

codec_functions const& bf16_cuda() { return cast::on_cuda<gradwire::bf16>::functions; }

}  // namespace gradwire::registry
