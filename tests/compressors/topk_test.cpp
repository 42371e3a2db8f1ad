#include <algorithm>
#include <bit>
#include <cmath>
#include <cstring>
#include <limits>
#include <numeric>
#include <random>
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include <gradwire/codec.hpp>
#include <gradwire/error.hpp>

#include "compressors/gradient.hpp"
#include "compressors/topk/format.hpp"
#include "compressors/topk/select.hpp"

namespace gradwire {
namespace {

using bytes = std::vector<std::byte>;

bytes of_words(std::vector<std::uint32_t> const& from) {
  bytes result(4 * from.size());
  std::memcpy(result.data(), from.data(), result.size());
  return result;
}

std::uint32_t word_of(float value) { return std::bit_cast<std::uint32_t>(value); }

std::vector<std::uint32_t> bits_of(std::vector<float> const& values) {
  std::vector<std::uint32_t> bits;
  for (float const value : values) bits.push_back(word_of(value));
  return bits;
}

// ---- The model: the definition in README.md, word for word, one bit at a time, nothing shared with the codec.

std::vector<std::size_t> model_select(std::vector<float> const& x, std::size_t k) {
  std::vector<std::size_t> order(x.size());
  std::iota(order.begin(), order.end(), std::size_t{0});
  std::stable_sort(order.begin(), order.end(),
                   [&](std::size_t a, std::size_t b) { return std::fabs(x[a]) > std::fabs(x[b]); });
  order.resize(k);
  std::sort(order.begin(), order.end());
  return order;
}

void append_bits(bytes& to, std::vector<bool> const& bits) {
  std::size_t const begin = to.size();
  to.resize(begin + (bits.size() + 31) / 32 * 4);
  for (std::size_t i = 0; i < bits.size(); ++i) {
    if (bits[i]) to[begin + i / 8] |= std::byte{1} << (i % 8);
  }
}

bytes model_encode(std::vector<float> const& x, std::size_t k) {
  if (x.empty()) return {};
  auto const width =
      static_cast<std::size_t>(std::floor(std::log2(static_cast<double>(x.size()) / static_cast<double>(k))));
  std::vector<bool> low;
  std::vector<bool> upper(k + ((x.size() - 1) >> width));
  bool const finite = std::all_of(x.begin(), x.end(), [](float value) { return std::isfinite(value); });
  bytes result = of_words({finite ? 0u : 1u});
  std::vector<float> values(k);
  if (finite) {
    auto const kept = model_select(x, k);
    for (std::size_t i = 0; i < k; ++i) {
      values[i] = x[kept[i]] == 0 ? 0.0f : x[kept[i]];
      for (std::size_t bit = 0; bit < width; ++bit) low.push_back((kept[i] >> bit & 1) != 0);
      upper[(kept[i] >> width) + i] = true;
    }
  }
  low.resize(k * width);
  bytes const value_bytes = of_words(bits_of(values));
  result.insert(result.end(), value_bytes.begin(), value_bytes.end());
  append_bits(result, low);
  append_bits(result, upper);
  return result;
}

std::vector<float> model_decode(std::vector<float> const& x, std::size_t k) {
  std::vector<float> result(x.size());
  for (std::size_t const index : model_select(x, k)) result[index] = x[index];
  return result;
}

// ---- Calls, on both implementations

std::vector<codec> both(std::string const& text) {
  return {codec::parse(text, implementation::reference), codec::parse(text, implementation::fast)};
}

bytes encoded(codec const& method, std::vector<float> const& x) {
  segment const whole{.count = x.size()};
  bytes result(method.encoded_bytes(x.size()));
  method.encode({}, {x.data(), dtype::f32}, {&whole, 1}, {}, result);
  return result;
}

std::vector<float> decoded(codec const& method, bytes const& payload, std::size_t count, float scale = 1) {
  segment const whole{.count = count};
  std::vector<float> out(count, 7.0f);
  method.decode({}, payload, {&whole, 1}, {out.data(), dtype::f32}, scale);
  return out;
}

void expect_corrupt(bytes const& payload, std::size_t count, std::string const& text, std::string const& why) {
  for (codec const& method : both(text)) {
    SCOPED_TRACE(why);
    try {
      static_cast<void>(decoded(method, payload, count));
      ADD_FAILURE() << "decoded without an error";
    } catch (error const& failure) {
      EXPECT_EQ(failure.code(), errc::corrupt_payload) << failure.what();
    }
  }
}

constexpr float nan = std::numeric_limits<float>::quiet_NaN();
constexpr float inf = std::numeric_limits<float>::infinity();

// ---- Bytes

// Kept: 3 at index 2 and -4 at index 7. low_width = ⌊log₂(8/2)⌋ = 2. Low bits: 2 = 10₂ and 3 = 11₂, first index in the
// lowest bits: 1110₂ = 0x0e. Upper parts 0 and 1 set bits 0 + 0 and 1 + 1 of 2 + ⌊7/4⌋ = 3: 101₂ = 0x05.
TEST(TopK, BytesAreTheOnesWorkedOutByHand) {
  std::vector<float> const x{0, 1, 3, -1, 0.5f, 0, 2, -4};
  bytes const expected = of_words({0, 0x40400000u, 0xc0800000u, 0x0000000eu, 0x00000005u});
  for (codec const& method : both("topk(k=2)")) EXPECT_EQ(encoded(method, x), expected);
}

// low_width = ⌊log₂(3/2)⌋ = 0: no low bits. Indices 0 and 2 set bits 0 + 0 and 2 + 1 of 2 + 2: 1001₂ = 9.
TEST(TopK, HasNoLowBitsWhenHalfOrMoreIsKept) {
  bytes const expected = of_words({0, word_of(-2), word_of(1.5f), 9});
  for (codec const& method : both("topk(k=2)")) EXPECT_EQ(encoded(method, {-2, 1, 1.5f}), expected);
}

TEST(TopK, SpoiledSegmentIsAMarkAndZeros) {
  bytes const expected = of_words({1, 0, 0, 0, 0});
  for (codec const& method : both("topk(k=2)")) {
    EXPECT_EQ(encoded(method, {0, 1, nan, -1, 0.5f, 0, 2, -4}), expected);
    EXPECT_EQ(encoded(method, {0, 1, 3, -1, 0.5f, 0, 2, -inf}), expected);
  }
}

// n = 10^10, k = 10^8, low_width = ⌊log₂ 100⌋ = 6: 18,750,000 words of low bits; 10^8 + ⌊(10^10 − 1)/64⌋ = 256,249,999
// upper bits in 8,007,813 words; with header and values 126,757,814 words. 8.56 bits an index.
TEST(TopK, SizesBeyondTwoToTheThirtyTwoAreExact) {
  EXPECT_EQ(codec::parse("topk(ratio=0.01)").encoded_bytes(10'000'000'000), 507'031'256u);
  // k = 1: 33 low bits in 2 words, 1 + ⌊(2^33 + 4)/2^33⌋ = 2 upper bits in one word, header, value.
  EXPECT_EQ(codec::parse("topk(k=1)").encoded_bytes((std::size_t{1} << 33) + 5), 20u);
}

TEST(TopK, BitsGoInAndOutAtAnyPlaceAndWidth) {
  for (unsigned width = 0; width < 64; ++width) {
    for (std::size_t at = 0; at < 33; ++at) {
      bytes payload(20);
      std::uint64_t const value = 0xa5c3f00f12345677u & ((std::uint64_t{1} << width) - 1);
      topk::store_bits(payload.data(), 1, at, width, value);
      EXPECT_EQ(topk::load_bits(payload.data(), 1, at, width), value) << width << " bits at " << at;
      EXPECT_EQ(topk::load_word(payload.data(), 0), 0u);
    }
  }
}

TEST(TopK, KeepsTheShareThatWasAskedForAndAtLeastOne) {
  struct row {
    char const* text;
    std::size_t count;
    std::size_t kept;
  };
  for (row const& at : {row{"topk", 1000, 10}, row{"topk", 199, 1}, row{"topk", 1, 1}, row{"topk(ratio=0.5)", 7, 3},
                        row{"topk(ratio=1)", 7, 7}, row{"topk(k=5)", 3, 3}, row{"topk(k=5)", 100, 5}}) {
    EXPECT_EQ(codec::parse(at.text).encoded_bytes(at.count), topk::layout_of(at.count, at.kept).bytes()) << at.text;
  }
  EXPECT_EQ(codec::parse("topk").encoded_bytes(std::size_t{0}), 0u);
}

TEST(TopK, RefusesRatioAndKTogether) {
  try {
    static_cast<void>(codec::parse("topk(ratio=0.1,k=3)"));
    FAIL() << "accepted";
  } catch (error const& failure) {
    EXPECT_EQ(failure.code(), errc::invalid_argument);
    EXPECT_NE(std::string{failure.what()}.find("use one of them"), std::string::npos) << failure.what();
  }
}

// ---- Selection

TEST(TopK, KeepsTheLowestIndexOnTies) {
  for (codec const& method : both("topk(k=3)")) {
    EXPECT_EQ(decoded(method, encoded(method, {1, -2, 2, -2, 2, 1}), 6), (std::vector<float>{0, -2, 2, -2, 0, 0}));
  }
}

TEST(TopK, OrdersSubnormalNumbersAndSendsZerosAsPlusZero) {
  float const tiny = std::numeric_limits<float>::denorm_min();
  for (codec const& method : both("topk(k=2)")) {
    auto const small = decoded(method, encoded(method, {-0.0f, tiny, 0, -2 * tiny, tiny}), 5);
    EXPECT_EQ(bits_of(small), bits_of({0, tiny, 0, -2 * tiny, 0}));
    EXPECT_EQ(bits_of(decoded(method, encoded(method, {-0.0f, -0.0f, -0.0f}), 3)), bits_of({0, 0, 0}));
  }
}

struct input {
  std::string name;
  std::vector<float> x;
};

// Shapes that lead a one-pass selection astray: everything equal, all in rising order (each element is a new best),
// nearly all zero, few distinct values, all that is large in one place.
std::vector<input> inputs(std::size_t count, std::uint32_t seed) {
  std::mt19937 random{seed};
  std::normal_distribution<float> normal;
  std::vector<float> x(count);
  std::vector<input> all;
  std::generate(x.begin(), x.end(), [&] { return normal(random); });
  all.push_back({"normal", x});
  std::sort(x.begin(), x.end(), [](float a, float b) { return std::fabs(a) < std::fabs(b); });
  all.push_back({"rising", x});
  std::reverse(x.begin(), x.end());
  all.push_back({"falling", x});
  all.push_back({"constant", std::vector<float>(count, -1.5f)});
  all.push_back({"zero", std::vector<float>(count, 0.0f)});
  std::generate(x.begin(), x.end(), [&] { return random() % 512 == 0 ? normal(random) : 0.0f; });
  all.push_back({"nearly all zero", x});
  std::generate(x.begin(), x.end(), [&] { return static_cast<float>(static_cast<int>(random() % 7) - 3); });
  all.push_back({"seven values", x});
  for (std::size_t i = 0; i < count; ++i) x[i] = (i / 1000 == count / 2000 ? 100.0f : 1.0f) * normal(random);
  all.push_back({"one hot row", x});
  return all;
}

TEST(TopK, EqualsSortingForEveryShapeOfInput) {
  constexpr std::uint32_t seed = 20261130;
  for (std::size_t const count : {1u, 2u, 31u, 63u, 64u, 65u, 2047u, 2048u, 2049u, 5000u, 70'001u, 200'003u}) {
    for (input const& given : inputs(count, seed)) {
      for (double const ratio : {0.001, 0.01, 0.3, 1.0}) {
        if (count > 100'000 && ratio > 0.01) continue;
        std::string const text = "topk(ratio=" + std::to_string(ratio) + ")";
        SCOPED_TRACE(given.name + ", " + std::to_string(count) + " elements, " + text + ", seed 20261130");
        auto const kept =
            std::max<std::size_t>(1, static_cast<std::size_t>(std::floor(ratio * static_cast<double>(count))));
        bytes const expected = model_encode(given.x, kept);
        for (codec const& method : both(text)) ASSERT_EQ(encoded(method, given.x), expected);
      }
    }
  }
}

// The start threshold comes from a sample. Here all that is large lies where the sample looks (the places are those of
// guess_threshold in fast.cpp; if they change, this is one more ordinary input), so the first try finds too few.
TEST(TopK, StaysExactWhenTheSampleMisleads) {
  std::size_t const count = 1024 * 64;
  std::mt19937 random{5};
  std::normal_distribution<float> normal;
  std::vector<float> x(count);
  std::generate(x.begin(), x.end(), [&] { return 1e-3f * normal(random); });
  for (std::size_t group = 0; group < 300; ++group) {
    std::uint64_t const mixed = (group + 1) * 0x9e3779b97f4a7c15u;
    for (std::size_t i = 0; i < 4; ++i) x[group * 64 + (mixed >> 32) % 61 + i] = 10;
  }
  bytes const expected = model_encode(x, 4000);
  for (codec const& method : both("topk(k=4000)")) EXPECT_EQ(encoded(method, x), expected);
}

TEST(TopK, SelectorSaysWhenTooFewReachedTheStartThreshold) {
  topk::selector best{2, 100, std::pmr::get_default_resource()};
  std::vector<float> const x{1, 5, 2};
  std::vector<std::uint64_t> const masks{0b010};
  best.start(2, topk::magnitude(4));
  EXPECT_TRUE(best.take(0, masks, [&](std::size_t i) { return x[i]; }));
  EXPECT_FALSE(best.finish());
}

TEST(TopK, CutIsTheSmallestKeptMagnitudeAndItsShareOfTies) {
  std::vector<float> const x{3, -1, 1, 1, -4};
  EXPECT_EQ(topk::find_cut(x, 4).magnitude, word_of(1));
  EXPECT_EQ(topk::find_cut(x, 4).ties, 2u);
  EXPECT_EQ(topk::find_cut(x, 1).magnitude, word_of(4));
}

template <class T>
void expect_model_of(dtype type, std::uint32_t seed) {
  std::mt19937 random{seed};
  std::normal_distribution<float> normal;
  std::vector<T> gradient(70'003 + 1);
  for (T& value : gradient) value = from_float<T>(1e-4f * normal(random));
  segment const part{.offset = 1, .count = gradient.size() - 1};
  std::vector<float> x;
  for (std::size_t i = 1; i < gradient.size(); ++i) x.push_back(to_float(gradient[i]));
  bytes const expected = model_encode(x, 700);
  for (codec const& method : both("topk")) {
    bytes result(method.encoded_bytes(part.count));
    method.encode({}, {gradient.data(), type}, {&part, 1}, {}, result);
    EXPECT_EQ(result, expected) << to_string(type) << ", seed " << seed;
  }
}

TEST(TopK, ReadsEveryTypeOfGradientAtOddPlaces) {
  expect_model_of<float>(dtype::f32, 1);
  expect_model_of<f16>(dtype::f16, 2);
  expect_model_of<bf16>(dtype::bf16, 3);
}

// ‖x − D‖² = (1 − k/n)·‖x‖² exactly where all magnitudes are equal; less elsewhere.
TEST(TopK, ErrorBoundIsReachedByEqualMagnitudes) {
  codec const method = codec::parse("topk(k=3)");
  std::vector<float> const x{2, -2, 2, -2};
  EXPECT_DOUBLE_EQ(method.entry().error_bound(method.params(), x), 4.0);
  EXPECT_EQ(decoded(method, encoded(method, x), 4), (std::vector<float>{2, -2, 2, 0}));
}

// ---- Feedback and reduction

TEST(TopK, ResidualIsWhatWasNotSent) {
  constexpr std::uint32_t seed = 11;
  for (input const& given : inputs(70'001, seed)) {
    SCOPED_TRACE(given.name + ", seed 11");
    std::vector<float> start(given.x.size());
    for (std::size_t i = 0; i < start.size(); ++i) start[i] = given.x[(i * 7919) % start.size()] * 0.25f;
    std::vector<float> sum(start.size());
    for (std::size_t i = 0; i < sum.size(); ++i) sum[i] = given.x[i] + start[i];
    std::vector<float> left = sum;
    for (std::size_t const index : model_select(sum, 700)) left[index] -= sum[index];
    bytes const expected = model_encode(sum, 700);
    segment const whole{.count = sum.size()};
    for (codec const& method : both("topk")) {
      std::vector<float> residual = start;
      bytes payload(method.encoded_bytes(sum.size()));
      method.encode_with_feedback({}, {given.x.data(), dtype::f32}, residual.data(), {&whole, 1}, {}, payload);
      EXPECT_EQ(payload, expected);
      EXPECT_EQ(residual, left);
    }
  }
}

TEST(TopK, SpoiledSegmentLeavesItsResidualAndItsNeighboursAlone) {
  // Segment 1 is spoiled by a NaN, an infinity, or a sum of finite numbers that overflows.
  struct row {
    float gradient;
    float residual;
  };
  std::vector<segment> const segments{{0, 3, 2, 0, 0}, {2, 0, 3, 0, 1}, {5, 5, 0, 0, 2}, {5, 5, 1, 0, 3}};
  for (row const& at : {row{nan, 1}, row{-inf, 1}, row{3e38f, 3e38f}}) {
    for (codec const& method : both("topk(k=1)")) {
      std::vector<float> const gradient{1, 5, 2, at.gradient, 4, 8};
      std::vector<float> residual{-0.0f, at.residual, 0.5f, 10, 20, 30};
      std::vector<float> const before = residual;
      bytes payload(method.encoded_bytes(segments));
      method.encode_with_feedback({}, {gradient.data(), dtype::f32}, residual.data(), segments, {}, payload);
      EXPECT_EQ(bits_of(residual), bits_of({before[0], before[1], before[2], 11, 0, 0}));
      std::vector<float> out(6);
      method.decode({}, payload, segments, {out.data(), dtype::f32});
      EXPECT_EQ((std::vector<float>{out[0], out[1], out[5]}), (std::vector<float>{0, 25, 38}));
      for (std::size_t i = 2; i < 5; ++i) EXPECT_TRUE(std::isnan(out[i]));
    }
  }
}

TEST(TopK, DecodeAddTouchesOnlyWhatWasKept) {
  segment const whole{.count = 4};
  for (codec const& method : both("topk(k=2)")) {
    bytes const payload = encoded(method, {0, 3, -5, 1});
    std::vector<float> out{1, 2, 3, -0.0f};
    method.decode_add({}, payload, {&whole, 1}, {out.data(), dtype::f32}, 0.5f);
    EXPECT_EQ(bits_of(out), bits_of({1, 3.5f, 0.5f, -0.0f}));
  }
}

TEST(TopK, ReduceEncodeEqualsSumAndEncode) {
  constexpr std::size_t count = 70'001;
  constexpr float scale = 1.0f / 3;
  segment const whole{.count = count};
  auto const given = inputs(count, 17);
  for (codec const& method : both("topk")) {
    std::vector<bytes> payloads;
    std::vector<std::byte const*> parts;
    std::vector<float> sum(count);
    for (std::size_t const which : {0u, 7u, 6u}) {
      payloads.push_back(model_encode(given[which].x, 700));
      auto const values = model_decode(given[which].x, 700);
      for (std::size_t i = 0; i < count; ++i) sum[i] += values[i];
    }
    for (bytes const& payload : payloads) parts.push_back(payload.data());
    std::vector<float> const start = given[5].x;
    std::vector<float> corrected(count);
    for (std::size_t i = 0; i < count; ++i) {
      float const mean = scale * sum[i];
      corrected[i] = mean + start[i];
      sum[i] = mean;
    }
    bytes payload(method.encoded_bytes(count));
    method.reduce_encode({}, parts, scale, nullptr, {&whole, 1}, {}, payload);
    EXPECT_EQ(payload, model_encode(sum, 700)) << "without residual, seed 17";

    std::vector<float> residual = start;
    method.reduce_encode({}, parts, scale, residual.data(), {&whole, 1}, {}, payload);
    EXPECT_EQ(payload, model_encode(corrected, 700)) << "with residual, seed 17";
    for (std::size_t const index : model_select(corrected, 700)) corrected[index] = 0;
    EXPECT_EQ(residual, corrected);

    payloads[1] = model_encode(std::vector<float>(count, nan), 700);
    parts[1] = payloads[1].data();
    residual = start;
    method.reduce_encode({}, parts, scale, residual.data(), {&whole, 1}, {}, payload);
    EXPECT_EQ(payload, payloads[1]);
    EXPECT_EQ(bits_of(residual), bits_of(start));
  }
}

TEST(TopK, ReduceEncodeOfNothingButZerosKeepsTheFirstElements) {
  segment const whole{.count = 5};
  for (codec const& method : both("topk(k=2)")) {
    bytes const zero = encoded(method, {0, 0, 0, 0, 0});
    std::vector<std::byte const*> const parts{zero.data(), zero.data()};
    bytes payload(zero.size());
    method.reduce_encode({}, parts, 0.5f, nullptr, {&whole, 1}, {}, payload);
    EXPECT_EQ(payload, zero);
  }
}

// ---- Corrupt payloads; the sound one is that of BytesAreTheOnesWorkedOutByHand

TEST(TopK, RefusesPayloadsThatEncodeCannotWrite) {
  std::uint32_t const three = word_of(3);
  std::uint32_t const four = word_of(-4);
  std::string const text = "topk(k=2)";
  expect_corrupt(of_words({2, three, four, 0x0e, 5}), 8, text, "unknown header");
  expect_corrupt(of_words({0, three, four, 0x0e, 4}), 8, text, "one index too few");
  expect_corrupt(of_words({0, three, four, 0x0e, 7}), 8, text, "one index too many");
  expect_corrupt(of_words({0, three, four, 0x0e, 9}), 8, text, "second index is 11 of 8");
  expect_corrupt(of_words({0, three, four, 0x0a, 3}), 8, text, "index 2 twice");
  expect_corrupt(of_words({0, three, four, 0x0b, 3}), 8, text, "index 3, then 2");
  expect_corrupt(of_words({0, three, four, 0x1e, 5}), 8, text, "padding of the low bits");
  expect_corrupt(of_words({0, three, four, 0x0e, 0x80000001u}), 8, text, "index far beyond the end");
  expect_corrupt(of_words({0, three, word_of(nan), 0x0e, 5}), 8, text, "a value that is not a number");
  expect_corrupt(of_words({0, three, word_of(-inf), 0x0e, 5}), 8, text, "an infinite value");
  expect_corrupt(of_words({0, three, 0x80000000u, 0x0e, 5}), 8, text, "minus zero");
  expect_corrupt(of_words({1, three, 0, 0, 0}), 8, text, "spoiled and yet with a value");
}

TEST(TopK, ReduceEncodeLeavesTheResidualAloneWhenAPayloadIsCorrupt) {
  segment const whole{.count = 8};
  bytes const sound = of_words({0, word_of(3), word_of(-4), 0x0e, 5});
  bytes const corrupt = of_words({0, word_of(3), word_of(-4), 0x0e, 9});
  for (codec const& method : both("topk(k=2)")) {
    std::vector<float> residual{1, 2, 3, 4, 5, 6, 7, 8};
    std::vector<float> const before = residual;
    std::vector<std::byte const*> const parts{sound.data(), corrupt.data()};
    bytes payload(sound.size());
    EXPECT_THROW(method.reduce_encode({}, parts, 1, residual.data(), {&whole, 1}, {}, payload), error);
    EXPECT_EQ(residual, before);
  }
}

// Whatever arrives, it is decoded or refused, and nothing outside the segment is touched (also under ASan).
TEST(TopK, NoBytesLeadOutsideTheSegment) {
  constexpr std::uint32_t seed = 23;
  std::mt19937 random{seed};
  for (std::string const text : {"topk(k=3)", "topk(ratio=0.4)", "topk(k=1)"}) {
    for (std::size_t round = 0; round < 400; ++round) {
      SCOPED_TRACE(text + ", round " + std::to_string(round) + ", seed 23");
      std::size_t const count = 1 + random() % 200;
      for (codec const& method : both(text)) {
        std::vector<float> x(count);
        for (float& value : x) value = static_cast<float>(random() % 100);
        bytes payload = encoded(method, x);
        for (std::size_t flips = 1 + random() % 3; flips > 0; --flips) {
          payload[random() % payload.size()] ^= std::byte{1} << (random() % 8);
        }
        std::vector<float> out(count + 2, 7.0f);
        segment const inner{.offset = 1, .count = count};
        try {
          method.decode({}, payload, {&inner, 1}, {out.data(), dtype::f32});
        } catch (error const& failure) {
          EXPECT_EQ(failure.code(), errc::corrupt_payload);
        }
        EXPECT_EQ(out.front(), 7.0f);
        EXPECT_EQ(out.back(), 7.0f);
      }
    }
  }
}

}  // namespace
}  // namespace gradwire
