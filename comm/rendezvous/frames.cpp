#include "comm/rendezvous/frames.hpp"

#include <gradwire/error.hpp>

namespace gradwire::board_protocol {
namespace {

constexpr std::size_t number_bytes = 4;
constexpr std::size_t header_bytes = number_bytes + 1;

std::string number(std::size_t value) {
  std::string text;
  for (std::size_t i = 0; i < number_bytes; ++i) text += static_cast<char>((value >> (8 * i)) & 0xffu);
  return text;
}

std::uint32_t to_number(std::string_view bytes) {
  std::uint32_t value = 0;
  for (std::size_t i = 0; i < number_bytes; ++i) {
    value |= std::uint32_t{static_cast<unsigned char>(bytes[i])} << (8 * i);
  }
  return value;
}

}  // namespace

std::string encode(kind what, std::string_view payload) {
  if (payload.size() > most_payload) {
    throw error{errc::communicator, "a message of " + std::to_string(payload.size()) +
                                        " bytes is too large for the rendezvous: at most " +
                                        std::to_string(most_payload)};
  }
  return number(payload.size()) + static_cast<char>(what) + std::string{payload};
}

std::optional<frame> take(std::string& bytes, std::size_t most) {
  if (bytes.size() < header_bytes) return std::nullopt;
  std::size_t const length = to_number(bytes);
  if (length > most) throw error{errc::communicator, "a peer does not speak gradwire's rendezvous protocol"};
  if (bytes.size() < header_bytes + length) return std::nullopt;
  frame result{static_cast<kind>(bytes[number_bytes]), bytes.substr(header_bytes, length)};
  bytes.erase(0, header_bytes + length);
  return result;
}

std::string encode_entry(std::string_view key, std::string_view value) {
  return encode(kind::entry, number(key.size()) + std::string{key} + std::string{value});
}

void decode_entry(std::string_view payload, std::string& key, std::string& value) {
  std::size_t const length = payload.size() < number_bytes ? most_payload : to_number(payload);
  if (payload.size() < number_bytes + length) {
    throw error{errc::communicator, "a peer does not speak gradwire's rendezvous protocol"};
  }
  key = payload.substr(number_bytes, length);
  value = payload.substr(number_bytes + length);
}

std::string encode_join(std::uint32_t rank, std::uint32_t size) {
  return encode(kind::join, std::string{greeting} + number(rank) + number(size));
}

bool decode_join(std::string_view payload, std::uint32_t& rank, std::uint32_t& size) {
  if (payload.size() != greeting.size() + 2 * number_bytes || !payload.starts_with(greeting)) return false;
  rank = to_number(payload.substr(greeting.size()));
  size = to_number(payload.substr(greeting.size() + number_bytes));
  return true;
}

}  // namespace gradwire::board_protocol
