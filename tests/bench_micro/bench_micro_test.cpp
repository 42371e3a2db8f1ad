#include <algorithm>
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include <gradwire/error.hpp>

#include "bench/micro/cases.hpp"
#include "bench/micro/report.hpp"

namespace gradwire::bench {
namespace {

// The keys are a promise of the program's contract (docs/cli.md).
TEST(BenchRecord, HasTheKeysAndPercentagesOfTheContract) {
  record row{.spec = "bf16", .function = "decode", .type = dtype::f16, .count = 10, .bytes_moved = 40};
  row.gbps = 3;
  row.memcpy_gbps = 12;
  row.stream_gbps = 4;
  nlohmann::json const expected{{"event", "bench"},
                                {"spec", "bf16"},
                                {"function", "decode"},
                                {"dtype", "f16"},
                                {"count", 10},
                                {"bytes_moved", 40},
                                {"gbps", 3.0},
                                {"memcpy_gbps", 12.0},
                                {"percent_of_memcpy", 25.0},
                                {"stream_gbps", 4.0},
                                {"percent_of_stream", 75.0}};
  EXPECT_EQ(nlohmann::json::parse(row.json()), expected);
}

TEST(BenchRecord, KnowsWhatIsAskedOfEachCase) {
  EXPECT_EQ(target_percent(codec::parse("onebit"), "decode"), 90);
  EXPECT_EQ(target_percent(codec::parse("bf16"), "encode"), 90);
  EXPECT_EQ(target_percent(codec::parse("quant(bits=4)"), "encode"), 75);
  EXPECT_EQ(target_percent(codec::parse("quant(bits=8,round=stochastic)"), "encode"), 40);
  EXPECT_EQ(target_percent(codec::parse("quant(bits=2)"), "encode"), std::nullopt);
  EXPECT_EQ(target_percent(codec::parse("topk(ratio=0.01)"), "encode_with_feedback"), 30);
  EXPECT_EQ(target_percent(codec::parse("topk(ratio=0.01)"), "decode"), std::nullopt);
  EXPECT_EQ(target_percent(codec::parse("none"), "decode"), std::nullopt);
}

// 1000 elements; bf16 payload 2000 bytes. Gradient, residual and payload, read and written.
TEST(BenchCases, CountEveryByteThatAFunctionMoves) {
  arena data{1000, dtype::f32};
  subject tested{data, codec::parse("bf16")};
  EXPECT_EQ(tested.moves(function::encode).bytes(), 4000u + 2000u);
  EXPECT_EQ(tested.moves(function::encode_with_feedback).bytes(), 4000u + 2 * 4000u + 2000u);
  EXPECT_EQ(tested.moves(function::decode).bytes(), 2000u + 4000u);
  EXPECT_EQ(tested.moves(function::decode_add).bytes(), 2000u + 2 * 4000u);
  EXPECT_EQ(tested.moves(function::reduce_encode).bytes(), 4 * 2000u + 2 * 4000u + 2000u);
}

TEST(BenchStream, ReachesEveryWholeLineOfWhatItWrites) {
  constexpr std::size_t lines = 777;
  std::vector<std::byte> const read(64 * lines, std::byte{3});
  std::vector<std::byte> update(std::size_t{128} * lines, std::byte{5});
  std::vector<std::byte> payload(std::size_t{64} * 33, std::byte{0});
  traffic what;
  what.read = read;
  what.update = update;
  what.write_payload = payload;
  stream(what);
  // XOR of what was read with what was there.
  EXPECT_TRUE(std::all_of(update.begin(), update.end(), [](std::byte b) { return b == std::byte{3 ^ 5}; }));
  EXPECT_TRUE(std::all_of(payload.begin(), payload.end(), [](std::byte b) { return b != std::byte{0}; }));
}

// A codec whose fast path writes one byte that the reference does not.
codec_entry make_wrong() {
  codec_entry entry = find_codec("none");
  entry.name = "benchwrong";
  entry.wire_id = 222;
  entry.cpu = {};
  entry.cpu.encode = [](exec const& on, param_values const& params, const_elements in,
                        std::span<segment const> segments, random_key key, std::byte* payload) {
    find_codec("none").reference.encode(on, params, in, segments, key, payload);
    payload[3] ^= std::byte{1};
  };
  return entry;
}

TEST(BenchCases, NeverTimeAWrongResult) {
  static codec_entry const wrong = make_wrong();
  register_codec(wrong);
  arena data{1000, dtype::f32};
  subject tested{data, codec::parse("benchwrong")};
  try {
    tested.check(function::encode);
    FAIL() << "the difference was not seen";
  } catch (error const& failure) {
    EXPECT_EQ(failure.code(), errc::mismatch);
    EXPECT_NE(std::string{failure.what()}.find("differs from the reference at 3"), std::string::npos) << failure.what();
  }
}

TEST(BenchCases, AcceptEveryCodecOfTheTree) {
  arena data{5000, dtype::f32};
  for (codec_entry const* const entry : codecs()) {
    if (entry->name == "benchwrong") continue;
    subject tested{data, codec::parse(entry->name)};
    for (function const which : all_functions) EXPECT_NO_THROW(tested.check(which)) << entry->name;
  }
}

}  // namespace
}  // namespace gradwire::bench
