#include "bench/micro/report.hpp"

#include <ostream>

#include <fmt/format.h>

#include <nlohmann/json.hpp>

namespace gradwire::bench {
namespace {

std::optional<double> value_of(codec const& method, std::string_view name) {
  auto const keys = method.entry().keys;
  for (std::size_t i = 0; i < keys.size(); ++i) {
    if (keys[i].name == name && method.params().given(i)) return method.params().real(i);
  }
  return std::nullopt;
}

}  // namespace

std::optional<double> target_percent(codec const& method, std::string const& function) {
  std::string_view const name = method.entry().name;
  if (name == "onebit" || name == "bf16") return 90;
  if (name == "quant") {
    auto const bits = value_of(method, "bits");
    if (bits == 8 || bits == 4) return method.traits().unbiased ? 40 : 75;
  }
  if (name == "topk" && value_of(method, "ratio") == 0.01 && function == "encode_with_feedback") return 30;
  return std::nullopt;
}

std::string record::json() const {
  return nlohmann::ordered_json{{"event", "bench"},
                                {"spec", spec},
                                {"function", function},
                                {"dtype", std::string{to_string(type)}},
                                {"count", count},
                                {"bytes_moved", bytes_moved},
                                {"gbps", gbps},
                                {"memcpy_gbps", memcpy_gbps},
                                {"percent_of_memcpy", percent_of_memcpy()},
                                {"stream_gbps", stream_gbps},
                                {"percent_of_stream", percent_of_stream()}}
      .dump();
}

void print_header(std::ostream& out) {
  out << fmt::format("{:<54} {:<21} {:>5} {:>8} {:>8} {:>9} {:>8} {:>8}  {}\n", "spec", "function", "dtype", "GB/s",
                     "memcpy", "%memcpy", "roof", "%roof", "target");
}

void print_row(std::ostream& out, record const& row) {
  std::string verdict;
  if (row.target) {
    verdict = fmt::format("{:.0f} {}", *row.target, row.percent_of_stream() >= *row.target ? "met" : "MISSED");
  }
  out << fmt::format("{:<54} {:<21} {:>5} {:>8.2f} {:>8.2f} {:>9.0f} {:>8.2f} {:>8.0f}  {}\n", row.spec, row.function,
                     to_string(row.type), row.gbps, row.memcpy_gbps, row.percent_of_memcpy(), row.stream_gbps,
                     row.percent_of_stream(), verdict)
      << std::flush;
}

}  // namespace gradwire::bench
