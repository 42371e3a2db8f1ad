#include <gradwire/codec.hpp>

#include <string>
#include <vector>

#include <gradwire/error.hpp>

#include "compressors/feedback/feedback.hpp"
#include "compressors/text.hpp"

namespace gradwire {
namespace {

template <class Fn>
Fn first_set(Fn fast, Fn reference, implementation impl) {
  return impl == implementation::fast && fast != nullptr ? fast : reference;
}

feedback::basis basis_of(codec_entry const& entry, implementation impl) {
  return {&entry, first_set(entry.cpu.encode, entry.reference.encode, impl),
          first_set(entry.cpu.decode, entry.reference.decode, impl),
          first_set(entry.cpu.decode_add, entry.reference.decode_add, impl)};
}

[[noreturn]] void no_cuda(codec_entry const& entry, char const* function) {
  throw error{errc::unsupported, join({entry.name, " has no CUDA ", function,
                                       " in this build: pass an exec of kind cpu, or build with CUDA"})};
}

// Segments are what reductions cut; a cut in the wrong place would give other bytes than the whole, on one rank only.
void check_segments(codec const& codec, std::span<segment const> segments) {
  std::size_t const granule = codec.granule();
  for (std::size_t i = 0; i < segments.size(); ++i) {
    std::size_t const first = segments[i].first;
    if (granule == 0 ? first == 0 : first % granule == 0) continue;
    std::string const mend =
        granule == 0 ? "this codec takes whole tensors only" : join({"cut at multiples of ", std::to_string(granule)});
    throw error{errc::invalid_argument, join({codec.text(), ": segment ", std::to_string(i), " begins at element ",
                                              std::to_string(first), " of its tensor: ", mend})};
  }
}

void check_payload(codec const& codec, std::span<segment const> segments, std::size_t bytes, errc code) {
  check_segments(codec, segments);
  std::size_t const need = codec.encoded_bytes(segments);
  if (bytes == need) return;
  throw error{code, join({codec.text(), ": the payload of ", std::to_string(segments.size()), " segment(s) takes ",
                          std::to_string(need), " bytes, not ", std::to_string(bytes),
                          ": size it with encoded_bytes(segments)"})};
}

}  // namespace

std::size_t codec::encoded_bytes(std::span<segment const> segments) const {
  std::size_t sum = 0;
  for (segment const& segment : segments) sum += encoded_bytes(segment.count);
  return sum;
}

void codec::encode(exec const& on, const_elements in, std::span<segment const> segments, random_key key,
                   std::span<std::byte> payload) const {
  check_payload(*this, segments, payload.size(), errc::invalid_argument);
  if (on.kind == device_kind::cuda) {
    if (entry_->cuda == nullptr || entry_->cuda->encode == nullptr) no_cuda(*entry_, "encode");
    return entry_->cuda->encode(on, params_, in, segments, key, payload.data());
  }
  enqueue(on.stream, [=, self = *this] {
    basis_of(*self.entry_, self.impl_).encode(on, self.params_, in, segments, key, payload.data());
  });
}

void codec::encode_with_feedback(exec const& on, const_elements grad, float* residual,
                                 std::span<segment const> segments, random_key key,
                                 std::span<std::byte> payload) const {
  check_payload(*this, segments, payload.size(), errc::invalid_argument);
  if (on.kind == device_kind::cuda) {
    if (entry_->cuda == nullptr || entry_->cuda->encode_with_feedback == nullptr) {
      no_cuda(*entry_, "encode_with_feedback");
    }
    return entry_->cuda->encode_with_feedback(on, params_, grad, residual, segments, key, payload.data());
  }
  enqueue(on.stream, [=, self = *this] {
    auto const fused =
        first_set(self.entry_->cpu.encode_with_feedback, self.entry_->reference.encode_with_feedback, self.impl_);
    if (fused != nullptr) return fused(on, self.params_, grad, residual, segments, key, payload.data());
    feedback::encode_with_feedback(basis_of(*self.entry_, self.impl_), on, self.params_, grad, residual, segments, key,
                                   payload.data());
  });
}

void codec::decode(exec const& on, std::span<std::byte const> payload, std::span<segment const> segments, elements out,
                   float scale) const {
  check_payload(*this, segments, payload.size(), errc::corrupt_payload);
  if (on.kind == device_kind::cuda) {
    if (entry_->cuda == nullptr || entry_->cuda->decode == nullptr) no_cuda(*entry_, "decode");
    return entry_->cuda->decode(on, params_, payload.data(), segments, out, scale);
  }
  enqueue(on.stream, [=, self = *this] {
    basis_of(*self.entry_, self.impl_).decode(on, self.params_, payload.data(), segments, out, scale);
  });
}

void codec::decode_add(exec const& on, std::span<std::byte const> payload, std::span<segment const> segments,
                       elements out, float scale) const {
  check_payload(*this, segments, payload.size(), errc::corrupt_payload);
  if (on.kind == device_kind::cuda) {
    if (entry_->cuda == nullptr || entry_->cuda->decode_add == nullptr) no_cuda(*entry_, "decode_add");
    return entry_->cuda->decode_add(on, params_, payload.data(), segments, out, scale);
  }
  enqueue(on.stream, [=, self = *this] {
    feedback::basis const basis = basis_of(*self.entry_, self.impl_);
    if (basis.decode_add != nullptr) {
      return basis.decode_add(on, self.params_, payload.data(), segments, out, scale);
    }
    feedback::decode_add(basis, on, self.params_, payload.data(), segments, out, scale);
  });
}

void codec::reduce_encode(exec const& on, std::span<std::byte const* const> payloads, float scale, float* residual,
                          std::span<segment const> segments, random_key key, std::span<std::byte> payload) const {
  expects(!payloads.empty(), "reduce_encode: no payloads: pass the payload of every rank, at least one");
  check_payload(*this, segments, payload.size(), errc::invalid_argument);
  if (on.kind == device_kind::cuda) {
    if (entry_->cuda == nullptr || entry_->cuda->reduce_encode == nullptr) no_cuda(*entry_, "reduce_encode");
    return entry_->cuda->reduce_encode(on, params_, payloads, scale, residual, segments, key, payload.data());
  }
  enqueue(on.stream, [=, self = *this, sources = std::vector(payloads.begin(), payloads.end())] {
    auto const fused = first_set(self.entry_->cpu.reduce_encode, self.entry_->reference.reduce_encode, self.impl_);
    if (fused != nullptr) {
      return fused(on, self.params_, sources, scale, residual, segments, key, payload.data());
    }
    feedback::reduce_encode(basis_of(*self.entry_, self.impl_), on, self.params_, sources, scale, residual, segments,
                            key, payload.data());
  });
}

}  // namespace gradwire
