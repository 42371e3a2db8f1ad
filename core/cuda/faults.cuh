#pragma once
//! How a kernel tells the host that it met bytes no encoder writes. Each stream has one word of pinned memory. A kernel
//! that finds damage writes there what and where; synchronize() of the stream, or a wait for an event recorded on it,
//! throws errc::corrupt_payload. Nothing is read or written where all is well.

#include <cuda_runtime.h>

#include <cstddef>
#include <cstdint>

#include <gradwire/stream.hpp>

namespace gradwire::cuda {

//! In kernels. Of several reports before the host looks, one stays.
struct fault_word {
  unsigned long long* word;
  std::uint64_t text;  //!< from fault_text()

  //! `at`: the byte of the payload where the damaged part begins.
  __device__ void report(std::size_t at) const {
    *static_cast<unsigned long long volatile*>(word) = text << 48 | (at & 0xffff'ffff'ffffu);
  }
};

//! The number of a text that lives as long as the program: "quant: the block at byte" … " of the payload …". The two
//! parts go before and behind the position.
[[nodiscard]] std::uint64_t fault_text(char const* before, char const* behind);

//! The word of a stream, made when first asked for, which may not be while a graph is captured.
[[nodiscard]] unsigned long long* fault_word_of(stream_ref stream);

//! Throws what a kernel on the stream has reported. `forget`: and clears it.
void throw_fault(stream_ref stream, bool forget);

//! The stream is gone and its handle may come back for another one.
void forget_faults(stream_ref stream) noexcept;

}  // namespace gradwire::cuda
