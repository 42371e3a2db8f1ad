#include "program/fidelity/fidelity.hpp"

#include <cmath>
#include <limits>
#include <vector>

#include <gtest/gtest.h>

#include <gradwire/error.hpp>

#include "tests/support/arrays.hpp"

namespace gradwire::program::fidelity {
namespace {

constexpr double pi = 3.14159265358979323846;
std::size_t const count = std::size_t{1} << 16;
std::uint32_t const seed = 20261130;

fidelity_result of(char const* text, fidelity_options options = {.repeats = 2}) {
  static std::vector<float> const x = test::gaussian(count, seed);
  return measure_fidelity(spec::parse(text), x, options);
}

TEST(Fidelity, OfOneBitOnGaussianNumbersIsThatOfTheory) {
  // ‖x‖₁/√(d·‖x‖₂²) = √(2/π) for Gaussian x: 1 − 2/π of the power stays behind, the cosine is √(2/π). The estimate over
  // 65,536 numbers has a standard error near 0.002.
  auto const one = of("onebit(block=16384)");
  EXPECT_NEAR(one.nmse, 1 - 2 / pi, 0.01);
  EXPECT_NEAR(one.cosine.value(), std::sqrt(2 / pi), 0.01);
  EXPECT_NEAR(one.bits_per_element(), 1 + 32.0 / 16384, 1e-12);
}

TEST(Fidelity, OfBf16IsWithinItsRounding) {
  auto const one = of("bf16");
  EXPECT_LE(one.nmse, 0x1p-16);  // relative error of each number at most 2^-8
  EXPECT_GT(one.nmse, 0x1p-22);
  EXPECT_EQ(one.bytes, 2 * count);
  EXPECT_NEAR(one.cosine.value(), 1, 1e-4);
}

TEST(Fidelity, OfNoneIsExact) {
  auto const one = of("none");
  EXPECT_EQ(one.nmse, 0);
  EXPECT_EQ(one.max_abs_error, 0);
  EXPECT_EQ(one.bias, 0);
  EXPECT_EQ(one.bits_per_element(), 32);
}

TEST(Fidelity, OfTopKIsTheTailOfTheGaussian) {
  // The largest 1 % have |x| > t = 2.5758 and carry 2·(t·φ(t) + Q(t)) = 2·2.5758·0.014460 + 0.01 = 0.0845 of the power.
  EXPECT_NEAR(of("topk(ratio=0.01)").nmse, 1 - 0.0845, 0.005);
}

TEST(Fidelity, TellsBiasedFromUnbiasedMethods) {
  fidelity_options const options{.repeats = 16};
  auto const nearest = of("quant(bits=4)", options);
  EXPECT_NEAR(nearest.element_bias, std::sqrt(nearest.nmse), 1e-6);  // every repeat is the same
  auto const stochastic = of("quant(bits=4,round=stochastic)", options);
  // What is left is the noise of estimating the noise: relative to nmse about √(2/(n·R))·…, far below a tenth.
  EXPECT_LT(stochastic.element_bias, 0.1 * std::sqrt(stochastic.nmse));
  EXPECT_NEAR(stochastic.bias, 0, 5 * std::sqrt(stochastic.nmse / (16.0 * static_cast<double>(count))));
}

TEST(Fidelity, HasTheBiasOfAShiftedArray) {
  // All 3 but one 1 in a block of 32: onebit sends the mean magnitude 94/32 = 2.9375 for all.
  std::vector<float> x(32, 3);
  x[5] = 1;
  auto const one = measure_fidelity(spec::parse("onebit(block=32)"), x, {.repeats = 3});
  double const norm2 = 31 * 9 + 1;
  EXPECT_NEAR(one.nmse, (31 * 0.0625 * 0.0625 + 1.9375 * 1.9375) / norm2, 1e-9);
  EXPECT_NEAR(one.bias, 0, 1e-7);  // the mean of |x| is kept
  EXPECT_NEAR(one.max_abs_error, 1.9375, 1e-6);
}

// ‖residual‖ / (steps·‖x‖) of the scaled sign with error feedback, blocks of 1,024, worked out slowly.
double missing_of_onebit(std::vector<float> const& x, std::size_t steps) {
  std::vector<double> residual(x.size());
  for (std::size_t step = 0; step < steps; ++step) {
    for (std::size_t first = 0; first < x.size(); first += 1024) {
      double scale = 0;
      for (std::size_t i = first; i < first + 1024; ++i) scale += std::abs(x[i] + residual[i]) / 1024;
      for (std::size_t i = first; i < first + 1024; ++i) {
        double const corrected = x[i] + residual[i];
        residual[i] = corrected - (corrected < 0 ? -scale : scale);
      }
    }
  }
  double missing = 0;
  double all = 0;
  for (std::size_t i = 0; i < x.size(); ++i) {
    missing += residual[i] * residual[i];
    all += static_cast<double>(x[i]) * static_cast<double>(x[i]);
  }
  return std::sqrt(missing / all) / static_cast<double>(steps);
}

TEST(Fidelity, OfTheSumIsTheLastResidualUnderErrorFeedback) {
  // Σ sent + residual = Σ x; without feedback the sum keeps the error of one step.
  fidelity_options const options{.repeats = 1, .steps = 64};
  double const expected = missing_of_onebit(test::gaussian(count, seed), options.steps);
  EXPECT_NEAR(of("onebit+ef", options).sum_error.value(), expected, 0.02 * expected);  // f32 against f64
  EXPECT_NEAR(of("onebit", options).sum_error.value(), std::sqrt(1 - 2 / pi), 0.01);
  EXPECT_FALSE(of("onebit").sum_error.has_value());
}

TEST(Fidelity, RefusesArraysWithoutAnAnswer) {
  spec const method = spec::parse("onebit");
  EXPECT_THROW(static_cast<void>(measure_fidelity(method, {}, {})), error);
  EXPECT_THROW(static_cast<void>(measure_fidelity(method, std::vector<float>(5), {})), error);
  std::vector<float> x(5, 1);
  x[2] = std::numeric_limits<float>::quiet_NaN();
  try {
    static_cast<void>(measure_fidelity(method, x, {}));
    FAIL() << "accepted";
  } catch (error const& failure) {
    EXPECT_NE(std::string{failure.what()}.find("1 of 5"), std::string::npos) << failure.what();
  }
}

TEST(Fidelity, RecordsWhatTheContractNames) {
  auto const line = to_record(of("onebit+ef", {.repeats = 1, .steps = 2}), "grad.npy", {.repeats = 1, .steps = 2});
  for (char const* key : {"event", "input", "spec", "bytes", "bits_per_element", "nmse", "bias", "cosine",
                          "max_abs_error", "steps", "sum_error"}) {
    EXPECT_TRUE(line.contains(key)) << key;
  }
}

}  // namespace
}  // namespace gradwire::program::fidelity
