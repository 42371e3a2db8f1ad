#include "tests/reductions/serial_model.hpp"

#include "core/random.hpp"

namespace gradwire::test {
namespace {

float rounded(float value, dtype type) {
  switch (type) {
    case dtype::f32: return value;
    case dtype::f16: return to_float(to_f16(value));
    case dtype::bf16: break;
  }
  return to_float(to_bf16(value));
}

}  // namespace

serial_model::serial_model(spec const& method, std::string_view how, std::vector<segment> segments, dtype type,
                           std::size_t elements, std::size_t ranks)
    : method_{method},
      how_{how},
      segments_{std::move(segments)},
      type_{type},
      workers_(ranks, std::vector<float>(elements)),
      owner_(elements) {
  method_.codec = codec{method.codec.entry(), method.codec.params(), implementation::reference};
}

// scale·D(Q(gradient)), with this rank's residual and random numbers.
std::vector<float> serial_model::worker_round_trip(std::size_t rank, std::vector<float> const& gradient, random_key key,
                                                   float scale) {
  std::vector<std::byte> payload(method_.codec.encoded_bytes(segments_));
  random_key const own = with_stage(key, rank + 1);
  if (method_.error_feedback) {
    method_.codec.encode_with_feedback({}, {gradient.data()}, workers_[rank].data(), segments_, own, payload);
  } else {
    method_.codec.encode({}, {gradient.data()}, segments_, own, payload);
  }
  std::vector<float> decoded(gradient.size());
  method_.codec.decode({}, payload, segments_, {decoded.data()}, scale);
  return decoded;
}

// Plain arithmetic in double: the inputs of dense cases are chosen so that every sum is exact in every order. Only the
// last factor is not a power of two, and is applied in f32.
std::vector<float> serial_model::dense(std::vector<std::vector<float>> const& gradients) const {
  std::size_t power = 1;
  while (power < gradients.size()) power *= 2;
  bool const narrow = *method_.codec.traits().sums_on_wire != dtype::f32;
  double const before = narrow ? 1.0 / static_cast<double>(power) : 1.0;
  float const after = (narrow ? static_cast<float>(power) : 1.0F) / static_cast<float>(gradients.size());
  std::vector<float> result(owner_.size());
  for (segment const& each : segments_) {
    for (std::size_t i = each.offset; i < each.offset + each.count; ++i) {
      double sum = 0;
      for (auto const& of_rank : gradients) sum += before * static_cast<double>(of_rank[i]);
      result[i] = rounded(after * static_cast<float>(sum), type_);
    }
  }
  return result;
}

std::vector<float> serial_model::step(std::vector<std::vector<float>> const& gradients, random_key key) {
  if (how_ == "dense") return dense(gradients);
  float const share = 1.0F / static_cast<float>(gradients.size());
  bool const once = how_ == "one_shot";
  std::vector<float> sum;
  for (std::size_t rank = 0; rank < gradients.size(); ++rank) {
    auto const decoded = worker_round_trip(rank, gradients[rank], key, once ? share : 1.0F);
    if (sum.empty()) {
      sum = decoded;
    } else {
      for (std::size_t i = 0; i < sum.size(); ++i) sum[i] += decoded[i];
    }
  }
  if (!once) {
    for (float& each : sum) each *= share;
    std::vector<std::byte> payload(method_.codec.encoded_bytes(segments_));
    random_key const owner = with_stage(key, 0);
    if (method_.error_feedback) {
      // The owner residual lies here where the gradient does.
      std::vector<segment> placed = segments_;
      for (segment& each : placed) each.residual_offset = each.offset;
      method_.codec.encode_with_feedback({}, {sum.data()}, owner_.data(), placed, owner, payload);
    } else {
      method_.codec.encode({}, {sum.data()}, segments_, owner, payload);
    }
    method_.codec.decode({}, payload, segments_, {sum.data()}, 1.0F);
  }
  std::vector<float> result(sum.size());
  for (segment const& each : segments_) {
    for (std::size_t i = each.offset; i < each.offset + each.count; ++i) result[i] = rounded(sum[i], type_);
  }
  return result;
}

}  // namespace gradwire::test
