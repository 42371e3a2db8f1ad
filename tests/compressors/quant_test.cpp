// quant's bytes, worked out by hand, and what is special about it. What all codecs promise is in the conformance
// suites.
#include <algorithm>
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

#include "core/random.hpp"
#include "tests/compressors/words.hpp"

namespace gradwire {
namespace {

using test::nan_word;
using test::words;

struct quant_test : testing::TestWithParam<implementation> {
  static codec make(std::string const& keys) { return codec::parse("quant(" + keys + ")", GetParam()); }

  static words encode(codec const& codec, std::vector<float> const& x, random_key key = {}, std::size_t first = 0,
                      std::uint32_t tensor = 0) {
    segment const whole{0, 0, x.size(), first, tensor};
    words payload(codec.encoded_bytes(x.size()) / 4);
    codec.encode({}, {x.data(), dtype::f32}, {&whole, 1}, key, std::as_writable_bytes(std::span{payload}));
    return payload;
  }

  static std::vector<float> decode(codec const& codec, words const& payload, std::size_t count) {
    segment const whole{0, 0, count, 0, 0};
    std::vector<float> out(count, -7.0f);
    codec.decode({}, std::as_bytes(std::span{payload}), {&whole, 1}, {out.data(), dtype::f32});
    return out;
  }
};

INSTANTIATE_TEST_SUITE_P(, quant_test, testing::Values(implementation::fast, implementation::reference),
                         [](auto const& of) { return of.param == implementation::fast ? "fast" : "reference"; });

// ---- Golden bytes: |x| ≤ top with an element at the top, so that the unit is 1 and codes are the numbers themselves.

TEST_P(quant_test, EightBitsAreTheBytesOfSignedNumbers) {
  EXPECT_EQ(encode(make("bits=8,block=32"), {127, -127, 1, -1, 0, 5}), (words{0x42fe0000u, 0xff01817fu, 0x00000500u}));
}

TEST_P(quant_test, SevenBitsStraddleWords) {
  // 63, −63, 1, −1, 2 as 7-bit two's complement: 3f, 41, 01, 7f, 02 at bits 0, 7, 14, 21, 28.
  // 3f + 41·2^7 + 1·2^14 + 7f·2^21 + 2·2^28 = 0x3f + 0x2080 + 0x4000 + 0xfe00000 + 0x20000000; 35 bits: a second word.
  EXPECT_EQ(encode(make("bits=7,block=32"), {63, -63, 1, -1, 2}), (words{0x427c0000u, 0x2fe060bfu, 0x00000000u}));
}

TEST_P(quant_test, SixBits) {
  // 31, −31, 1, −1, 0, −16: 1f, 21, 01, 3f, 00, 30 at bits 0, 6, 12, 18, 24, 30.
  // 0x1f + 0x840 + 0x1000 + 0xfc0000 + 0; 0x30 = 110000b: its lower two bits are 0, the other four, 1100b, come next.
  EXPECT_EQ(encode(make("bits=6,block=32"), {31, -31, 1, -1, 0, -16}), (words{0x41f80000u, 0x00fc185fu, 0x0000000cu}));
}

TEST_P(quant_test, FiveBits) {
  // 15, −15, 1, −1, 0, 0, −2: 0f, 11, 01, 1f, 0, 0, 1e at bits 0, 5, 10, 15, 20, 25, 30.
  // 0xf + 0x220 + 0x400 + 0xf8000, and 1e = 11110b: lower two bits 10b at bit 30, 111b in the next word.
  EXPECT_EQ(encode(make("bits=5,block=32"), {15, -15, 1, -1, 0, 0, -2}),
            (words{0x41700000u, 0x800f862fu, 0x00000007u}));
}

TEST_P(quant_test, FourBitsAreNibblesFromTheLowestOn) {
  EXPECT_EQ(encode(make("bits=4,block=32"), {7, -7, 1, -1, 0, 2, 3, -4, 5}),
            (words{0x40e00000u, 0xc320f197u, 0x00000005u}));
}

TEST_P(quant_test, ThreeBits) {
  // 3, −3, 1, −1, 0, 2: 3, 5, 1, 7, 0, 2 at bits 0, 3, 6, 9, 12, 15: 3 + 0x28 + 0x40 + 0xe00 + 0x10000.
  EXPECT_EQ(encode(make("bits=3,block=32"), {3, -3, 1, -1, 0, 2}), (words{0x40400000u, 0x00010e6bu}));
}

TEST_P(quant_test, TwoBitsAreMinusOneZeroAndOne) {
  EXPECT_EQ(encode(make("bits=2,block=32"), {1, -1, 0, 0, 1}), (words{0x3f800000u, 0x0000010du}));
}

TEST_P(quant_test, OneBitHasTheTwoExtremesAndNoZero) {
  codec const codec = make("bits=1,block=32");
  words const payload = encode(codec, {2, -2, 0.5f, -0.5f});  // code 1 is +2, code 0 is −2
  EXPECT_EQ(payload, (words{0x40000000u, 0x00000005u}));
  EXPECT_EQ(decode(codec, payload, 4), (std::vector<float>{2, -2, 2, -2}));
}

TEST_P(quant_test, MinMaxCountsUnitsAboveTheMinimum) {
  // 10 … 25 in 15 units of 1: codes 0, 15, 3, 7.
  codec const codec = make("bits=4,block=32,scale=minmax");
  words const payload = encode(codec, {10, 25, 13, 17});
  EXPECT_EQ(payload, (words{0x41200000u, 0x41c80000u, 0x000073f0u}));
  EXPECT_EQ(decode(codec, payload, 4), (std::vector<float>{10, 25, 13, 17}));
}

TEST_P(quant_test, FullBlocksFollowEachOtherAndAPartialOneEndsOnAWord) {
  // 32 elements of 4 bits take four words; a 33rd takes a header and a word.
  std::vector<float> x(33, 0.0f);
  x[0] = 7;
  x[31] = -7;
  x[32] = 14;
  EXPECT_EQ(encode(make("bits=4,block=32"), x), (words{0x40e00000u, 7, 0, 0, 0x90000000u, 0x41600000u, 7}));
}

TEST_P(quant_test, NearestTakesTiesToEven) {
  codec const codec = make("bits=4,block=32");
  std::vector<float> const x{7, 0.5f, 1.5f, 2.5f, -0.5f, -1.5f, -2.5f, 3.5f};
  EXPECT_EQ(decode(codec, encode(codec, x), x.size()), (std::vector<float>{7, 0, 2, 2, 0, -2, -2, 4}));
}

// ---- Exact where the format can hold it

TEST_P(quant_test, ExtremesAndConstantsAreExactAtEveryWidth) {
  std::mt19937 engine{20261130};
  std::uniform_real_distribution<float> exponent{-140, 120};
  for (int bits = 1; bits <= 8; ++bits) {
    for (std::string const rest :
         {"absmax,round=nearest", "absmax,round=stochastic", "minmax,round=nearest", "minmax,round=stochastic"}) {
      codec const codec = make("block=64,bits=" + std::to_string(bits) + ",scale=" + rest);
      for (int i = 0; i < 50; ++i) {
        float const high = std::exp2(exponent(engine));
        float const low = rest[0] == 'a' ? -high : -std::exp2(exponent(engine));
        std::vector<float> x(64, high);
        x[40] = low;
        random_key const key{static_cast<std::uint64_t>(i), 5};
        ASSERT_EQ(decode(codec, encode(codec, x, key), x.size()), x) << codec.text() << ' ' << low << ' ' << high;
        std::vector<float> const constant(64, low);
        ASSERT_EQ(decode(codec, encode(codec, constant, key), 64), constant) << codec.text() << ' ' << low;
      }
    }
  }
}

TEST_P(quant_test, AZeroBlockIsAllZeroBits) {
  for (std::string const keys :
       {"bits=4,block=32", "bits=1,block=32", "bits=8,block=32,scale=minmax", "bits=4,block=32,round=stochastic"}) {
    codec const codec = make(keys);
    words const payload = encode(codec, {0.0f, -0.0f, -0.0f, 0.0f});
    EXPECT_EQ(payload, words(payload.size(), 0)) << keys;
    for (float const value : decode(codec, payload, 4)) EXPECT_EQ(std::bit_cast<std::uint32_t>(value), 0u) << keys;
  }
}

TEST_P(quant_test, HugeFiniteBlocksDecodeFinite) {
  float const most = std::numeric_limits<float>::max();
  for (std::string const scale : {"absmax", "minmax"}) {
    for (int bits = 1; bits <= 8; ++bits) {
      codec const codec = make("block=32,bits=" + std::to_string(bits) + ",scale=" + scale);
      std::vector<float> const x{-most, most, most / 3, 0};
      auto const out = decode(codec, encode(codec, x), x.size());
      EXPECT_EQ(out[0], -most) << codec.text();
      EXPECT_EQ(out[1], most) << codec.text();
      double const unit = 2.0 * double{most} / (std::exp2(bits) - (scale == "absmax" && bits > 1 ? 2 : 1));
      for (std::size_t i = 2; i < 4; ++i) {
        EXPECT_LE(std::abs(double{out[i]} - double{x[i]}), unit / 2 * 1.00001) << codec.text();
      }
    }
  }
}

TEST_P(quant_test, SubnormalBlocksKeepTheirLevels) {
  float const tiny = std::numeric_limits<float>::denorm_min();
  std::vector<float> x;
  for (int i = -10; i <= 10; ++i) x.push_back(static_cast<float>(i) * tiny);
  for (std::string const scale : {"absmax", "minmax"}) {
    codec const codec = make("bits=8,block=32,scale=" + scale);
    EXPECT_EQ(decode(codec, encode(codec, x), x.size()), x) << scale;  // units of a tenth and less of `tiny`
  }
}

// ---- Bounds

TEST_P(quant_test, LosesAtMostHalfAUnitToNearestAndLessThanOneAtRandom) {
  std::mt19937 engine{77};
  std::normal_distribution<float> normal;
  for (int bits = 1; bits <= 8; ++bits) {
    for (std::string const scale : {"absmax", "minmax"}) {
      std::vector<float> x(256);
      for (float& value : x) value = normal(engine);
      auto const [low, high] = std::minmax_element(x.begin(), x.end());
      double const top = std::exp2(bits) - (scale == "absmax" && bits > 1 ? 2 : 1);
      double const range =
          scale == "absmax" ? 2 * std::max(-double{*low}, double{*high}) : double{*high} - double{*low};
      std::string const keys = "bits=" + std::to_string(bits) + ",scale=" + scale;
      auto const nearest = decode(make(keys), encode(make(keys), x), x.size());
      auto const random = make(keys + ",round=stochastic");
      auto const drawn = decode(random, encode(random, x, {3, 4}), x.size());
      for (std::size_t i = 0; i < x.size(); ++i) {
        EXPECT_LE(std::abs(double{nearest[i]} - double{x[i]}), range / top / 2 * 1.0001) << keys;
        EXPECT_LT(std::abs(double{drawn[i]} - double{x[i]}), range / top * 1.0001) << keys;
      }
    }
  }
}

// The inputs that README.md derives the bounds from, to show that they are reached and not passed: omega is the largest
// ratio of expected loss to ‖x‖². One element at the maximum, the others at one fraction of a unit.
TEST(QuantTraits, OmegaOfAbsMaxIsTheWorstCaseOverFractionsOfAUnit) {
  for (int bits = 2; bits <= 8; ++bits) {
    for (int block : {32, 256, 65536}) {
      double const top = std::exp2(bits - 1) - 1;
      double worst = 0;
      for (int i = 1; i < 20000; ++i) {
        double const f = i / 20000.0;
        worst = std::max(worst, (block - 1) * f * (1 - f) / (top * top + (block - 1) * f * f));
      }
      auto const traits =
          codec::parse("quant(round=stochastic,bits=" + std::to_string(bits) + ",block=" + std::to_string(block) + ")")
              .traits();
      EXPECT_TRUE(traits.unbiased);
      EXPECT_NEAR(traits.omega, worst, worst * 1e-3) << bits << ' ' << block;
    }
  }
}

TEST(QuantTraits, OmegaOfMinMaxIsReachedByZerosBetweenOppositeEnds) {
  // ±1 and n − 2 zeros, midway between two levels 2/(2^b − 1) apart: each loses unit²/4 on average, ‖x‖² = 2.
  for (int bits = 1; bits <= 8; ++bits) {
    double const unit = 2 / (std::exp2(bits) - 1);
    auto const traits =
        codec::parse("quant(round=stochastic,scale=minmax,block=512,bits=" + std::to_string(bits) + ")").traits();
    EXPECT_NEAR(traits.omega, 510 * unit * unit / 4 / 2, 1e-12) << bits;
  }
}

TEST(QuantTraits, ClaimAContractionOnlyWhereEveryBlockContracts) {
  auto const contracts = [](char const* text) { return codec::parse(text).traits().contractive; };
  EXPECT_TRUE(contracts("quant(bits=4)"));
  EXPECT_TRUE(contracts("quant(bits=2,block=65536)"));
  EXPECT_FALSE(contracts("quant(bits=1)"));
  EXPECT_TRUE(contracts("quant(bits=4,scale=minmax,block=256)"));   // 254/450
  EXPECT_FALSE(contracts("quant(bits=4,scale=minmax,block=512)"));  // 510/450
  EXPECT_TRUE(contracts("quant(bits=8,round=stochastic)"));         // 255/127²
  EXPECT_FALSE(contracts("quant(bits=4,round=stochastic)"));
}

TEST_P(quant_test, MinMaxWithTooLargeABlockExpandsAsTheTraitsSay) {
  std::vector<float> x(512, 0.0f);
  x[0] = 1;
  x[1] = -1;
  codec const codec = make("bits=4,scale=minmax,block=512");
  auto const out = decode(codec, encode(codec, x), x.size());
  double lost = 0;
  for (std::size_t i = 0; i < x.size(); ++i) lost += std::pow(double{out[i]} - double{x[i]}, 2);
  EXPECT_NEAR(lost, 510.0 / 225, 1e-5);  // more than ‖x‖² = 2
}

// ---- Random numbers

TEST_P(quant_test, RoundsUpWhereTheFractionAndTheElementsFourteenBitsReachOne) {
  // Unit 1: x = 7 at element 0, then fractions in multiples of 2^-14. The numbers come straight from core/random.hpp.
  random_key const key{123456789012345u, 42};
  constexpr std::size_t first = 96;
  constexpr std::uint32_t tensor = 9;
  std::vector<float> x(32);
  for (std::size_t i = 1; i < x.size(); ++i) x[i] = static_cast<float>(static_cast<int>(i) - 16) * 0.37f / 3;
  x[0] = 7;
  codec const codec = make("bits=4,block=32,round=stochastic");
  auto const out = decode(codec, encode(codec, x, key, first, tensor), x.size());
  for (std::size_t i = 0; i < x.size(); ++i) {
    std::size_t const element = first + i;
    std::uint32_t const word = random_block<7>(key, tensor, element / 8)[element % 8 / 2];
    std::uint32_t const number = (element % 2 == 1 ? word >> 16 : word) & 0x3fffu;
    double const fixed = std::nearbyint(double{x[i]} * 16384);
    EXPECT_EQ(double{out[i]}, std::floor((fixed + number) / 16384)) << i;
  }
}

TEST_P(quant_test, IsUnbiasedUpToTheEndsOfTheRange) {
  // 2^14 draws a value: the mean is off by less than 5·0.5/2^7 of a unit but once in a million.
  for (std::string const keys : {"bits=2", "bits=1", "bits=3,scale=minmax"}) {
    codec const codec = make(keys + ",block=32,round=stochastic");
    std::vector<float> const x{1, -1, 0.999f, -0.999f, 0.5f, 0.01f, -0.3f, 0};
    double const unit = keys == "bits=2" ? 1 : (keys == "bits=1" ? 2 : 2.0 / 7);
    std::vector<double> sum(x.size());
    constexpr int draws = 1 << 14;
    for (int i = 0; i < draws; ++i) {
      auto const out = decode(codec, encode(codec, x, {7, static_cast<std::uint64_t>(i)}), x.size());
      for (std::size_t j = 0; j < x.size(); ++j) sum[j] += double{out[j]};
    }
    for (std::size_t j = 0; j < x.size(); ++j) {
      EXPECT_NEAR(sum[j] / draws, double{x[j]}, unit * 5 * 0.5 / 128) << keys << ' ' << x[j];
    }
    EXPECT_EQ(sum[0], draws) << keys;
    EXPECT_EQ(sum[1], -draws) << keys;
  }
}

// ---- What is not sent

TEST_P(quant_test, ASpoiledBlockHasOneForm) {
  float const infinity = std::numeric_limits<float>::infinity();
  for (float const bad : {std::nanf(""), infinity, -infinity}) {
    std::vector<float> x(48, 1.0f);
    x[10] = bad;
    EXPECT_EQ(encode(make("bits=2,block=32"), x), (words{nan_word, 0, 0, 0x3f800000u, 0x55555555u}));
    codec const codec = make("bits=1,block=32,scale=minmax");
    words const payload = encode(codec, x);
    EXPECT_EQ(payload, (words{nan_word, nan_word, 0, 0x3f800000u, 0x3f800000u, 0}));
    auto const out = decode(codec, payload, 48);
    for (std::size_t i = 0; i < 48; ++i) EXPECT_EQ(std::isnan(out[i]), i < 32) << i;
  }
}

TEST_P(quant_test, RefusesBytesThatNoEncoderWrites) {
  auto const refuses = [](codec const& codec, words const& payload) {
    try {
      decode(codec, payload, 3);
      ADD_FAILURE() << codec.text() << " took " << std::hex << payload[0];
    } catch (error const& refused) {
      EXPECT_EQ(refused.code(), errc::corrupt_payload);
    }
  };
  codec const absmax = make("bits=4,block=32");
  refuses(absmax, {0xbf800000u, 0});
  refuses(absmax, {0x7f800000u, 0});
  refuses(absmax, {0x7fc00001u, 0});
  refuses(absmax, {0x3f800000u, 0x1000u});  // a fourth code
  codec const minmax = make("bits=4,block=32,scale=minmax");
  refuses(minmax, {0x3f800000u, 0x3f000000u, 0});
  refuses(minmax, {0xff800000u, 0x3f000000u, 0});
  refuses(minmax, {nan_word, 0x3f000000u, 0});
}

TEST(Quant, TakesBlocksOfWholeWordsOnly) {
  try {
    static_cast<void>(codec::parse("quant(block=40)"));
    FAIL();
  } catch (error const& refused) {
    EXPECT_EQ(refused.code(), errc::invalid_argument);
    EXPECT_NE(std::string{refused.what()}.find("multiple of 32"), std::string::npos) << refused.what();
  }
}

TEST(Quant, TakesItsBitsAndAHeaderForEachBlock) {
  EXPECT_EQ(codec::parse("quant").encoded_bytes(1u << 20), 4096u * (4 + 128));  // 4.125 bits
  EXPECT_EQ(codec::parse("quant(scale=minmax,bits=3)").encoded_bytes(256), 8u + 96);
  EXPECT_EQ(codec::parse("quant(bits=5)").encoded_bytes(7), 4u + 8);
  EXPECT_EQ(codec::parse("quant").encoded_bytes(0), 0u);
}

}  // namespace
}  // namespace gradwire
