#pragma once

#include <array>
#include <cstddef>
#include <memory>
#include <span>
#include <string_view>
#include <vector>

#include <gradwire/buffer.hpp>
#include <gradwire/codec.hpp>

#include "bench/micro/stream.hpp"

namespace gradwire::bench {

enum class function { encode, encode_with_feedback, decode, decode_add, reduce_encode };

inline constexpr std::array all_functions{function::encode, function::encode_with_feedback, function::decode,
                                          function::decode_add, function::reduce_encode};
inline constexpr std::size_t reduced_payloads = 4;

[[nodiscard]] std::string_view to_string(function which) noexcept;
//! Throws errc::invalid_argument that lists the functions.
[[nodiscard]] function parse_function(std::string_view text);

//! What all codecs of a run work on: a gradient of normal numbers whose scale differs from row to row, as those of
//! layers do, and room for what comes out. Allocated and filled once, the same in every run.
class arena {
 public:
  arena(std::size_t count, dtype type);

  std::size_t count;
  dtype type;
  buffer gradient;
  buffer residual;  //!< f32
  buffer out;
  buffer scratch;  //!< what roofs and memcpy write
};

//! One codec on the arena: payloads to decode and to reduce, made once.
class subject {
 public:
  subject(arena& data, codec method);

  //! Runs the function once, as the library's callers do.
  void run(function which);
  //! What run() moves, on buffers that hold nothing of value: for the roof.
  [[nodiscard]] traffic moves(function which);
  //! Compares the fast path with the reference loops byte by byte on a part of the arena and holds the error of the
  //! whole against the codec's bound. Throws errc::mismatch that says what differs.
  void check(function which);

  [[nodiscard]] codec const& method() const noexcept { return method_; }

 private:
  void check_bound();

  arena* data_;
  codec method_;
  std::vector<segment> whole_;
  std::vector<buffer> payloads_;  //!< those that are decoded and reduced
  std::vector<std::span<std::byte const>> payload_bytes_;
  buffer encoded_;  //!< what encode functions write
};

}  // namespace gradwire::bench
