#pragma once
//! The walk that codecs share which encode every block of a segment on its own: segments, blocks, dtypes.

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <span>
#include <type_traits>

#include <gradwire/buffer.hpp>
#include <gradwire/codec.hpp>
#include <gradwire/error.hpp>

#include "compressors/gradient.hpp"
#include "compressors/text.hpp"

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

//! What is encoded: a block of gradients as they are …
template <class T>
struct plain {
  T const* values;
  [[nodiscard]] float at(std::size_t i) const noexcept { return to_float(values[i]); }
};

//! … or with the residual added.
template <class T>
struct corrected {
  T const* values;
  float const* residual;
  [[nodiscard]] float at(std::size_t i) const noexcept { return to_float(values[i]) + residual[i]; }
};

//! Payload bytes of `count` elements in blocks of `size`, where a block of m elements takes bytes_of(m).
template <class BytesOf>
[[nodiscard]] std::size_t encoded_bytes(std::size_t count, std::size_t size, BytesOf&& bytes_of) {
  std::size_t const rest = count % size;
  return count / size * bytes_of(size) + (rest == 0 ? 0 : bytes_of(rest));
}

[[noreturn]] inline void corrupt(char const* codec, char const* what, std::size_t payload) {
  throw error{errc::corrupt_payload,
              join({codec, ": the block at byte ", std::to_string(payload), " of the payload ", what,
                    "; no encoder writes that, so the bytes were damaged or belong to another "
                    "codec, other keys or other element counts"})};
}

//! The same block in several payloads.
struct shards {
  std::span<std::byte const* const> payloads;
  std::size_t bytes;  //!< of each payload
  blocks::block block;
};

//! The five functions of a codec from its work on one block. `Coder` is made from the parameters and has
//!   size(), bytes(count)
//!   encode(source, block, key, to, end, residual): `to` is the block's payload, `end` the end of the whole payload;
//!     residual (null: none) gets what was lost
//!   decode<Add>(from, end, block, out, scale)
//!   reduce_encode(parts, scale, key, to, end, residual, sums): encodes scale·ΣD (+ residual); `sums` has room for a
//!     block of floats
template <class Coder>
struct functions {
  template <class F>
  static void for_each(Coder const& coder, std::span<segment const> segments, F&& work) {
    std::size_t payload = 0;
    for (segment const& one : segments) {
      for (std::size_t at = 0; at < one.count; at += coder.size()) {
        std::size_t const count = std::min(coder.size(), one.count - at);
        work(block{one.offset + at, one.residual_offset + at, payload, count, one.first + at, one.tensor_id});
        payload += coder.bytes(count);
      }
    }
  }

  static std::size_t payload_bytes(Coder const& coder, std::span<segment const> segments) {
    std::size_t bytes = 0;
    for (segment const& one : segments) {
      bytes += blocks::encoded_bytes(one.count, coder.size(), [&](std::size_t count) { return coder.bytes(count); });
    }
    return bytes;
  }

  static void encode(exec const&, param_values const& params, const_elements in, std::span<segment const> segments,
                     random_key key, std::byte* payload) {
    Coder const coder{params};
    std::byte* const end = payload + payload_bytes(coder, segments);
    with_type(in, [&]<class T>(T const* values) {
      for_each(coder, segments, [&](block const& one) {
        coder.encode(plain<T>{values + one.gradient}, one, key, payload + one.payload, end, nullptr);
      });
    });
  }

  static void encode_with_feedback(exec const&, param_values const& params, const_elements grad, float* residual,
                                   std::span<segment const> segments, random_key key, std::byte* payload) {
    Coder const coder{params};
    std::byte* const end = payload + payload_bytes(coder, segments);
    with_type(grad, [&]<class T>(T const* values) {
      for_each(coder, segments, [&](block const& one) {
        float* const kept = residual + one.residual;
        coder.encode(corrected<T>{values + one.gradient, kept}, one, key, payload + one.payload, end, kept);
      });
    });
  }

  template <bool Add>
  static void decode_as(exec const&, param_values const& params, std::byte const* payload,
                        std::span<segment const> segments, elements out, float scale) {
    Coder const coder{params};
    std::byte const* const end = payload + payload_bytes(coder, segments);
    with_type(out, [&]<class T>(T* values) {
      for_each(coder, segments, [&](block const& one) {
        coder.template decode<Add>(payload + one.payload, end, one, values + one.gradient, scale);
      });
    });
  }

  static void reduce_encode(exec const& on, param_values const& params, std::span<std::byte const* const> payloads,
                            float scale, float* residual, std::span<segment const> segments, random_key key,
                            std::byte* payload) {
    Coder const coder{params};
    std::size_t const bytes = payload_bytes(coder, segments);
    std::size_t longest = 0;
    for (segment const& one : segments) longest = std::max(longest, std::min(one.count, coder.size()));
    // One block of sums stays in the first-level cache between the two looks that encoding takes.
    buffer scratch{longest * sizeof(float), on.memory};
    float* const sums = scratch.as<float>().data();
    for_each(coder, segments, [&](block const& one) {
      float* const kept = residual == nullptr ? nullptr : residual + one.residual;
      coder.reduce_encode(shards{payloads, bytes, one}, scale, key, payload + one.payload, payload + bytes, kept, sums);
    });
  }

  static constexpr codec_functions table{encode, encode_with_feedback, decode_as<false>, decode_as<true>,
                                         reduce_encode};
};

}  // namespace gradwire::blocks
