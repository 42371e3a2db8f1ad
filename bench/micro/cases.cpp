#include "bench/micro/cases.hpp"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <numbers>
#include <span>
#include <string>
#include <utility>

#include <gradwire/error.hpp>

#include "core/random.hpp"

namespace gradwire::bench {
namespace {

constexpr random_key key{.seed = 7, .step = 3};
constexpr float quarter = 0.25F;  // the mean of four
constexpr std::size_t row = 4096;

void store(elements to, std::size_t at, float value) {
  switch (to.type) {
    case dtype::f32: static_cast<float*>(to.data)[at] = value; return;
    case dtype::f16: static_cast<f16*>(to.data)[at] = to_f16(value); return;
    case dtype::bf16: static_cast<bf16*>(to.data)[at] = to_bf16(value); return;
  }
}

float uniform(std::uint32_t bits) { return (static_cast<float>(bits >> 8) + 0.5F) * 0x1p-24F; }

// Box and Muller (1958) over Philox words; `tensor` tells gradient and residual apart.
void fill_normal(elements to, std::size_t count, std::uint32_t tensor, float scale) {
  for (std::size_t i = 0; i < count; i += 4) {
    auto const words = random_block(key, tensor, i / 4);
    float const row_scale = scale * (1 + static_cast<float>(i / row % 7));
    for (std::size_t j = 0; j < 4; j += 2) {
      float const radius = row_scale * std::sqrt(-2 * std::log(uniform(words[j])));
      float const angle = 2 * std::numbers::pi_v<float> * uniform(words[j + 1]);
      if (i + j < count) store(to, i + j, radius * std::cos(angle));
      if (i + j + 1 < count) store(to, i + j + 1, radius * std::sin(angle));
    }
  }
}

// Everything that a function may write, to be compared between implementations.
struct outcome {
  std::vector<std::byte> payload;
  std::vector<float> residual;
  std::vector<std::byte> out;
};

outcome run_part(codec const& method, function which, arena const& data, std::size_t count) {
  segment const part{.count = count};
  std::span<segment const> const segments{&part, 1};
  const_elements const in{data.gradient.data(), data.type};
  outcome result;
  result.payload.resize(method.encoded_bytes(count));
  auto const residual = data.residual.as<float>().first(count);
  result.residual.assign(residual.begin(), residual.end());
  result.out.assign(data.gradient.data(), data.gradient.data() + count * size_of(data.type));
  elements const out{result.out.data(), data.type};
  // Both implementations decode what the reference encoded.
  codec const reference{method.entry(), method.params(), implementation::reference};
  std::vector<std::byte> encoded(result.payload.size());
  reference.encode({}, in, segments, key, encoded);
  std::vector<std::byte const*> const encoded_four(reduced_payloads, encoded.data());
  switch (which) {
    case function::encode: method.encode({}, in, segments, key, result.payload); break;
    case function::encode_with_feedback:
      method.encode_with_feedback({}, in, result.residual.data(), segments, key, result.payload);
      break;
    case function::decode: method.decode({}, encoded, segments, out, quarter); break;
    case function::decode_add: method.decode_add({}, encoded, segments, out, quarter); break;
    case function::reduce_encode:
      method.reduce_encode({}, encoded_four, quarter, result.residual.data(), segments, key, result.payload);
      break;
  }
  return result;
}

template <class T>
void expect_equal(std::vector<T> const& fast, std::vector<T> const& reference, std::string const& what) {
  // Bytes, so that NaNs are equal to themselves and zeros of two signs are not.
  auto const differ = std::ranges::mismatch(std::as_bytes(std::span{fast}), std::as_bytes(std::span{reference}));
  if (differ.in1 == std::as_bytes(std::span{fast}).end()) return;
  auto const at = static_cast<std::size_t>(differ.in1 - std::as_bytes(std::span{fast}).begin()) / sizeof(T);
  throw error{errc::mismatch, what + " of the fast path differs from the reference at " + std::to_string(at) +
                                  ": a timing of it would mean nothing; run the conformance suite on this codec"};
}

}  // namespace

std::string_view to_string(function which) noexcept {
  switch (which) {
    case function::encode: return "encode";
    case function::encode_with_feedback: return "encode_with_feedback";
    case function::decode: return "decode";
    case function::decode_add: return "decode_add";
    case function::reduce_encode: return "reduce_encode";
  }
  return "unknown";
}

function parse_function(std::string_view text) {
  for (function const which : all_functions) {
    if (text == to_string(which)) return which;
  }
  throw error{errc::invalid_argument, "unknown function '" + std::string{text} +
                                          "': use encode, encode_with_feedback, decode, decode_add or reduce_encode"};
}

arena::arena(std::size_t elements_wanted, dtype element_type)
    : count{elements_wanted},
      type{element_type},
      gradient{count * size_of(type)},
      residual{count * sizeof(float)},
      out{count * size_of(type)},
      scratch{count * sizeof(float)} {
  fill_normal({gradient.data(), type}, count, 0, 1e-3F);
  fill_normal({residual.data(), dtype::f32}, count, 1, 1e-3F);
  std::memset(out.data(), 0, out.size());
  std::memset(scratch.data(), 0, scratch.size());
}

subject::subject(arena& data, codec method) : data_{&data}, method_{method}, whole_{segment{.count = data.count}} {
  std::size_t const bytes = method_.encoded_bytes(data.count);
  encoded_ = buffer{bytes};
  std::memset(encoded_.data(), 0, bytes);
  std::size_t const width = size_of(data.type);
  for (std::size_t p = 0; p < reduced_payloads; ++p) {
    // Another gradient for each: the same one, turned by p quarters.
    std::size_t const turn = data.count / reduced_payloads * p * width;
    std::size_t const rest = data.gradient.size() - turn;
    std::memcpy(data.scratch.data(), data.gradient.data() + turn, rest);
    std::memcpy(data.scratch.data() + rest, data.gradient.data(), turn);
    buffer& payload = payloads_.emplace_back(bytes);
    method_.encode({}, {data.scratch.data(), data.type}, whole_, key, payload.bytes());
    payload_bytes_.emplace_back(std::as_const(payload).bytes());
  }
}

void subject::run(function which) {
  const_elements const in{data_->gradient.data(), data_->type};
  elements const out{data_->out.data(), data_->type};
  float* const residual = data_->residual.as<float>().data();
  switch (which) {
    case function::encode: method_.encode({}, in, whole_, key, encoded_.bytes()); return;
    case function::encode_with_feedback:
      method_.encode_with_feedback({}, in, residual, whole_, key, encoded_.bytes());
      return;
    case function::decode: method_.decode({}, payload_bytes_[0], whole_, out, quarter); return;
    case function::decode_add: method_.decode_add({}, payload_bytes_[0], whole_, out, quarter); return;
    case function::reduce_encode: {
      std::array<std::byte const*, reduced_payloads> parts{};
      for (std::size_t p = 0; p < reduced_payloads; ++p) parts[p] = payloads_[p].data();
      method_.reduce_encode({}, parts, quarter, residual, whole_, key, encoded_.bytes());
      return;
    }
  }
}

traffic subject::moves(function which) {
  std::span<std::byte const> const gradient = std::as_const(data_->gradient).bytes();
  std::span<std::byte> const residual = data_->scratch.bytes();
  std::span<std::byte> const out = residual.first(data_->out.size());
  std::span<std::span<std::byte const> const> const payloads{payload_bytes_};
  traffic what;
  switch (which) {
    case function::encode:
      what.read = gradient;
      what.write_payload = encoded_.bytes();
      break;
    case function::encode_with_feedback:
      what.read = gradient;
      what.update = residual;
      what.write_payload = encoded_.bytes();
      break;
    case function::decode:
      what.read_payloads = payloads.first(1);
      what.write = out;
      break;
    case function::decode_add:
      what.read_payloads = payloads.first(1);
      what.update = out;
      break;
    case function::reduce_encode:
      what.read_payloads = payloads;
      what.update = residual;
      what.write_payload = encoded_.bytes();
      break;
  }
  return what;
}

void subject::check(function which) {
  // Prime, so that the last block of every codec is a short one.
  std::size_t const count = std::min<std::size_t>(data_->count, 1048583);
  codec const reference{method_.entry(), method_.params(), implementation::reference};
  outcome const fast = run_part(method_, which, *data_, count);
  outcome const expected = run_part(reference, which, *data_, count);
  std::string const what = method_.text() + " " + std::string{to_string(which)} + ": ";
  expect_equal(fast.payload, expected.payload, what + "payload");
  expect_equal(fast.residual, expected.residual, what + "residual");
  expect_equal(fast.out, expected.out, what + "output");
  if (which == function::encode && data_->type == dtype::f32) check_bound();
}

void subject::check_bound() {
  auto const x = std::as_const(data_->gradient).as<float>();
  method_.decode({}, payload_bytes_[0], whole_, {data_->out.data(), dtype::f32});
  auto const decoded = std::as_const(data_->out).as<float>();
  double error_sum = 0;
  double norm = 0;
  for (std::size_t i = 0; i < x.size(); ++i) {
    double const difference = static_cast<double>(x[i]) - static_cast<double>(decoded[i]);
    error_sum += difference * difference;
    norm += static_cast<double>(x[i]) * static_cast<double>(x[i]);
  }
  double const bound = method_.entry().error_bound(method_.params(), x);
  // Rounding of the codec's own f32 arithmetic lies outside the bound: 2^-20 of the norm is far above it.
  if (!(error_sum <= bound * (1 + 0x1p-20) + norm * 0x1p-20)) {
    throw error{errc::mismatch, method_.text() + ": the squared error " + std::to_string(error_sum) +
                                    " is above the codec's bound " + std::to_string(bound)};
  }
}

}  // namespace gradwire::bench
