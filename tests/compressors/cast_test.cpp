// none, f16 and bf16, whose payloads are the elements in another type.
#include <algorithm>
#include <cmath>
#include <limits>
#include <random>
#include <tuple>
#include <vector>

#include <gtest/gtest.h>

#include <gradwire/codec.hpp>

#include "tests/support/arrays.hpp"

namespace gradwire::test {
namespace {

std::vector<unsigned> encode(std::string_view spec, std::vector<float> const& x) {
  codec const codec = codec::parse(spec);
  segment const whole{0, 0, x.size(), 0, 0};
  std::vector<std::byte> payload(codec.encoded_bytes(x.size()));
  codec.encode({}, {x.data(), dtype::f32}, {&whole, 1}, {}, payload);
  std::vector<unsigned> made;
  made.reserve(payload.size());
  for (std::byte const one : payload) made.push_back(std::to_integer<unsigned>(one));
  return made;
}

constexpr float infinity = std::numeric_limits<float>::infinity();
float const nan_with_payload = std::bit_cast<float>(0xffc12345u);

// IEEE 754 by hand: sign, exponent + bias, mantissa, least significant byte first.
TEST(Cast, SendsF32AsItIsWithOneNaN) {
  EXPECT_EQ(encode("none", {1.0f, -0.0f, nan_with_payload}),
            (std::vector<unsigned>{0, 0, 0x80, 0x3f, 0, 0, 0, 0x80, 0, 0, 0xc0, 0x7f}));
}

TEST(Cast, RoundsF16ToNearestEvenThroughSubnormalsAndOverflow) {
  // 1 + 2^-11 is a tie and stays at 1; 1 + 3·2^-11 is one and goes up to 1 + 2^-9.
  EXPECT_EQ(encode("f16", {0x1.002p0f, 0x1.006p0f}), (std::vector<unsigned>{0x00, 0x3c, 0x02, 0x3c}));
  // 65519.99 is the last below half a unit over 65504, 65520 the tie that becomes infinite.
  EXPECT_EQ(encode("f16", {65519.99f, 65520.0f}), (std::vector<unsigned>{0xff, 0x7b, 0x00, 0x7c}));
  // 2^-25 is a tie and goes to zero, the next float to the smallest subnormal, 2^-24.
  EXPECT_EQ(encode("f16", {0x1p-25f, -0x1.000002p-25f}), (std::vector<unsigned>{0, 0, 0x01, 0x80}));
  // Two zero bytes behind an odd count.
  EXPECT_EQ(encode("f16", {nan_with_payload}), (std::vector<unsigned>{0x00, 0x7e, 0, 0}));
}

TEST(Cast, RoundsBf16ToNearestEvenThroughSubnormalsAndOverflow) {
  EXPECT_EQ(encode("bf16", {0x1.01p0f, 0x1.03p0f}), (std::vector<unsigned>{0x80, 0x3f, 0x82, 0x3f}));
  EXPECT_EQ(encode("bf16", {0x1.fep127f, 0x1.ffp127f}), (std::vector<unsigned>{0x7f, 0x7f, 0x80, 0x7f}));
  EXPECT_EQ(encode("bf16", {0x1p-134f, -0x1.8p-134f}), (std::vector<unsigned>{0, 0, 0x01, 0x80}));
  EXPECT_EQ(encode("bf16", {nan_with_payload}), (std::vector<unsigned>{0xc0, 0x7f, 0, 0}));
  EXPECT_EQ(encode("bf16", {-infinity}), (std::vector<unsigned>{0x80, 0xff, 0, 0}));
}

// Against the definition in double: the representable number that is nearest, the even one on a tie.
float nearest(double value, int mantissa_bits, int lowest_exponent) {
  int exponent = 0;
  std::frexp(value, &exponent);
  double const unit = std::ldexp(1.0, std::max(exponent - 1, lowest_exponent) - mantissa_bits);
  return static_cast<float>(std::nearbyint(value / unit) * unit);
}

TEST(Cast, AgreesWithTheDefinitionOfRoundingOnRandomNumbers) {
  std::mt19937 engine{2026};
  std::vector<float> x;
  std::uniform_real_distribution<float> exponent{-30, 15};
  for (int i = 0; i < 20000; ++i) {
    float const magnitude = std::exp2(exponent(engine));
    x.push_back(engine() % 2 == 0 ? magnitude : -magnitude);
  }
  segment const whole{0, 0, x.size(), 0, 0};
  for (auto const& [spec, mantissa_bits, lowest] : {std::tuple{"f16", 10, -14}, std::tuple{"bf16", 7, -126}}) {
    codec const codec = codec::parse(spec);
    std::vector<std::byte> payload(codec.encoded_bytes(x.size()));
    codec.encode({}, {x.data(), dtype::f32}, {&whole, 1}, {}, payload);
    std::vector<float> out(x.size());
    codec.decode({}, payload, {&whole, 1}, {out.data(), dtype::f32});
    for (std::size_t i = 0; i < x.size(); ++i) {
      ASSERT_EQ(out[i], nearest(static_cast<double>(x[i]), mantissa_bits, lowest)) << spec << ": " << x[i];
    }
  }
}

// All 2^16 values of a 16-bit type come back as they were (every NaN as the one NaN).
TEST(Cast, ReadsBackEveryF16AndBf16) {
  for (dtype const type : {dtype::f16, dtype::bf16}) {
    std::vector<std::uint16_t> in(65536);
    for (std::size_t i = 0; i < in.size(); ++i) in[i] = static_cast<std::uint16_t>(i);
    codec const codec = codec::parse(to_string(type));
    segment const whole{0, 0, in.size(), 0, 0};
    std::vector<std::byte> payload(codec.encoded_bytes(in.size()));
    codec.encode({}, {in.data(), type}, {&whole, 1}, {}, payload);
    std::vector<std::uint16_t> out(in.size());
    codec.decode({}, payload, {&whole, 1}, {out.data(), type});
    std::uint16_t const infinite = type == dtype::f16 ? 0x7c00 : 0x7f80;
    std::uint16_t const nan = type == dtype::f16 ? 0x7e00 : 0x7fc0;
    for (std::size_t i = 0; i < in.size(); ++i) {
      ASSERT_EQ(out[i], (in[i] & 0x7fffu) > infinite ? nan : in[i]) << i;
    }
  }
}

}  // namespace
}  // namespace gradwire::test
