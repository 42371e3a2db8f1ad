#pragma once

#include <cstddef>
#include <iosfwd>
#include <optional>
#include <string>

#include <gradwire/codec.hpp>

namespace gradwire::bench {

//! One case measured; the keys of bench.jsonl. GB/s = 10^9 bytes a second.
struct record {
  std::string spec;
  std::string function;
  dtype type = dtype::f32;
  std::size_t count = 0;        //!< elements
  std::size_t bytes_moved = 0;  //!< gradient, residual and payload, read and written, in one call
  double gbps = 0;
  double memcpy_gbps = 0;          //!< bytes read plus bytes written, a second
  double stream_gbps = 0;          //!< the roof: same reads and writes, no arithmetic
  std::optional<double> target{};  //!< percent of the roof that the project asks of this case

  [[nodiscard]] double percent_of_memcpy() const { return 100 * gbps / memcpy_gbps; }
  [[nodiscard]] double percent_of_stream() const { return 100 * gbps / stream_gbps; }
  [[nodiscard]] std::string json() const;
};

//! The percentage of its roof that the project asks of a function of a codec with f32 gradients.
[[nodiscard]] std::optional<double> target_percent(codec const& method, std::string const& function);

void print_header(std::ostream& out);
void print_row(std::ostream& out, record const& row);

}  // namespace gradwire::bench
