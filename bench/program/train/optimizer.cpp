#include "program/train/optimizer.hpp"

#include <cmath>

#include <fmt/format.h>

#include "program/common/context.hpp"

namespace gradwire::program {
namespace {

std::vector<std::vector<float>> zeros_like(std::span<weight const> weights) {
  std::vector<std::vector<float>> result;
  for (weight const& one : weights) result.emplace_back(one.values.size(), 0.0f);
  return result;
}

std::vector<std::vector<float>*> pointers(std::vector<std::vector<float>>& buffers) {
  std::vector<std::vector<float>*> result;
  for (auto& buffer : buffers) result.push_back(&buffer);
  return result;
}

// Not std::pow: every machine of a run has to get the same bits.
double power(double base, std::size_t exponent) {
  double result = 1;
  for (; exponent > 0; exponent /= 2, base *= base) result *= exponent % 2 == 1 ? base : 1;
  return result;
}

class sgd final : public optimizer {
 public:
  explicit sgd(double lr) : lr_{static_cast<float>(lr)} {}

  void step(std::span<weight> weights, std::span<float const* const> gradients) override {
    for (std::size_t i = 0; i < weights.size(); ++i) {
      std::vector<float>& w = weights[i].values;
      for (std::size_t j = 0; j < w.size(); ++j) w[j] -= lr_ * gradients[i][j];
    }
    ++steps;
  }
  [[nodiscard]] std::vector<std::vector<float>*> state() override { return {}; }

 private:
  float lr_;
};

class momentum final : public optimizer {
 public:
  momentum(double lr, std::span<weight const> weights) : lr_{static_cast<float>(lr)}, velocity_{zeros_like(weights)} {}

  void step(std::span<weight> weights, std::span<float const* const> gradients) override {
    for (std::size_t i = 0; i < weights.size(); ++i) {
      std::vector<float>& w = weights[i].values;
      std::vector<float>& v = velocity_[i];
      for (std::size_t j = 0; j < w.size(); ++j) {
        v[j] = 0.9f * v[j] + gradients[i][j];
        w[j] -= lr_ * v[j];
      }
    }
    ++steps;
  }
  [[nodiscard]] std::vector<std::vector<float>*> state() override { return pointers(velocity_); }

 private:
  float lr_;
  std::vector<std::vector<float>> velocity_;
};

class adam final : public optimizer {
 public:
  adam(double lr, std::span<weight const> weights) : lr_{lr}, m_{zeros_like(weights)}, v_{zeros_like(weights)} {}

  void step(std::span<weight> weights, std::span<float const* const> gradients) override {
    ++steps;
    auto const m_scale = static_cast<float>(lr_ / (1 - power(0.9, steps)));
    auto const v_scale = static_cast<float>(1 / (1 - power(0.999, steps)));
    for (std::size_t i = 0; i < weights.size(); ++i) {
      std::vector<float>& w = weights[i].values;
      for (std::size_t j = 0; j < w.size(); ++j) {
        float const g = gradients[i][j];
        float& m = m_[i][j];
        float& v = v_[i][j];
        m = 0.9f * m + 0.1f * g;
        v = 0.999f * v + 0.001f * g * g;
        w[j] -= m_scale * m / (std::sqrt(v * v_scale) + 1e-8f);
      }
    }
  }
  [[nodiscard]] std::vector<std::vector<float>*> state() override {
    auto result = pointers(m_);
    for (auto* const buffer : pointers(v_)) result.push_back(buffer);
    return result;
  }

 private:
  double lr_;
  std::vector<std::vector<float>> m_;
  std::vector<std::vector<float>> v_;
};

}  // namespace

std::unique_ptr<optimizer> make_optimizer(std::string_view name, double lr, std::span<weight const> weights) {
  if (name == "sgd") return std::make_unique<sgd>(lr);
  if (name == "momentum") return std::make_unique<momentum>(lr, weights);
  if (name == "adam") return std::make_unique<adam>(lr, weights);
  throw program_error{fmt::format("--optimizer '{}' is not known: use sgd, momentum or adam", name)};
}

}  // namespace gradwire::program
