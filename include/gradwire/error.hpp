#pragma once

#include <cstdint>
#include <source_location>
#include <stdexcept>
#include <string>
#include <string_view>

namespace gradwire {

enum class errc : std::uint8_t {
  invalid_argument = 1,  //!< the caller passed something that no state of the library could accept
  corrupt_payload,       //!< bytes from outside do not describe what they claim to
  mismatch,              //!< ranks disagree about their configuration
  unsupported,           //!< valid, but not in this build or on this device
  out_of_memory,         //!< an allocation failed; the state is as before the call
  cuda,                  //!< a CUDA call failed
  communicator,          //!< a peer or the transport failed; the group is unusable
  timeout                //!< a wait ran out; the group is unusable
};

[[nodiscard]] std::string_view to_string(errc code) noexcept;

//! Every failure of the library. what() is one sentence or more for the person who has to mend it: what was given, what
//! is allowed, what to do. where() is the throwing line, for bug reports.
class error : public std::runtime_error {
 public:
  error(errc code, std::string const& text, std::source_location where = std::source_location::current())
      : std::runtime_error{text}, code_{code}, where_{where} {}

  [[nodiscard]] errc code() const noexcept { return code_; }
  [[nodiscard]] std::source_location const& where() const noexcept { return where_; }

 private:
  errc code_;
  std::source_location where_;
};

//! Throws errc::invalid_argument with `text` unless `ok`; on in every build. For texts that cost something to build,
//! test first and throw.
inline void expects(bool ok, char const* text, std::source_location where = std::source_location::current()) {
  if (!ok) throw error{errc::invalid_argument, text, where};
}

}  // namespace gradwire
