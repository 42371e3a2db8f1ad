#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <mutex>
#include <string_view>
#include <vector>

namespace gradwire::overlap {

//! What a span shows; each has a row of its own.
enum class track : std::uint8_t { ready, encode, wire, decode, exposed };

//! Spans of one rank's buckets, from any thread, exported in the Trace Event Format that chrome://tracing and Perfetto
//! read. Times are of the steady clock, so that files of ranks on one machine can be laid side by side.
class timeline {
 public:
  using clock = std::chrono::steady_clock;
  static constexpr std::size_t none = static_cast<std::size_t>(-1);

  struct span {
    track row = track::ready;
    std::string_view name;  //!< a literal
    std::size_t step = 0;
    std::size_t bucket = none;
    std::size_t chunk = none;
    std::size_t bytes = 0;  //!< sent, for wire spans
    clock::time_point begin;
    clock::time_point end;
  };

  void add(span const& what);
  //! Throws errc::invalid_argument that names the file when it cannot be written.
  void write(std::filesystem::path const& file, std::size_t rank) const;

 private:
  mutable std::mutex mutex_;
  std::vector<span> spans_;
};

}  // namespace gradwire::overlap
