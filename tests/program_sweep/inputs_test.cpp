#include "program/sweep/inputs.hpp"

#include <cmath>
#include <initializer_list>
#include <numeric>
#include <vector>

#include <gtest/gtest.h>

#include <gradwire/error.hpp>

namespace gradwire::program::sweep {
namespace {

using sizes = std::initializer_list<std::size_t>;

TEST(GaussianInput, HasTheMomentsOfStandardNormalNumbers) {
  gaussian_input const input{1, dtype::f32};
  std::vector<float> x(1 << 18);
  input.fill(0, 0, x);
  double mean = 0;
  double square = 0;
  double fourth = 0;
  for (double const value : x) {
    mean += value;
    square += value * value;
    fourth += value * value * value * value;
  }
  auto const n = static_cast<double>(x.size());
  // Standard errors: 1/√n, √2/√n, √96/√n; bounds at five of them.
  EXPECT_NEAR(mean / n, 0, 5 / std::sqrt(n));
  EXPECT_NEAR(square / n, 1, 5 * std::sqrt(2 / n));
  EXPECT_NEAR(fourth / n, 3, 5 * std::sqrt(96 / n));
}

TEST(GaussianInput, IsAFunctionOfRankAndIndex) {
  gaussian_input const input{1, dtype::f32};
  std::vector<float> whole(100);
  std::vector<float> part(37);
  input.fill(3, 0, whole);
  input.fill(3, 13, part);
  for (std::size_t i = 0; i < part.size(); ++i) EXPECT_EQ(part[i], whole[13 + i]);
  input.fill(2, 0, part);
  EXPECT_NE(part[0], whole[0]);
}

TEST(GaussianInput, IsExactInItsType) {
  for (dtype const type : {dtype::f16, dtype::bf16}) {
    gaussian_input const input{7, type};
    std::vector<float> x(1000);
    input.fill(0, 0, x);
    for (float const value : x) EXPECT_EQ(rounded_to(type, value), value);
  }
}

// All partial sums, forwards, backwards and in a tree, in the narrow type, with 1/n before (as 2^-k) or after.
TEST(ExactSumInput, GivesTheSameBitsInEveryOrderOfSummation) {
  for (std::size_t const ranks : sizes{1, 2, 3, 4, 7}) {
    for (dtype const type : {dtype::f32, dtype::f16, dtype::bf16}) {
      exact_sum_input const input{5, ranks, significant_bits_of(type)};
      std::vector<std::vector<float>> x(ranks, std::vector<float>(257));
      for (std::size_t r = 0; r < ranks; ++r) input.fill(r, 0, x[r]);
      std::size_t nonzero = 0;
      for (std::size_t i = 0; i < 257; ++i) {
        long long exact = 0;
        for (std::size_t r = 0; r < ranks; ++r) exact += std::llround(x[r][i]);
        ASSERT_EQ(exact % static_cast<long long>(ranks), 0);
        if (exact != 0) ++nonzero;
        for (float const scale : {1.0F, 0.125F}) {
          auto const at = [&](std::size_t r) { return rounded_to(type, scale * x[r][i]); };
          float forwards = 0;
          float backwards = 0;
          for (std::size_t r = 0; r < ranks; ++r) forwards = rounded_to(type, forwards + at(r));
          for (std::size_t r = ranks; r-- > 0;) backwards = rounded_to(type, backwards + at(r));
          ASSERT_EQ(forwards / scale, static_cast<float>(exact)) << "ranks " << ranks << ", " << to_string(type);
          ASSERT_EQ(backwards, forwards);
        }
      }
      EXPECT_GT(nonzero, 100U) << "inputs that show nothing: ranks " << ranks << ", " << to_string(type);
    }
  }
}

TEST(ExactSumInput, RefusesMoreRanksThanTheTypeCanAdd) {
  EXPECT_THROW((exact_sum_input{1, 17, significant_bits_of(dtype::bf16)}), error);
}

}  // namespace
}  // namespace gradwire::program::sweep
