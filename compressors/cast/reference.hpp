#pragma once
//! The reference loops of the codecs that send every element in a type of its own.

#include <cstring>
#include <span>

#include <gradwire/codec.hpp>

#include "compressors/cast/format.hpp"
#include "compressors/feedback/format.hpp"

namespace gradwire::cast {

template <class Wire>
struct reference {
  static float load(std::byte const* payload, std::size_t i) {
    Wire value;
    std::memcpy(&value, payload + i * sizeof(Wire), sizeof(Wire));
    return to_float(value);
  }

  //! Writes element `i` and returns what a receiver will read.
  static float store(std::byte* payload, std::size_t i, float corrected) {
    Wire const value = pack<Wire>(corrected);
    std::memcpy(payload + i * sizeof(Wire), &value, sizeof(Wire));
    return to_float(value);
  }

  //! Sets the bytes between `count` elements and the end of their payload.
  static void pad(std::byte* payload, std::size_t count) {
    std::size_t const used = count * sizeof(Wire);
    std::size_t const rest = encoded_bytes<Wire>(count) - used;
    if (rest != 0) std::memset(payload + used, 0, rest);  // an empty payload has no address
  }

  //! Calls `work(segment, offset of its payload)`.
  template <class F>
  static void for_each(std::span<segment const> segments, F&& work) {
    std::size_t at = 0;
    for (segment const& one : segments) {
      work(one, at);
      at += encoded_bytes<Wire>(one.count);
    }
  }

  static void encode(exec const&, param_values const&, const_elements in, std::span<segment const> segments, random_key,
                     std::byte* payload) {
    for_each(segments, [&](segment const& one, std::size_t at) {
      with_type(in, [&](auto const* values) {
        for (std::size_t i = 0; i < one.count; ++i) store(payload + at, i, to_float(values[one.offset + i]));
      });
      pad(payload + at, one.count);
    });
  }

  static void encode_with_feedback(exec const&, param_values const&, const_elements grad, float* residual,
                                   std::span<segment const> segments, random_key, std::byte* payload) {
    for_each(segments, [&](segment const& one, std::size_t at) {
      float* const kept = residual + one.residual_offset;
      with_type(grad, [&](auto const* values) {
        for (std::size_t i = 0; i < one.count; ++i) {
          float const corrected = to_float(values[one.offset + i]) + kept[i];
          kept[i] = feedback::residual(corrected, store(payload + at, i, corrected), kept[i]);
        }
      });
      pad(payload + at, one.count);
    });
  }

  static void decode(exec const&, param_values const&, std::byte const* payload, std::span<segment const> segments,
                     elements out, float scale) {
    for_each(segments, [&](segment const& one, std::size_t at) {
      with_type(out, [&]<class T>(T* values) {
        for (std::size_t i = 0; i < one.count; ++i)
          values[one.offset + i] = from_float<T>(scale * load(payload + at, i));
      });
    });
  }

  static void decode_add(exec const&, param_values const&, std::byte const* payload, std::span<segment const> segments,
                         elements out, float scale) {
    for_each(segments, [&](segment const& one, std::size_t at) {
      with_type(out, [&]<class T>(T* values) {
        for (std::size_t i = 0; i < one.count; ++i) {
          T& value = values[one.offset + i];
          value = from_float<T>(feedback::add(to_float(value), scale, load(payload + at, i)));
        }
      });
    });
  }

  //! One segment of `count` elements, whose payloads begin `at` bytes behind their pointers. `residual` may be null.
  static void reduce(std::span<std::byte const* const> payloads, std::size_t at, float scale, float* residual,
                     std::size_t count, std::byte* payload) {
    for (std::size_t i = 0; i < count; ++i) {
      float sum = load(payloads.front() + at, i);
      for (std::byte const* const source : payloads.subspan(1)) sum += load(source + at, i);
      if (residual == nullptr) {
        store(payload, i, scale * sum);
        continue;
      }
      float const corrected = feedback::add(residual[i], scale, sum);
      residual[i] = feedback::residual(corrected, store(payload, i, corrected), residual[i]);
    }
    pad(payload, count);
  }

  static void reduce_encode(exec const&, param_values const&, std::span<std::byte const* const> payloads, float scale,
                            float* residual, std::span<segment const> segments, random_key, std::byte* payload) {
    for_each(segments, [&](segment const& one, std::size_t at) {
      reduce(payloads, at, scale, residual == nullptr ? nullptr : residual + one.residual_offset, one.count,
             payload + at);
    });
  }

  static constexpr codec_functions functions{encode, encode_with_feedback, decode, decode_add, reduce_encode};
};

}  // namespace gradwire::cast
