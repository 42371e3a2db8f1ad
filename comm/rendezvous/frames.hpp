#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

namespace gradwire::board_protocol {

// A frame is a 32-bit little-endian length, a kind and as many bytes. Both ends run the same build, or the greeting
// fails.

//! First bytes of a connection: no other protocol begins so.
inline constexpr std::string_view greeting = "gradwire board 1";
inline constexpr std::size_t most_payload = std::size_t{1} << 20;

enum class kind : char {
  join = 'j',     //!< to the server: greeting, rank, size
  who = 'w',      //!< to the server: greeting; the answer is refuse with the server's description
  entry = 'e',    //!< both ways: key, value
  refuse = 'r',   //!< from the server: text, then it closes
  goodbye = 'g',  //!< both ways: an orderly end
};

struct frame {
  kind what{};
  std::string payload;
};

[[nodiscard]] std::string encode(kind what, std::string_view payload);
//! Takes one whole frame from the front of `bytes`; empty when more bytes are needed. Throws errc::communicator for a
//! length over `most`.
[[nodiscard]] std::optional<frame> take(std::string& bytes, std::size_t most = most_payload);

[[nodiscard]] std::string encode_entry(std::string_view key, std::string_view value);
//! Throws errc::communicator for a payload that is no entry.
void decode_entry(std::string_view payload, std::string& key, std::string& value);

[[nodiscard]] std::string encode_join(std::uint32_t rank, std::uint32_t size);
//! False for anything but a greeting with rank and size.
[[nodiscard]] bool decode_join(std::string_view payload, std::uint32_t& rank, std::uint32_t& size);

}  // namespace gradwire::board_protocol
