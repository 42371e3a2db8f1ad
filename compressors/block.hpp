#pragma once

#include <cstddef>
#include <cstdint>

namespace gradwire::blocks {

//! One block: where it lies in the buffers and in its tensor.
struct block {
  std::size_t gradient;  //!< first element, in the gradient buffer
  std::size_t residual;  //!< first element, in the residual buffer
  std::size_t payload;   //!< first byte, in the payload
  std::size_t count;     //!< elements; fewer than the codec's block only at the end of a segment
  std::size_t first;     //!< index within the tensor of the first element
  std::uint32_t tensor_id;
};

}  // namespace gradwire::blocks
