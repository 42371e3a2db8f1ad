#include "comm/arithmetic.hpp"

#include <gtest/gtest.h>

#include <cstdint>
#include <limits>
#include <random>
#include <vector>

namespace gradwire {
namespace {

// Each pair alone through the public conversions, whose own tests are exhaustive.
template <class T, class Narrow>
void check_pairs(dtype type, Narrow narrow) {
  std::mt19937 random{31};
  SCOPED_TRACE("seed 31");
  std::vector<T> a;
  std::vector<T> b;
  for (std::uint32_t bits = 0; bits <= 0xffffu; ++bits) {  // every value meets itself, zero and a random one
    for (std::uint32_t const other : {bits, 0u, static_cast<std::uint32_t>(random() & 0xffffu)}) {
      a.push_back(T{static_cast<std::uint16_t>(bits)});
      b.push_back(T{static_cast<std::uint16_t>(other)});
    }
  }
  std::vector<T> out(a.size());
  combine(out.data(), a.data(), b.data(), a.size(), type, reduce_op::sum);
  for (std::size_t i = 0; i < a.size(); ++i) {
    float const sum = to_float(a[i]) + to_float(b[i]);
    if (sum != sum) {
      ASSERT_NE(to_float(out[i]), to_float(out[i])) << std::hex << a[i].bits << " + " << b[i].bits;
    } else {
      ASSERT_EQ(out[i], narrow(sum)) << std::hex << a[i].bits << " + " << b[i].bits;
    }
  }
}

TEST(Combine, AddsEveryF16InF32AndRoundsOnce) {
  check_pairs<f16>(dtype::f16, [](float x) { return to_f16(x); });
}

TEST(Combine, AddsEveryBf16InF32AndRoundsOnce) {
  check_pairs<bf16>(dtype::bf16, [](float x) { return to_bf16(x); });
}

TEST(Combine, MayWriteOverEitherInput) {
  for (std::size_t const count : {0U, 1U, 7U, 1000U}) {
    std::vector<float> a(count, 1.0F);
    std::vector<float> b(count, 2.0F);
    combine(a.data(), a.data(), b.data(), count, dtype::f32, reduce_op::sum);
    EXPECT_EQ(a, std::vector<float>(count, 3.0F));
    combine(b.data(), a.data(), b.data(), count, dtype::f32, reduce_op::sum);
    EXPECT_EQ(b, std::vector<float>(count, 5.0F));
    combine(b.data(), b.data(), b.data(), count, dtype::f32, reduce_op::sum);
    EXPECT_EQ(b, std::vector<float>(count, 10.0F));
  }
}

TEST(Combine, MaxAndMinTakeNaNFromEitherSide) {
  float const nan = std::numeric_limits<float>::quiet_NaN();
  std::vector<float> const a{1, nan, 1, nan};
  std::vector<float> const b{2, 2, nan, nan};
  std::vector<float> out(4);
  combine(out.data(), a.data(), b.data(), 4, dtype::f32, reduce_op::max);
  EXPECT_EQ(out[0], 2);
  for (std::size_t i = 1; i < 4; ++i) EXPECT_NE(out[i], out[i]);
  combine(out.data(), a.data(), b.data(), 4, dtype::f32, reduce_op::min);
  EXPECT_EQ(out[0], 1);
  for (std::size_t i = 1; i < 4; ++i) EXPECT_NE(out[i], out[i]);
}

}  // namespace
}  // namespace gradwire
