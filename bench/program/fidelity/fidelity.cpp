#include "program/fidelity/fidelity.hpp"

#include <algorithm>
#include <cmath>
#include <vector>

#include <fmt/format.h>

#include <gradwire/error.hpp>

#include "program/common/interrupt.hpp"

namespace gradwire::program::fidelity {
namespace {

// Σ x², after making sure that figures relative to it exist.
double checked_norm2(std::span<float const> x) {
  double norm2 = 0;
  std::size_t odd = 0;
  for (float const value : x) {
    if (!std::isfinite(value)) ++odd;
    norm2 += static_cast<double>(value) * static_cast<double>(value);
  }
  if (odd != 0) {
    throw error{errc::invalid_argument, fmt::format("{} of {} numbers are NaN or infinite: no error can be told for "
                                                    "them; take a dump of a step without them",
                                                    odd, x.size())};
  }
  if (norm2 == 0) {
    throw error{errc::invalid_argument, x.empty() ? "no numbers in it: take a dump with some"
                                                  : "all numbers are 0: errors relative to them are undefined"};
  }
  return norm2;
}

double sum_error(spec const& method, std::span<float const> x, double norm2, fidelity_options const& options) {
  segment const whole{.count = x.size()};
  std::vector<float> residual(method.error_feedback ? x.size() : 0);
  std::vector<float> decoded(x.size());
  std::vector<double> sent(x.size());
  std::vector<std::byte> payload(method.codec.encoded_bytes(x.size()));
  for (std::size_t step = 0; step < options.steps; ++step) {
    throw_if_interrupted();
    random_key const key{options.seed, step};
    const_elements const in{x.data(), dtype::f32};
    if (method.error_feedback) {
      method.codec.encode_with_feedback({}, in, residual.data(), {&whole, 1}, key, payload);
    } else {
      method.codec.encode({}, in, {&whole, 1}, key, payload);
    }
    method.codec.decode({}, payload, {&whole, 1}, {decoded.data(), dtype::f32});
    for (std::size_t i = 0; i < x.size(); ++i) sent[i] += static_cast<double>(decoded[i]);
  }
  auto const steps = static_cast<double>(options.steps);
  double off2 = 0;
  for (std::size_t i = 0; i < x.size(); ++i) {
    double const off = sent[i] - steps * static_cast<double>(x[i]);
    off2 += off * off;
  }
  return std::sqrt(off2 / norm2) / steps;
}

}  // namespace

double fidelity_result::bits_per_element() const noexcept {
  return 8 * static_cast<double>(bytes) / static_cast<double>(count);
}

fidelity_result measure_fidelity(spec const& method, std::span<float const> x, fidelity_options const& options) {
  double const norm2 = checked_norm2(x);
  expects(options.repeats >= 1, "fidelity: at least one repeat");
  segment const whole{.count = x.size()};
  std::vector<std::byte> payload(method.codec.encoded_bytes(x.size()));
  std::vector<float> decoded(x.size());
  std::vector<double> off_sum(x.size());  // Σ over repeats of D − x
  double off2 = 0;
  double cosines = 0;
  bool cosine = true;
  fidelity_result result;
  result.spec = method.text();
  result.count = x.size();
  result.bytes = payload.size();
  for (std::size_t repeat = 0; repeat < options.repeats; ++repeat) {
    throw_if_interrupted();
    method.codec.encode({}, {x.data(), dtype::f32}, {&whole, 1}, {options.seed, repeat}, payload);
    method.codec.decode({}, payload, {&whole, 1}, {decoded.data(), dtype::f32});
    double dot = 0;
    double decoded2 = 0;
    for (std::size_t i = 0; i < x.size(); ++i) {
      double const from = x[i];
      double const to = decoded[i];
      double const off = to - from;
      off_sum[i] += off;
      off2 += off * off;
      dot += from * to;
      decoded2 += to * to;
      result.max_abs_error = std::max(result.max_abs_error, std::abs(off));
    }
    cosine = cosine && decoded2 > 0;
    if (cosine) cosines += dot / std::sqrt(norm2 * decoded2);
  }
  auto const repeats = static_cast<double>(options.repeats);
  auto const n = static_cast<double>(x.size());
  double mean = 0;
  double mean2 = 0;  // ‖mean over repeats of D − x‖²
  for (double const sum : off_sum) {
    mean += sum / repeats / n;
    mean2 += (sum / repeats) * (sum / repeats);
  }
  result.nmse = off2 / repeats / norm2;
  result.bias = mean / std::sqrt(norm2 / n);
  // E‖mean‖² = ‖bias‖² + variance/repeats; the variance is estimated from the same repeats.
  double const noise2 = options.repeats < 2 ? 0 : (off2 / repeats - mean2) / (repeats - 1);
  result.element_bias = std::sqrt(std::max(mean2 - noise2, 0.0) / norm2);
  if (cosine) result.cosine = cosines / repeats;
  if (options.steps != 0) result.sum_error = sum_error(method, x, norm2, options);
  return result;
}

record to_record(fidelity_result const& result, std::string const& input, fidelity_options const& options) {
  record line{{"event", "fidelity"},
              {"input", input},
              {"spec", result.spec},
              {"count", result.count},
              {"bytes", result.bytes},
              {"bits_per_element", result.bits_per_element()},
              {"nmse", result.nmse},
              {"bias", result.bias},
              {"element_bias", result.element_bias},
              {"cosine", optional_record(result.cosine)},
              {"max_abs_error", result.max_abs_error},
              {"repeats", options.repeats}};
  if (result.sum_error) {
    line["steps"] = options.steps;
    line["sum_error"] = *result.sum_error;
  }
  return line;
}

}  // namespace gradwire::program::fidelity
