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

#include "compressors/block.hpp"
#include "compressors/feedback/format.hpp"
#include "compressors/gradient.hpp"
#include "compressors/text.hpp"

namespace gradwire::blocks {

//! What is encoded: a block of floats as they are …
struct plain {
  float const* values;
  [[nodiscard]] float at(std::size_t i) const noexcept { return values[i]; }
};

//! … or scaled and with the residual added. Elements go to `copy` (which may be `values`) as they are
//! looked at: a second look finds them there.
struct corrected {
  float const* values;
  float scale;
  float const* residual;
  float* copy;
  [[nodiscard]] float at(std::size_t i) const noexcept {
    return copy[i] = feedback::add(residual[i], scale, values[i]);
  }
};

//! Codecs compute on floats: gradients of other types pass through a block of them, which stays in the first-level
//! cache, so that no loop of a codec is there for every type.
struct conversions {
  template <class T>
  static void widen(T const* from, std::size_t count, float* to) {
    for (std::size_t i = 0; i < count; ++i) to[i] = to_float(from[i]);
  }

  //! out = scale·x, or out += scale·x.
  template <bool Add, class T>
  static void put(float const* x, float scale, std::size_t count, T* out) {
    for (std::size_t i = 0; i < count; ++i) {
      out[i] = from_float<T>(Add ? feedback::add(to_float(out[i]), scale, x[i]) : scale * x[i]);
    }
  }
};

//! Where the gradients of the next block lie, if there is one: for fetching ahead.
struct upcoming {
  std::byte const* gradient = nullptr;
  std::size_t element_bytes = 0;
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

//! The same block in several payloads. References: copies of what was just written would be read in other widths than
//! they were written in, and then wait for all stores before them.
struct shards {
  std::span<std::byte const* const> const& payloads;
  std::size_t bytes;  //!< of each payload
  blocks::block const& block;
};

//! The five functions of a codec from its work on one block. `Coder` is made from the parameters and has
//!   loops: with the functions of `conversions`
//!   size(), bytes(count)
//!   encode(source, values, block, key, to, end, residual, next): `values` has the source's elements once they were
//!     looked at; `to` is the block's payload, `end` the end of the whole payload; residual (null: none) gets what was
//!     lost
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

  //! Room for the longest block: it stays in the first-level cache between the two looks that encoding takes.
  static buffer make_scratch(Coder const& coder, exec const& on, std::span<segment const> segments) {
    std::size_t longest = 0;
    for (segment const& one : segments) longest = std::max(longest, std::min(one.count, coder.size()));
    return buffer{longest * sizeof(float), on.memory};
  }

  //! The elements themselves, or what they are as floats in `scratch`.
  template <class T>
  static float const* as_floats(T const* elements, std::size_t count, buffer& scratch) {
    if constexpr (std::is_same_v<T, float>) {
      return elements;
    } else {
      float* const values = scratch.as<float>().data();
      Coder::loops::widen(elements, count, values);
      return values;
    }
  }

  template <class T>
  static upcoming after(block const& one, T const* gradients) {
    return {reinterpret_cast<std::byte const*>(gradients + one.gradient + one.count), sizeof(T)};
  }

  static void encode(exec const& on, param_values const& params, const_elements in, std::span<segment const> segments,
                     random_key key, std::byte* payload) {
    Coder const coder{params};
    std::byte* const end = payload + payload_bytes(coder, segments);
    buffer scratch = in.type == dtype::f32 ? buffer{} : make_scratch(coder, on, segments);
    with_type(in, [&]<class T>(T const* gradients) {
      for_each(coder, segments, [&](block const& one) {
        float const* const values = as_floats(gradients + one.gradient, one.count, scratch);
        coder.encode(plain{values}, values, one, key, payload + one.payload, end, nullptr, after(one, gradients));
      });
    });
  }

  static void encode_with_feedback(exec const& on, param_values const& params, const_elements grad, float* residual,
                                   std::span<segment const> segments, random_key key, std::byte* payload) {
    Coder const coder{params};
    std::byte* const end = payload + payload_bytes(coder, segments);
    buffer scratch = make_scratch(coder, on, segments);
    float* const values = scratch.as<float>().data();
    with_type(grad, [&]<class T>(T const* gradients) {
      for_each(coder, segments, [&](block const& one) {
        float* const lost = residual + one.residual;
        corrected const source{as_floats(gradients + one.gradient, one.count, scratch), 1.0f, lost, values};
        coder.encode(source, values, one, key, payload + one.payload, end, lost, after(one, gradients));
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
    buffer scratch = make_scratch(coder, on, segments);
    float* const sums = scratch.as<float>().data();
    for_each(coder, segments, [&](block const& one) {
      float* const lost = residual == nullptr ? nullptr : residual + one.residual;
      coder.reduce_encode(shards{payloads, bytes, one}, scale, key, payload + one.payload, payload + bytes, lost, sums);
    });
  }

  static constexpr codec_functions table{encode, encode_with_feedback, decode_as<false>, decode_as<true>,
                                         reduce_encode};
};

}  // namespace gradwire::blocks
