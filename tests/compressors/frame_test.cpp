#include <array>
#include <cstring>
#include <fstream>
#include <iterator>
#include <limits>
#include <memory>
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include <gradwire/error.hpp>
#include <gradwire/frame.hpp>

#include "tests/support/arrays.hpp"

namespace gradwire::test {
namespace {

using bytes = std::vector<std::byte>;

bytes golden(std::string const& name) {
  std::ifstream file{std::string{GOLDEN_FOLDER} + "/" + name, std::ios::binary};
  EXPECT_TRUE(file) << name;
  std::string const raw{std::istreambuf_iterator<char>{file}, std::istreambuf_iterator<char>{}};
  bytes content(raw.size());
  if (!raw.empty()) std::memcpy(content.data(), raw.data(), raw.size());
  return content;
}

bytes encode_f32(std::string_view spec, std::vector<float> const& x) {
  return encode_frame(codec::parse(spec), {x.data(), dtype::f32}, x.size());
}

// An exact-sized allocation, so that AddressSanitizer sees a read past the end; returns the error's text.
std::string refusal(std::span<std::byte const> frame) {
  auto const copy = std::make_unique_for_overwrite<std::byte[]>(frame.size());
  if (!frame.empty()) std::memcpy(copy.get(), frame.data(), frame.size());
  try {
    static_cast<void>(read_frame({copy.get(), frame.size()}));
  } catch (error const& failure) {
    EXPECT_EQ(failure.code(), errc::corrupt_payload) << failure.what();
    return failure.what();
  }
  ADD_FAILURE() << "a frame of " << frame.size() << " bytes was accepted";
  return {};
}

bool contains(std::string const& text, std::string_view part) { return text.find(part) != std::string::npos; }

// The golden files come from golden/make.py, which knows docs/wire-format.md and nothing of the library.
TEST(Frame, HasTheBytesOfTheSpecification) {
  float const nan = std::numeric_limits<float>::quiet_NaN();
  EXPECT_EQ(encode_f32("none", {1, -2, 0.5f, 0, nan}), golden("none.frame"));
  EXPECT_EQ(encode_f32("f16", {1, -2, 0.5f, 65504, 0x1p-24f}), golden("f16.frame"));
  std::array const halves{to_bf16(1), to_bf16(-2), to_bf16(0.5f)};
  EXPECT_EQ(encode_frame(codec::parse("bf16"), {halves.data(), dtype::bf16}, 3), golden("bf16.frame"));
  EXPECT_EQ(encode_f32("bf16", {}), golden("empty.frame"));
}

TEST(Frame, TellsWhatItHolds) {
  bytes const frame = golden("bf16.frame");
  frame_info const info = read_frame(frame);
  EXPECT_EQ(info.codec.text(), "bf16");
  EXPECT_EQ(info.type, dtype::bf16);
  EXPECT_EQ(info.count, 3u);
  EXPECT_EQ(info.payload.size(), 8u);
  EXPECT_EQ(info.payload.data(), frame.data() + 36);
}

TEST(Frame, DecodesIntoAnyType) {
  std::array<float, 3> out{};
  decode_frame(golden("bf16.frame"), {out.data(), dtype::f32}, 3);
  EXPECT_EQ(out, (std::array{1.0f, -2.0f, 0.5f}));
  std::array<f16, 3> halves{};
  decode_frame(golden("bf16.frame"), {halves.data(), dtype::f16}, 3);
  EXPECT_EQ(halves[1], to_f16(-2));
}

TEST(Frame, RoundTripsEveryCodecOfTheBuild) {
  auto const x = gaussian(257, 17);
  for (codec_entry const* const entry : codecs()) {
    bytes const frame = encode_f32(entry->name, x);
    frame_info const info = read_frame(frame);
    EXPECT_EQ(&info.codec.entry(), entry);
    std::vector<float> out(x.size(), std::numeric_limits<float>::quiet_NaN());
    decode_frame(frame, {out.data(), dtype::f32}, out.size());
    for (float const value : out) ASSERT_EQ(value, value) << entry->name;
  }
}

TEST(Frame, RefusesEveryTruncationAndEveryExtension) {
  for (codec_entry const* const entry : codecs()) {
    SCOPED_TRACE(entry->name);
    bytes frame = encode_f32(entry->name, gaussian(40, 18));
    for (std::size_t size = 0; size < frame.size(); ++size) refusal(std::span{frame}.first(size));
    frame.push_back(std::byte{0});
    EXPECT_TRUE(contains(refusal(frame), "size in bytes"));
  }
}

TEST(Frame, RefusesEverySingleFlippedBit) {
  for (codec_entry const* const entry : codecs()) {
    SCOPED_TRACE(entry->name);
    bytes frame = encode_f32(entry->name, gaussian(40, 19));
    for (std::size_t bit = 0; bit < 8 * frame.size(); ++bit) {
      frame[bit / 8] ^= static_cast<std::byte>(1u << bit % 8);
      refusal(frame);
      frame[bit / 8] ^= static_cast<std::byte>(1u << bit % 8);
    }
    EXPECT_NO_THROW(static_cast<void>(read_frame(frame)));
  }
}

// CRC-32 as in ISO 3309, bit by bit: independent of the library's.
std::uint32_t slow_crc(std::span<std::byte const> data) {
  std::uint32_t crc = 0xffffffffu;
  for (std::byte const one : data) {
    crc ^= std::to_integer<std::uint32_t>(one);
    for (int bit = 0; bit < 8; ++bit) crc = crc >> 1 ^ ((crc & 1u) != 0 ? 0xedb88320u : 0u);
  }
  return ~crc;
}

void put(bytes& frame, std::size_t at, std::size_t width, std::uint64_t value) {
  for (std::size_t i = 0; i < width; ++i) frame[at + i] = static_cast<std::byte>(value >> 8 * i);
}

// A forger's frame: what is changed is signed again, so that only the field's own check is left.
std::string forged(bytes frame, std::size_t at, std::size_t width, std::uint64_t value) {
  put(frame, at, width, value);
  std::span const all{frame};
  std::size_t const text = std::to_integer<std::size_t>(frame[18]);
  if (at >= 32) put(frame, 20, 4, slow_crc(all.subspan(32, text)));
  put(frame, 24, 4, slow_crc(all.subspan(32)));
  put(frame, 28, 4, slow_crc(all.first(28)));
  return refusal(frame);
}

TEST(Frame, ChecksEveryFieldByItself) {
  bytes const frame = golden("f16.frame");
  EXPECT_TRUE(contains(forged(frame, 0, 4, 0x12345678), "begins with 12345678"));
  EXPECT_TRUE(contains(forged(frame, 4, 1, 2), "frame version is 2, expected 1"));
  EXPECT_TRUE(contains(forged(frame, 5, 1, 3), "codec id is 3, expected 2"));
  EXPECT_TRUE(contains(forged(frame, 6, 1, 9), "payload version of f16 is 9, expected 1"));
  EXPECT_TRUE(contains(forged(frame, 7, 1, 3), "dtype is 3"));
  EXPECT_TRUE(contains(forged(frame, 7, 1, 0x10), "flags"));
  EXPECT_TRUE(contains(forged(frame, 8, 5, 7), "7 elements in bytes is 12, expected 16"));
  EXPECT_TRUE(contains(forged(frame, 13, 5, 16), "size in bytes is 47, expected 51"));
  EXPECT_TRUE(contains(forged(frame, 18, 2, 65535), "size in bytes"));
  EXPECT_TRUE(contains(forged(frame, 32, 1, 'g'), "unknown method 'g16'"));
  bytes wrong = frame;
  put(wrong, 20, 4, 1);
  put(wrong, 28, 4, slow_crc(std::span{wrong}.first(28)));
  EXPECT_TRUE(contains(refusal(wrong), "codec text"));
  wrong = frame;
  put(wrong, 24, 4, 1);
  put(wrong, 28, 4, slow_crc(std::span{wrong}.first(28)));
  EXPECT_TRUE(contains(refusal(wrong), "what follows the header"));
}

TEST(Frame, RefusesAbsurdCountsWithoutAllocating) {
  for (codec_entry const* const entry : codecs()) {
    SCOPED_TRACE(entry->name);
    bytes const frame = encode_f32(entry->name, gaussian(40, 20));
    forged(frame, 8, 5, (std::uint64_t{1} << 40) - 1);
    forged(frame, 13, 5, (std::uint64_t{1} << 40) - 1);
  }
}

TEST(Frame, RefusesAnotherCountThanTheCallerHasRoomFor) {
  std::array<float, 8> out{};
  for (std::size_t const count : {0u, 2u, 4u, 8u}) {
    try {
      decode_frame(golden("bf16.frame"), {out.data(), dtype::f32}, count);
      ADD_FAILURE() << count;
    } catch (error const& failure) {
      EXPECT_EQ(failure.code(), errc::corrupt_payload);
      EXPECT_TRUE(contains(failure.what(), "element count is 3"));
    }
  }
  EXPECT_EQ(out, (std::array<float, 8>{}));
}

TEST(Frame, RefusesMoreElementsThanTheHeaderCanCount) {
  EXPECT_THROW(static_cast<void>(encode_frame(codec::parse("bf16"), {}, std::size_t{1} << 40)), error);
}

}  // namespace
}  // namespace gradwire::test
