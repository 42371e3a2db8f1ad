#pragma once

#include <cstddef>
#include <span>
#include <vector>

#include <gradwire/codec.hpp>

namespace gradwire {

//! A payload behind a checked 32-byte header that says how to decode it: for what is stored, sent to another release or
//! sent with verification on. Byte by byte in docs/wire-format.md.
struct frame_info {
  gradwire::codec codec;  //!< with the parameters the frame was written with
  dtype type = dtype::f32;
  std::size_t count = 0;
  std::span<std::byte const> payload;  //!< points into the frame
};

//! Encodes `count` elements of one tensor into a frame.
[[nodiscard]] std::vector<std::byte> encode_frame(codec const& codec, const_elements in, std::size_t count,
                                                  random_key key = {}, std::uint32_t tensor_id = 0);
//! Checks every field and both checksums before it touches the payload. Throws errc::corrupt_payload that says which
//! field is wrong and what was expected; reads nothing past frame.size().
[[nodiscard]] frame_info read_frame(std::span<std::byte const> frame);
//! Checks and decodes into `out`, which has room for `count` elements. Throws errc::corrupt_payload; also when the
//! frame holds another count.
void decode_frame(std::span<std::byte const> frame, elements out, std::size_t count);

}  // namespace gradwire
