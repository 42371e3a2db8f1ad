#pragma once

#include <cstddef>
#include <span>

namespace gradwire::bench {

//! What a codec function moves between memory and core, each byte counted once for every time it is read or written.
struct traffic {
  std::span<std::byte const> read;  //!< elements that are only read (a gradient)
  std::span<std::byte> update;      //!< elements that are read and written back (a residual, the sum of decode_add)
  std::span<std::byte> write;       //!< elements that are only written (what decode gives)
  std::span<std::span<std::byte const> const> read_payloads;
  std::span<std::byte> write_payload;

  [[nodiscard]] std::size_t bytes() const noexcept;
};

//! The roof of a function: a plain loop of full-width vector loads and ordinary stores with the same streams, side by
//! side as a one-pass codec has them, and no arithmetic (what is read is folded by XOR into what is written, so
//! that no load can be left out). `update` must be as long as `read`, twice as long (16-bit gradients, f32 residuals),
//! or stand alone; `write` stands alone. Payloads
//! are equally long. Whole lines of 64 bytes are moved. Overwrites `update`, `write` and `write_payload`.
void stream(traffic const& what);

}  // namespace gradwire::bench
