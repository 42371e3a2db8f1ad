#include "compressors/feedback/feedback.hpp"

#include <algorithm>

#include <gradwire/buffer.hpp>

#include "compressors/feedback/format.hpp"
#include "compressors/gradient.hpp"

namespace gradwire::feedback {
namespace {

// Two scratch arrays of this many floats, the gradient and the residual stay inside a 256 KiB second-level cache.
constexpr std::size_t piece_elements = 8192;

// A part of a segment that can be encoded on its own: `at` elements in, its payload `payload` bytes into the whole.
struct piece {
  segment const* of;
  std::size_t at;
  std::size_t count;
  std::size_t payload;

  //! The piece as a segment of a scratch buffer that holds nothing else.
  [[nodiscard]] segment alone() const { return {0, 0, count, of->first + at, of->tensor_id}; }
  //! The piece as a segment of the buffers that `of` names.
  [[nodiscard]] segment in_place() const {
    return {of->offset + at, of->residual_offset + at, count, of->first + at, of->tensor_id};
  }
};

std::size_t piece_size(std::size_t granule, std::size_t count) {
  if (granule == 0) return count;
  return (piece_elements + granule - 1) / granule * granule;
}

std::size_t largest_piece(basis const& basis, param_values const& params, std::span<segment const> segments) {
  std::size_t const granule = basis.entry->granule(params);
  std::size_t most = 0;
  for (segment const& segment : segments) {
    most = std::max(most, std::min(segment.count, piece_size(granule, segment.count)));
  }
  return most;
}

template <class F>
void for_each_piece(basis const& basis, param_values const& params, std::span<segment const> segments, F&& work) {
  std::size_t const granule = basis.entry->granule(params);
  std::size_t payload = 0;
  for (segment const& segment : segments) {
    std::size_t const size = piece_size(granule, segment.count);
    for (std::size_t at = 0; at < segment.count; at += size) {
      std::size_t const count = std::min(size, segment.count - at);
      work(piece{&segment, at, count, payload});
      payload += basis.entry->encoded_bytes(params, count);
    }
    // Codecs may give empty segments a payload (a header); they have no piece, so they are encoded as they stand.
    if (segment.count == 0) {
      std::size_t const bytes = basis.entry->encoded_bytes(params, 0);
      if (bytes != 0) work(piece{&segment, 0, 0, payload});
      payload += bytes;
    }
  }
}

void keep_loss(float const* corrected, float const* decoded, float* kept, std::size_t count) {
  for (std::size_t i = 0; i < count; ++i) kept[i] = residual(corrected[i], decoded[i], kept[i]);
}

void add_into(basis const& basis, exec const& on, param_values const& params, std::byte const* payload,
              segment const& alone, float* sum, float* scratch) {
  std::span const one{&alone, 1};
  if (basis.decode_add != nullptr) {
    basis.decode_add(on, params, payload, one, {sum, dtype::f32}, 1.0f);
    return;
  }
  basis.decode(on, params, payload, one, {scratch, dtype::f32}, 1.0f);
  for (std::size_t i = 0; i < alone.count; ++i) sum[i] += scratch[i];
}

}  // namespace

void encode_with_feedback(basis const& basis, exec const& on, param_values const& params, const_elements grad,
                          float* residual, std::span<segment const> segments, random_key key, std::byte* payload) {
  std::size_t const most = largest_piece(basis, params, segments);
  buffer scratch{2 * most * sizeof(float), on.memory};
  float* const corrected = scratch.as<float>().data();
  float* const decoded = corrected + most;
  for_each_piece(basis, params, segments, [&](piece const& piece) {
    segment const alone = piece.alone();
    segment const there = piece.in_place();
    float* const kept = residual + there.residual_offset;
    with_type(grad, [&](auto const* values) {
      for (std::size_t i = 0; i < piece.count; ++i) corrected[i] = to_float(values[there.offset + i]) + kept[i];
    });
    std::byte* const bytes = payload + piece.payload;
    basis.encode(on, params, {corrected, dtype::f32}, {&alone, 1}, key, bytes);
    basis.decode(on, params, bytes, {&alone, 1}, {decoded, dtype::f32}, 1.0f);
    keep_loss(corrected, decoded, kept, piece.count);
  });
}

void decode_add(basis const& basis, exec const& on, param_values const& params, std::byte const* payload,
                std::span<segment const> segments, elements out, float scale) {
  std::size_t const most = largest_piece(basis, params, segments);
  buffer scratch{most * sizeof(float), on.memory};
  float* const decoded = scratch.as<float>().data();
  for_each_piece(basis, params, segments, [&](piece const& piece) {
    segment const alone = piece.alone();
    segment const there = piece.in_place();
    basis.decode(on, params, payload + piece.payload, {&alone, 1}, {decoded, dtype::f32}, 1.0f);
    with_type(out, [&]<class T>(T* values) {
      for (std::size_t i = 0; i < piece.count; ++i) {
        T& value = values[there.offset + i];
        value = from_float<T>(add(to_float(value), scale, decoded[i]));
      }
    });
  });
}

void reduce_encode(basis const& basis, exec const& on, param_values const& params,
                   std::span<std::byte const* const> payloads, float scale, float* residual,
                   std::span<segment const> segments, random_key key, std::byte* payload) {
  std::size_t const most = largest_piece(basis, params, segments);
  buffer scratch{2 * most * sizeof(float), on.memory};
  float* const sum = scratch.as<float>().data();
  float* const decoded = sum + most;
  for_each_piece(basis, params, segments, [&](piece const& piece) {
    segment const alone = piece.alone();
    std::span const one{&alone, 1};
    basis.decode(on, params, payloads.front() + piece.payload, one, {sum, dtype::f32}, 1.0f);
    for (std::byte const* const source : payloads.subspan(1)) {
      add_into(basis, on, params, source + piece.payload, alone, sum, decoded);
    }
    std::byte* const bytes = payload + piece.payload;
    if (residual == nullptr) {
      for (std::size_t i = 0; i < piece.count; ++i) sum[i] = scale * sum[i];
      basis.encode(on, params, {sum, dtype::f32}, one, key, bytes);
      return;
    }
    float* const kept = residual + piece.in_place().residual_offset;
    for (std::size_t i = 0; i < piece.count; ++i) sum[i] = add(kept[i], scale, sum[i]);
    basis.encode(on, params, {sum, dtype::f32}, one, key, bytes);
    basis.decode(on, params, bytes, one, {decoded, dtype::f32}, 1.0f);
    keep_loss(sum, decoded, kept, piece.count);
  });
}

}  // namespace gradwire::feedback
