#pragma once

#include <cstdint>
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

//! A line of source code. std::source_location in small: clang up to 15 cannot use libstdc++'s, and the analysers of
//! distributions are built on it.
struct source_line {
  char const* file;
  char const* function;
  unsigned line;

  [[nodiscard]] static constexpr source_line current(char const* file = __builtin_FILE(),
                                                     char const* function = __builtin_FUNCTION(),
                                                     unsigned line = __builtin_LINE()) noexcept {
    return {file, function, line};
  }
};

//! Every failure of the library. what() is one sentence or more for the person who has to mend it: what was given, what
//! is allowed, what to do. where() is the throwing line, for bug reports.
class error : public std::runtime_error {
 public:
  error(errc code, std::string const& text, source_line where = source_line::current())
      : std::runtime_error{text}, code_{code}, where_{where} {}

  [[nodiscard]] errc code() const noexcept { return code_; }
  [[nodiscard]] source_line const& where() const noexcept { return where_; }

 private:
  errc code_;
  source_line where_;
};

//! Throws errc::invalid_argument with `text` unless `ok`; on in every build. For texts that cost something to build,
//! test first and throw.
inline void expects(bool ok, char const* text, source_line where = source_line::current()) {
  if (!ok) throw error{errc::invalid_argument, text, where};
}

}  // namespace gradwire
