#include <gradwire/frame.hpp>

#include <zlib.h>

#include <cstdint>
#include <cstring>
#include <string>
#include <string_view>

#include <gradwire/error.hpp>

#include "compressors/text.hpp"

namespace gradwire {
namespace {

// docs/wire-format.md. All numbers are little-endian.
struct field {
  std::size_t at;
  std::size_t bytes;
};
constexpr field magic_field{0, 4};
constexpr field version_field{4, 1};
constexpr field codec_field{5, 1};
constexpr field codec_version_field{6, 1};
constexpr field type_field{7, 1};  // dtype in the low half, flags in the high half
constexpr field count_field{8, 5};
constexpr field payload_field{13, 5};
constexpr field text_field{18, 2};
constexpr field digest_field{20, 4};
constexpr field body_crc_field{24, 4};
constexpr field header_crc_field{28, 4};
constexpr std::size_t header_bytes = 32;

constexpr std::uint32_t magic = 0x46525747;  // "GWRF"
constexpr std::uint8_t version = 1;

constexpr std::uint64_t most(field field) { return (std::uint64_t{1} << (8 * field.bytes)) - 1; }

void put(std::byte* frame, field field, std::uint64_t value) {
  for (std::size_t i = 0; i < field.bytes; ++i) frame[field.at + i] = static_cast<std::byte>(value >> (8 * i));
}

std::uint64_t get(std::byte const* frame, field field) {
  std::uint64_t value = 0;
  for (std::size_t i = 0; i < field.bytes; ++i) value |= std::to_integer<std::uint64_t>(frame[field.at + i]) << (8 * i);
  return value;
}

std::uint32_t crc(std::span<std::byte const> bytes) {
  auto const* const data = reinterpret_cast<unsigned char const*>(bytes.data());
  return static_cast<std::uint32_t>(crc32_z(crc32_z(0, nullptr, 0), data, bytes.size()));
}

std::string hex(std::uint64_t value) {
  constexpr std::string_view digits = "0123456789abcdef";
  std::string text;
  for (int shift = 28; shift >= 0; shift -= 4) text += digits[value >> shift & 15];
  return text;
}

[[noreturn]] void corrupt(std::string_view why) {
  throw error{errc::corrupt_payload, join({"not a frame that can be decoded: ", why})};
}

void check_number(std::string_view what, std::uint64_t found, std::uint64_t expected) {
  if (found == expected) return;
  corrupt(join({what, " is ", std::to_string(found), ", expected ", std::to_string(expected)}));
}

void check_crc(std::string_view what, std::uint64_t stored, std::uint32_t computed) {
  if (stored == computed) return;
  corrupt(join({what, " has CRC-32 ", hex(computed), ", the header says ", hex(stored), ": bytes were changed"}));
}

// What can be said of the header alone.
void check_header(std::span<std::byte const> frame) {
  if (frame.size() < header_bytes) {
    corrupt(join({"it has ", std::to_string(frame.size()), " bytes, and the header alone takes 32"}));
  }
  std::byte const* const header = frame.data();
  std::uint64_t const found = get(header, magic_field);
  if (found != magic) corrupt(join({"it begins with ", hex(found), ", a frame with ", hex(magic), " (\"GWRF\")"}));
  // Before the checksum, which another version may keep elsewhere.
  check_number("the frame version", get(header, version_field), version);
  check_crc("the header", get(header, header_crc_field), crc(frame.first(header_crc_field.at)));
  std::uint64_t const type = get(header, type_field);
  check_number("the flags field", type >> 4, 0);
  if ((type & 15) > static_cast<std::uint64_t>(dtype::bf16)) {
    corrupt(join({"the dtype is ", std::to_string(type & 15), ", expected 0 (f32), 1 (f16) or 2 (bf16)"}));
  }
  // Neither sum nor product can overflow: the fields have 40 and 16 bits.
  check_number("the size in bytes", frame.size(), header_bytes + get(header, text_field) + get(header, payload_field));
}

frame_info read_body(std::span<std::byte const> frame) {
  std::byte const* const header = frame.data();
  auto const body = frame.subspan(header_bytes);
  auto const text = body.first(static_cast<std::size_t>(get(header, text_field)));
  check_crc("the codec text", get(header, digest_field), crc(text));
  check_crc("what follows the header", get(header, body_crc_field), crc(body));

  std::string_view const spec{reinterpret_cast<char const*>(text.data()), text.size()};
  codec const parsed = codec::parse(spec);
  if (parsed.text() != spec) corrupt(join({"the codec text is '", spec, "', expected '", parsed.text(), "'"}));
  check_number("the codec id", get(header, codec_field), parsed.entry().wire_id);
  check_number(join({"the payload version of ", parsed.entry().name}), get(header, codec_version_field),
               parsed.entry().version);
  auto const count = static_cast<std::size_t>(get(header, count_field));
  check_number(join({"the payload size of ", std::to_string(count), " elements in bytes"}), get(header, payload_field),
               parsed.encoded_bytes(count));
  return {parsed, static_cast<dtype>(get(header, type_field) & 15), count, body.subspan(text.size())};
}

void check_fits(std::string_view what, std::uint64_t value, field field) {
  if (value <= most(field)) return;
  throw error{errc::invalid_argument,
              join({"encode_frame: ", what, " is ", std::to_string(value), ", and a frame holds ",
                    std::to_string(most(field)), " at most: split the tensor"})};
}

}  // namespace

std::vector<std::byte> encode_frame(codec const& codec, const_elements in, std::size_t count, random_key key,
                                    std::uint32_t tensor_id) {
  check_fits("the element count", count, count_field);
  std::string const text = codec.text();
  std::size_t const payload_bytes = codec.encoded_bytes(count);
  check_fits("the payload size", payload_bytes, payload_field);
  check_fits("the length of the codec text", text.size(), text_field);

  std::vector<std::byte> frame(header_bytes + text.size() + payload_bytes);
  std::span const bytes{frame};
  std::memcpy(frame.data() + header_bytes, text.data(), text.size());
  segment const whole{0, 0, count, 0, tensor_id};
  codec.encode(exec{}, in, {&whole, 1}, key, bytes.subspan(header_bytes + text.size()));

  put(frame.data(), magic_field, magic);
  put(frame.data(), version_field, version);
  put(frame.data(), codec_field, codec.entry().wire_id);
  put(frame.data(), codec_version_field, codec.entry().version);
  put(frame.data(), type_field, static_cast<std::uint64_t>(in.type));
  put(frame.data(), count_field, count);
  put(frame.data(), payload_field, payload_bytes);
  put(frame.data(), text_field, text.size());
  put(frame.data(), digest_field, crc(bytes.subspan(header_bytes, text.size())));
  put(frame.data(), body_crc_field, crc(bytes.subspan(header_bytes)));
  put(frame.data(), header_crc_field, crc(bytes.first(header_crc_field.at)));
  return frame;
}

frame_info read_frame(std::span<std::byte const> frame) {
  check_header(frame);
  try {
    return read_body(frame);
  } catch (error const& failure) {
    // A method or a key that this build does not know, or a value out of range.
    if (failure.code() == errc::corrupt_payload) throw;
    corrupt(failure.what());
  }
}

void decode_frame(std::span<std::byte const> frame, elements out, std::size_t count) {
  frame_info const info = read_frame(frame);
  check_number("the element count", info.count, count);
  segment const whole{0, 0, count, 0, 0};
  info.codec.decode(exec{}, info.payload, {&whole, 1}, out);
}

}  // namespace gradwire
