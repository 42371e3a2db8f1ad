#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <optional>
#include <span>
#include <string>
#include <string_view>

#include <gradwire/dtype.hpp>
#include <gradwire/exec.hpp>

namespace gradwire {

// ---- What a codec works on
// -------------------------------------------------------------------------------------------

//! A run of elements of one tensor inside a bucket. Blocks, thresholds, k and random numbers start afresh in each
//! segment.
struct segment {
  std::size_t offset = 0;           //!< first element, in the gradient buffer
  std::size_t residual_offset = 0;  //!< first element, in the residual buffer
  std::size_t count = 0;            //!< elements; 0 is allowed
  std::size_t first = 0;            //!< index within the tensor of the first element: a multiple of the codec's granule
  std::uint32_t tensor_id = 0;      //!< keys the random numbers; the same on all ranks
};

//! Keys the counter-based random numbers together with a segment's tensor_id and the element's index in its tensor, so
//! that neither thread layout nor bucket layout nor rank count changes what is drawn.
struct random_key {
  std::uint64_t seed = 0;
  std::uint64_t step = 0;
};

// ---- What a codec is
// -------------------------------------------------------------------------------------------------

//! Facts that reductions and tests branch on; they may depend on the parameters.
struct codec_traits {
  bool fixed_size = true;    //!< payload bytes depend on the element counts alone
  bool unbiased = false;     //!< E[D(Q(x))] = x
  bool contractive = false;  //!< ‖x − D(Q(x))‖² ≤ (1 − δ)‖x‖², δ > 0, for every finite x
  bool bit_exact = true;     //!< CPU and CUDA give the same bytes
  bool needs_shape = false;  //!< works on matrices
  bool elementwise = false;  //!< a non-finite element spoils only itself (otherwise its block or segment)
  //! Set when payloads may be summed by the transport as numbers of this type (n elements each, no header).
  std::optional<dtype> sums_on_wire{};
  //! For unbiased codecs: E‖D(Q(x)) − x‖² ≤ omega·‖x‖²; infinite when there is no such bound.
  double omega = 0;
};

enum class key_kind : std::uint8_t { integer, real, choice };

//! One key that a method takes in a spec, e.g. `block` in `onebit(block=1024)`.
struct codec_key {
  std::string_view name;
  key_kind kind = key_kind::integer;
  double preset = std::numeric_limits<double>::quiet_NaN();  //!< value when not given; NaN: stays unset
  double min = 0;                                            //!< inclusive
  double max = 0;                                            //!< inclusive
  std::span<std::string_view const> choices{};               //!< for key_kind::choice; the value is an index into it
  std::string_view help;
};

//! Values of a codec's keys, in the order of codec_entry::keys. Range-checked when parsed.
struct param_values {
  static constexpr std::size_t capacity = 8;
  std::array<double, capacity> values{};

  [[nodiscard]] bool given(std::size_t key) const noexcept { return values[key] == values[key]; }
  [[nodiscard]] double real(std::size_t key) const noexcept { return values[key]; }
  [[nodiscard]] std::size_t integer(std::size_t key) const noexcept { return static_cast<std::size_t>(values[key]); }
};

//! One implementation of a codec. Segments are processed in order and their payloads lie back to back, each
//! codec_entry::encoded_bytes long, so `payload` holds the sum of those. CPU functions run on the calling thread;
//! CUDA functions enqueue on exec.stream and return. No pointer needs more alignment than its element type has;
//! payloads need none. Gradient, residual and payload must not overlap.
//!
//! Non-finite policy: a NaN or Inf spoils its block (its element, with traits.elementwise; its segment where the
//! granule is the segment). A spoiled block decodes to NaN (elementwise codecs: to a NaN or Inf) and leaves its
//! residual as it was.
struct codec_functions {
  //! payload = Q(in).
  using encode_fn = void (*)(exec const&, param_values const&, const_elements in, std::span<segment const>, random_key,
                             std::byte* payload);
  //! c = grad + residual (in f32); payload = Q(c); residual = c − D(payload). `grad` is read only.
  using encode_with_feedback_fn = void (*)(exec const&, param_values const&, const_elements grad, float* residual,
                                           std::span<segment const>, random_key, std::byte* payload);
  //! decode: out = scale·D(payload), rounded to out.type. decode_add: out = out + scale·D(payload) in f32, rounded
  //! once. Reads nothing past the payload; throws errc::corrupt_payload where bytes cannot have come from encode. On
  //! CUDA the damaged block (its segment where the granule is the segment) becomes NaN, and the error is thrown by
  //! synchronize() of the stream or by a wait of the host for an event recorded on it.
  using decode_fn = void (*)(exec const&, param_values const&, std::byte const* payload, std::span<segment const>,
                             elements out, float scale);
  //! c = scale·(D(payloads[0]) + D(payloads[1]) + …) + residual, summed in f32 in that order; payload = Q(c);
  //! residual = c − D(payload). `residual` may be null: no feedback.
  using reduce_encode_fn = void (*)(exec const&, param_values const&, std::span<std::byte const* const> payloads,
                                    float scale, float* residual, std::span<segment const>, random_key,
                                    std::byte* payload);

  encode_fn encode = nullptr;
  encode_with_feedback_fn encode_with_feedback = nullptr;  //!< null: the generic one over encode and decode
  decode_fn decode = nullptr;
  decode_fn decode_add = nullptr;            //!< null: the generic one over decode
  reduce_encode_fn reduce_encode = nullptr;  //!< null: the generic one over decode_add and encode
};

//! A codec as data. Everything but `cuda` and `check` is set.
struct codec_entry {
  std::string_view name;     //!< as in specs: lower-case letters and digits
  std::uint8_t wire_id = 0;  //!< in frames; unique, never reused (docs/wire-format.md). 128 and up: outside the tree
  std::uint8_t version = 1;  //!< of the payload layout
  std::string_view summary;  //!< one line for `gradwire codecs`
  std::span<codec_key const> keys{};
  //! Checks what single ranges cannot say; throws errc::invalid_argument.
  void (*check)(param_values const&) = nullptr;
  codec_traits (*traits)(param_values const&) = nullptr;
  //! Elements at whose multiples a segment's payload may be cut: encoding the parts gives the same bytes as encoding
  //! the whole. 0: only whole segments.
  std::size_t (*granule)(param_values const&) = nullptr;
  //! Payload bytes of one segment of `count` elements; the most it can take when traits.fixed_size is false. A multiple
  //! of 4, so that payloads stay word-aligned in a bucket.
  std::size_t (*encoded_bytes)(param_values const&, std::size_t count) = nullptr;
  //! Upper bound of ‖x − D(Q(x))‖² for this x, one whole segment of finite numbers, rounding of the arithmetic aside.
  double (*error_bound)(param_values const&, std::span<float const> x) = nullptr;
  codec_functions reference;              //!< plain loops, kept for ever: the definition of the bytes
  codec_functions cpu;                    //!< fast paths; a null one falls back to the reference
  codec_functions const* cuda = nullptr;  //!< null in a build without CUDA
};

// ---- Registry
// --------------------------------------------------------------------------------------------------------

//! All codecs: those of the tree (generated from compressors/*/codec.cpp, by name) and then those registered.
[[nodiscard]] std::span<codec_entry const* const> codecs();
//! Throws errc::invalid_argument that lists the known names.
[[nodiscard]] codec_entry const& find_codec(std::string_view name);
[[nodiscard]] codec_entry const& find_codec(std::uint8_t wire_id);
//! Adds a codec built outside the tree; `entry` must outlive the process's use of it. Throws errc::invalid_argument
//! when a field is missing, or a name or wire id is taken. Thread-safe.
void register_codec(codec_entry const& entry);

// ---- A codec with its parameters
// -------------------------------------------------------------------------------------

enum class implementation : std::uint8_t { fast, reference };

//! A method and its parameter values: a small value type. The work functions run on exec.kind: on CPU they are enqueued
//! on exec.stream (the null stream runs them inline), so buffers and segments must live until the stream is past them.
class codec {
 public:
  explicit codec(codec_entry const& entry, param_values const& params, implementation impl = implementation::fast);
  //! Parses `name` or `name(key=value, …)`. Throws errc::invalid_argument that lists what is allowed.
  [[nodiscard]] static codec parse(std::string_view text, implementation impl = implementation::fast);

  [[nodiscard]] codec_entry const& entry() const noexcept { return *entry_; }
  [[nodiscard]] param_values const& params() const noexcept { return params_; }
  //! The canonical text: every key that is set, in order, so that equal texts mean equal codecs.
  [[nodiscard]] std::string text() const;
  [[nodiscard]] codec_traits traits() const { return entry_->traits(params_); }
  [[nodiscard]] std::size_t granule() const { return entry_->granule(params_); }
  [[nodiscard]] std::size_t encoded_bytes(std::size_t count) const { return entry_->encoded_bytes(params_, count); }
  [[nodiscard]] std::size_t encoded_bytes(std::span<segment const> segments) const;

  // What they compute stands at codec_functions. `payload` must be encoded_bytes(segments) long: otherwise encoders
  // throw errc::invalid_argument and decoders errc::corrupt_payload. Segments that begin off the granule are refused
  // with errc::invalid_argument.
  void encode(exec const& on, const_elements in, std::span<segment const> segments, random_key key,
              std::span<std::byte> payload) const;
  void encode_with_feedback(exec const& on, const_elements grad, float* residual, std::span<segment const> segments,
                            random_key key, std::span<std::byte> payload) const;
  void decode(exec const& on, std::span<std::byte const> payload, std::span<segment const> segments, elements out,
              float scale = 1) const;
  void decode_add(exec const& on, std::span<std::byte const> payload, std::span<segment const> segments, elements out,
                  float scale = 1) const;
  //! `payloads` is copied; each is encoded_bytes(segments) long.
  void reduce_encode(exec const& on, std::span<std::byte const* const> payloads, float scale, float* residual,
                     std::span<segment const> segments, random_key key, std::span<std::byte> payload) const;

 private:
  codec_entry const* entry_;
  param_values params_;
  implementation impl_;
};

}  // namespace gradwire
