#include <gradwire/dtype.hpp>

#include <gtest/gtest.h>

#include <bit>
#include <cmath>
#include <cstdint>
#include <random>

#include <gradwire/error.hpp>

namespace gradwire {
namespace {

// The models below work on whole numbers and powers of two in double, where every f16, bf16 and f32 and every midpoint
// between two of them is exact. They share nothing with the conversions under test.

// The value of a small float with `exponent_bits` and `mantissa_bits`, from the definition in IEEE 754 §3.4.
double value_of(std::uint16_t bits, int exponent_bits, int mantissa_bits) {
  int const bias = (1 << (exponent_bits - 1)) - 1;
  int const exponent = (bits >> mantissa_bits) & ((1 << exponent_bits) - 1);
  double const mantissa = bits & ((1 << mantissa_bits) - 1);
  double const sign = (bits & 0x8000u) != 0 ? -1.0 : 1.0;
  if (exponent == (1 << exponent_bits) - 1) return mantissa != 0 ? std::nan("") : sign * HUGE_VAL;
  if (exponent == 0) return sign * std::ldexp(mantissa, 1 - bias - mantissa_bits);
  return sign * std::ldexp(std::ldexp(1.0, mantissa_bits) + mantissa, exponent - bias - mantissa_bits);
}

double f16_value(std::uint16_t bits) { return value_of(bits, 5, 10); }
double bf16_value(std::uint16_t bits) { return value_of(bits, 8, 7); }

bool same(float actual, double expected) {
  if (std::isnan(expected)) return std::isnan(actual);
  return static_cast<double>(actual) == expected && std::signbit(actual) == std::signbit(expected);
}

TEST(F16, EveryValueWidensExactly) {
  for (std::uint32_t bits = 0; bits <= 0xffffu; ++bits) {
    auto const half = static_cast<std::uint16_t>(bits);
    ASSERT_TRUE(same(to_float(f16{half}), f16_value(half))) << std::hex << bits;
  }
}

TEST(Bf16, EveryValueWidensExactly) {
  for (std::uint32_t bits = 0; bits <= 0xffffu; ++bits) {
    auto const half = static_cast<std::uint16_t>(bits);
    ASSERT_TRUE(same(to_float(bf16{half}), bf16_value(half))) << std::hex << bits;
  }
}

// Around every boundary: each value, the midpoint to its upper neighbour and the f32 next to the midpoint on both
// sides. Rounding is monotonic, so these settle every f32 between.
template <class Narrow, class ValueOf>
void check_boundaries(std::uint16_t largest, double first_overflow, Narrow narrow, ValueOf value) {
  for (std::uint32_t bits = 0; bits <= largest; ++bits) {
    auto const lower = static_cast<std::uint16_t>(bits);
    auto const upper = static_cast<std::uint16_t>(bits + 1);
    double const low = value(lower);
    double const high = lower == largest ? first_overflow : value(upper);
    auto const middle = static_cast<float>((low + high) / 2);
    ASSERT_EQ(static_cast<double>(middle), (low + high) / 2) << "the midpoint is an f32";
    auto const even = (lower & 1u) == 0 ? lower : upper;
    ASSERT_EQ(narrow(static_cast<float>(low)), lower) << std::hex << bits;
    ASSERT_EQ(narrow(middle), even) << std::hex << bits;
    ASSERT_EQ(narrow(std::nextafter(middle, 0.0F)), lower) << std::hex << bits;
    ASSERT_EQ(narrow(std::nextafter(middle, HUGE_VALF)), upper) << std::hex << bits;
    ASSERT_EQ(narrow(-middle), even | 0x8000u) << std::hex << bits;
    ASSERT_EQ(narrow(static_cast<float>(-low)), lower | 0x8000u) << std::hex << bits;
  }
}

TEST(F16, RoundsToNearestEvenAtEveryBoundary) {
  // 65504 is the largest; from 65520, the midpoint to 2^16, it is infinity.
  check_boundaries(
      0x7bff, 65536.0, [](float x) { return to_f16(x).bits; }, f16_value);
  EXPECT_EQ(to_f16(65519.996F).bits, 0x7bff);
  EXPECT_EQ(to_f16(65520.0F).bits, 0x7c00);
  EXPECT_EQ(to_f16(HUGE_VALF).bits, 0x7c00);
  EXPECT_EQ(to_f16(-HUGE_VALF).bits, 0xfc00);
  EXPECT_EQ(to_f16(3.4e38F).bits, 0x7c00);
  EXPECT_EQ(to_f16(1e-40F).bits, 0);
  EXPECT_EQ(to_f16(-1e-40F).bits, 0x8000);
}

TEST(Bf16, RoundsToNearestEvenAtEveryBoundary) {
  // bf16 has f32's range: the midpoint above its largest value is still a finite f32. Below, midpoints of its
  // subnormal numbers are subnormal in f32.
  check_boundaries(
      0x7f7f, 0x1p128, [](float x) { return to_bf16(x).bits; }, bf16_value);
  EXPECT_EQ(to_bf16(HUGE_VALF).bits, 0x7f80);
  EXPECT_EQ(to_bf16(-HUGE_VALF).bits, 0xff80);
}

TEST(NarrowDtypes, NaNKeepsItsSignAndUpperPayloadAndBecomesQuiet) {
  std::mt19937 random{16};
  SCOPED_TRACE("seed 16");
  for (int i = 0; i < 100'000; ++i) {
    std::uint32_t const payload = random() & 0x7fffffu;
    if (payload == 0) continue;
    std::uint32_t const sign = random() & 0x80000000u;
    auto const nan = std::bit_cast<float>(sign | 0x7f800000u | payload);
    auto const upper = static_cast<std::uint32_t>(sign >> 16);
    ASSERT_EQ(to_f16(nan).bits, upper | 0x7e00u | ((payload >> 13) & 0x1ffu));
    ASSERT_EQ(to_bf16(nan).bits, upper | 0x7fc0u | ((payload >> 16) & 0x3fu));
  }
  // A payload only in the lowest bits must not turn into infinity.
  EXPECT_EQ(to_f16(std::bit_cast<float>(0x7f800001u)).bits, 0x7e00);
  EXPECT_EQ(to_bf16(std::bit_cast<float>(0x7f800001u)).bits, 0x7fc0);
}

#if defined(__FLT16_MAX__)
TEST(F16, AgreesWithTheCompilersOwnTypeOnRandomBits) {
  std::mt19937 random{754};
  SCOPED_TRACE("seed 754");
  for (int i = 0; i < 1'000'000; ++i) {
    auto const value = std::bit_cast<float>(static_cast<std::uint32_t>(random()));
    if (std::isnan(value)) continue;
    ASSERT_EQ(to_f16(value).bits, std::bit_cast<std::uint16_t>(static_cast<_Float16>(value))) << std::hexfloat << value;
  }
}
#endif

TEST(Dtype, NamesAndSizes) {
  EXPECT_EQ(size_of(dtype::f32), 4U);
  EXPECT_EQ(size_of(dtype::f16), 2U);
  EXPECT_EQ(size_of(dtype::bf16), 2U);
  for (auto const type : {dtype::f32, dtype::f16, dtype::bf16}) EXPECT_EQ(parse_dtype(to_string(type)), type);
  try {
    static_cast<void>(parse_dtype("float"));
    FAIL() << "was accepted";
  } catch (error const& why) {
    EXPECT_EQ(why.code(), errc::invalid_argument);
    EXPECT_STREQ(why.what(), "unknown dtype 'float': use f32, f16 or bf16");
  }
}

}  // namespace
}  // namespace gradwire
