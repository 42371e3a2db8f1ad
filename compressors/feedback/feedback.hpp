#pragma once

#include <cstddef>
#include <span>

#include <gradwire/codec.hpp>

namespace gradwire::feedback {

//! What the generic paths are built from: an entry for its sizes and one implementation's functions.
//! `decode_add` may be null.
struct basis {
  codec_entry const* entry;
  codec_functions::encode_fn encode;
  codec_functions::decode_fn decode;
  codec_functions::decode_fn decode_add;
};

//! As the functions of codec_functions. They run in pieces of whole granules that stay in cache, with scratch from
//! `on.memory`; throw errc::out_of_memory.
void encode_with_feedback(basis const&, exec const& on, param_values const&, const_elements grad, float* residual,
                          std::span<segment const>, random_key, std::byte* payload);
void decode_add(basis const&, exec const& on, param_values const&, std::byte const* payload, std::span<segment const>,
                elements out, float scale);
void reduce_encode(basis const&, exec const& on, param_values const&, std::span<std::byte const* const> payloads,
                   float scale, float* residual, std::span<segment const>, random_key, std::byte* payload);

}  // namespace gradwire::feedback
