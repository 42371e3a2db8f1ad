// onebit's bytes, worked out by hand, and what is special about it. What all codecs promise is in the conformance
// suites.
#include <bit>
#include <cmath>
#include <cstring>
#include <limits>
#include <random>
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include <gradwire/codec.hpp>
#include <gradwire/error.hpp>

#include "tests/compressors/words.hpp"

namespace gradwire {
namespace {

using test::nan_word;
using test::words;

struct onebit_test : testing::TestWithParam<implementation> {
  static codec make(std::string const& text) { return codec::parse(text, GetParam()); }

  static words encode(codec const& codec, std::vector<float> const& x) {
    segment const whole{0, 0, x.size(), 0, 0};
    words payload(codec.encoded_bytes(x.size()) / 4);
    codec.encode({}, {x.data(), dtype::f32}, {&whole, 1}, {}, std::as_writable_bytes(std::span{payload}));
    return payload;
  }

  static std::vector<float> decode(codec const& codec, words const& payload, std::size_t count, float scale = 1) {
    segment const whole{0, 0, count, 0, 0};
    std::vector<float> out(count, -7.0f);
    codec.decode({}, std::as_bytes(std::span{payload}), {&whole, 1}, {out.data(), dtype::f32}, scale);
    return out;
  }
};

INSTANTIATE_TEST_SUITE_P(, onebit_test, testing::Values(implementation::fast, implementation::reference),
                         [](auto const& of) { return of.param == implementation::fast ? "fast" : "reference"; });

TEST_P(onebit_test, FullBlockIsTheMeanMagnitudeAndOneWordOfSigns) {
  std::vector<float> x(32, 0.0f);
  x[0] = 1;
  x[1] = -2;
  x[5] = 3;
  x[31] = -6;
  // (1 + 2 + 3 + 6)/32 = 0.375 = 1.5·2^-2; bits 1 and 31.
  EXPECT_EQ(encode(make("onebit(block=32)"), x), (words{0x3ec00000u, 0x80000002u}));
}

TEST_P(onebit_test, PartialBlockIsPaddedToAWordAndDividesByItsOwnCount) {
  // Block 1: |x| = 2 throughout, element 31 negative. Block 2: (2 + 4 + 0)/3 = 2, element 1 negative.
  std::vector<float> x(35, 2.0f);
  x[31] = -2;
  x[33] = -4;
  x[34] = 0;
  EXPECT_EQ(encode(make("onebit(block=32)"), x), (words{0x40000000u, 0x80000000u, 0x40000000u, 0x00000002u}));
}

TEST_P(onebit_test, DecodesEachSignTimesTheScale) {
  words const payload{0x40400000u, 0x00000005u};  // 3; elements 0 and 2 negative
  EXPECT_EQ(decode(make("onebit(block=32)"), payload, 4, 0.5f), (std::vector<float>{-1.5f, 1.5f, -1.5f, 1.5f}));
}

TEST_P(onebit_test, CountsBothZerosAsPositiveAndSendsAZeroBlockAsZeros) {
  std::vector<float> x(64, 0.0f);
  for (std::size_t i = 0; i < x.size(); i += 3) x[i] = -0.0f;
  codec const codec = make("onebit(block=64)");
  words const payload = encode(codec, x);
  EXPECT_EQ(payload, (words{0, 0, 0}));
  for (float const value : decode(codec, payload, x.size())) EXPECT_EQ(std::bit_cast<std::uint32_t>(value), 0u);
}

TEST_P(onebit_test, SendsBareSignsWithScaleOneAndAZeroBlockAsZeros) {
  codec const bare = make("onebit(block=32,scale=one)");
  std::vector<float> x(64, 0.0f);
  x[1] = -1e-30f;
  x[2] = 5;
  // 1.0f; bit 1. The second block is all zeros.
  words const payload{0x3f800000u, 0x00000002u, 0, 0};
  EXPECT_EQ(encode(bare, x), payload);
  EXPECT_EQ(decode(bare, {payload[0], payload[1]}, 3), (std::vector<float>{1, -1, 1}));
  x[2] = std::numeric_limits<float>::infinity();
  EXPECT_EQ(encode(bare, x), (words{nan_word, 0, 0, 0}));
}

TEST_P(onebit_test, SumsInThirtyTwoLanesAndThenInATree) {
  // 2^24 + 1 rounds to 2^24. Lane 0 adds 1 to 2^24 three times and stays at 2^24; lane 1 adds 1 + 1 + 1 + 1 = 4. The
  // tree then gives 2^24 + 4, while a sum from left to right would give 2^24. Mean over 128: (2^24 + 4)/2^7.
  std::vector<float> x(128, 0.0f);
  x[0] = 0x1p24f;
  x[32] = x[64] = x[96] = 1;
  x[1] = x[33] = x[65] = x[97] = 1;
  words const payload = encode(make("onebit(block=128)"), x);
  EXPECT_EQ(std::bit_cast<float>(payload[0]), 0x1p17f + 0x1p-5f);
}

TEST_P(onebit_test, AddsTheLanesPairwiseSixteenApartFirst) {
  // Lanes 0, 16, 8 hold 2^24, 1, 1. 0 + 16 first: 2^24 + 1 = 2^24, lane 8 gives 1; their sum is 2^24 again. Had 8 and
  // 16 met first the sum would be 2^24 + 2.
  std::vector<float> x(32, 0.0f);
  x[0] = 0x1p24f;
  x[8] = x[16] = 1;
  EXPECT_EQ(std::bit_cast<float>(encode(make("onebit(block=32)"), x)[0]), 0x1p19f);
}

TEST_P(onebit_test, BlocksOfOneMagnitudeAreExactWhateverTheSumRoundsTo) {
  // 0.1 added 32 times in f32 is not 3.2.
  for (std::size_t const count : {1u, 31u, 1000u, 1024u, 5000u}) {
    std::vector<float> x(count, 0.1f);
    for (std::size_t i = 0; i < count; i += 5) x[i] = -0.1f;
    codec const codec = make("onebit");
    EXPECT_EQ(decode(codec, encode(codec, x), count), x) << count;
  }
}

TEST_P(onebit_test, HugeFiniteBlocksStayFinite) {
  float const largest = std::numeric_limits<float>::max();
  for (std::size_t const block : {32u, 1024u, 65536u}) {
    std::vector<float> x(block, -largest);
    codec const codec = make("onebit(block=" + std::to_string(block) + ")");
    EXPECT_EQ(decode(codec, encode(codec, x), block), x) << block;
  }
  // Half of them zero: the sum overflows, the mean is 2^127/2.
  std::vector<float> x(64, 0.0f);
  for (std::size_t i = 0; i < 32; ++i) x[i] = 0x1p127f;
  EXPECT_EQ(std::bit_cast<float>(encode(make("onebit(block=64)"), x)[0]), 0x1p126f);
}

TEST_P(onebit_test, SubnormalNumbersAreNotFlushed) {
  std::vector<float> x(32, 0x1p-149f);
  x[3] = -0x1p-149f;
  EXPECT_EQ(encode(make("onebit(block=32)"), x), (words{0x00000001u, 0x00000008u}));
}

TEST_P(onebit_test, ASpoiledBlockHasOneFormAndSpoilsNoOther) {
  for (float const bad : {std::nanf(""), -std::nanf("7"), std::numeric_limits<float>::infinity(),
                          -std::numeric_limits<float>::infinity()}) {
    std::vector<float> x(64, -1.0f);
    x[40] = bad;
    codec const codec = make("onebit(block=32)");
    words const payload = encode(codec, x);
    EXPECT_EQ(payload, (words{0x3f800000u, 0xffffffffu, nan_word, 0}));
    auto const out = decode(codec, payload, 64);
    for (std::size_t i = 0; i < 32; ++i) EXPECT_EQ(out[i], -1.0f);
    for (std::size_t i = 32; i < 64; ++i) EXPECT_TRUE(std::isnan(out[i]));
  }
}

TEST_P(onebit_test, FeedbackKeepsWhatTheScaleLost) {
  // c = (1, −3, 4, −4): mean 3, decoded (3, −3, 3, −3).
  std::vector<float> const grad{0.5f, -3, 4, -5};
  std::vector<float> residual{0.5f, 0, 0, 1};
  segment const whole{0, 0, 4, 0, 0};
  words payload(2);
  make("onebit(block=32)")
      .encode_with_feedback({}, {grad.data(), dtype::f32}, residual.data(), {&whole, 1}, {},
                            std::as_writable_bytes(std::span{payload}));
  EXPECT_EQ(payload, (words{0x40400000u, 0x0000000au}));
  EXPECT_EQ(residual, (std::vector<float>{-2, 0, 1, -1}));
}

TEST_P(onebit_test, ReducesByEncodingTheMeanOfTheDecodedShards) {
  // Shards (2, −2), (4, 4): sum (6, 2), halved (3, 1), with the residual (3, −5): mean 4, decoded (4, −4).
  words const one{0x40000000u, 0x2u};
  words const two{0x40800000u, 0x0u};
  std::vector<std::byte const*> const shards{std::as_bytes(std::span{one}).data(),
                                             std::as_bytes(std::span{two}).data()};
  std::vector<float> residual{0, -6};
  segment const whole{0, 0, 2, 0, 0};
  words payload(2);
  make("onebit(block=32)")
      .reduce_encode({}, shards, 0.5f, residual.data(), {&whole, 1}, {}, std::as_writable_bytes(std::span{payload}));
  EXPECT_EQ(payload, (words{0x40800000u, 0x2u}));
  EXPECT_EQ(residual, (std::vector<float>{-1, -1}));
}

TEST_P(onebit_test, RefusesBytesThatNoEncoderWrites) {
  codec const codec = make("onebit(block=32)");
  for (words const& payload :
       {words{0xbf800000u, 0}, words{0x7f800000u, 0}, words{0x7fc00001u, 0}, words{0x3f800000u, 0x8u}}) {
    try {
      decode(codec, payload, 3);
      FAIL() << "took " << std::hex << payload[0] << ' ' << payload[1];
    } catch (error const& refused) {
      EXPECT_EQ(refused.code(), errc::corrupt_payload);
    }
  }
}

// The error is ‖x‖² − ‖x‖₁²/m for each block, so that sparse blocks contract as well, by at least 1/m.
TEST_P(onebit_test, ASingleSpikeStillContracts) {
  std::vector<float> x(1024, 0.0f);
  x[500] = 1024;  // scale 1: lost 1023² + 1023·1 = 1023·1024 = (1 − 1/1024)·‖x‖²
  codec const codec = make("onebit");
  auto const out = decode(codec, encode(codec, x), x.size());
  double lost = 0;
  for (std::size_t i = 0; i < x.size(); ++i) lost += (double{x[i]} - double{out[i]}) * (double{x[i]} - double{out[i]});
  EXPECT_EQ(lost, 1023.0 * 1024.0);
}

TEST(OneBit, TakesBlocksOfWholeWordsOnly) {
  try {
    static_cast<void>(codec::parse("onebit(block=100)"));
    FAIL();
  } catch (error const& refused) {
    EXPECT_EQ(refused.code(), errc::invalid_argument);
    EXPECT_NE(std::string{refused.what()}.find("multiple of 32"), std::string::npos) << refused.what();
  }
}

TEST(OneBit, TakesAboutOneBitPerElement) {
  codec const codec = codec::parse("onebit");
  EXPECT_EQ(codec.encoded_bytes(1u << 20), 1024u * (4 + 128));  // 1.03125 bits
  EXPECT_EQ(codec.encoded_bytes(1), 8u);
  EXPECT_EQ(codec.encoded_bytes(0), 0u);
}

}  // namespace
}  // namespace gradwire
