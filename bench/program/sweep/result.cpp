#include "program/sweep/result.hpp"

#include <algorithm>
#include <map>
#include <utility>

#include <fmt/format.h>

#include <gradwire/reduction.hpp>

#include "program/common/context.hpp"

namespace gradwire::program::sweep {
namespace {

std::string_view redop_of(collective_kind kind) {
  switch (kind) {
    case collective_kind::all_reduce: return "avg";
    case collective_kind::reduce_scatter: return "sum";
    default: return "none";
  }
}

// Three significant digits at every size, as wide as nccl-tests' columns.
std::string figure(std::optional<double> const& value, int decimals) {
  if (!value) return "N/A";
  if (*value != 0 && *value < 0.005) return fmt::format("{:.1e}", *value);
  return *value < 1e5 ? fmt::format("{:.{}f}", *value, decimals) : fmt::format("{:.0f}", *value);
}

template <class T>
T field(record const& line, char const* key) {
  try {
    return line.at(key).get<T>();
  } catch (record::exception const& failure) {
    throw program_error{fmt::format("not a record of a sweep ('{}': {}): {}", key, failure.what(), line.dump())};
  }
}

}  // namespace

double case_result::algbw_gbps() const noexcept { return bandwidth_gbps(static_cast<double>(bytes()), time_us); }

std::optional<double> case_result::busbw_gbps() const noexcept {
  auto const factor = bus_factor(collective, ranks);
  if (!factor) return std::nullopt;
  return *factor * algbw_gbps();
}

std::optional<double> case_result::wirebw_gbps() const noexcept {
  if (wire_bytes == 0) return std::nullopt;
  return bandwidth_gbps(static_cast<double>(wire_bytes), time_us);
}

std::optional<double> case_result::ratio() const noexcept {
  if (wire_bytes == 0 || collective != collective_kind::all_reduce) return std::nullopt;
  return dense_bytes(count, ranks, type) / static_cast<double>(wire_bytes);
}

std::string_view case_result::note() const noexcept {
  if (ranks < 2) return "one rank: nothing crosses a bus or a wire, so busbw, wirebw and ratio are undefined";
  if (wire_bytes == 0) return "nothing is sent, so wirebw and ratio are undefined";
  if (collective != collective_kind::all_reduce)
    return "raw bytes: nothing is encoded, so ratio and nmse are undefined";
  return {};
}

std::string case_result::setting() const {
  return fmt::format("{}, {} rank{}", transport, ranks, ranks == 1 ? "" : "s");
}

record to_record(case_result const& result) {
  record line{{"event", "case"},
              {"collective", to_string(result.collective)},
              {"transport", result.transport},
              {"reduction", result.reduction},
              {"spec", result.spec},
              {"canonical", result.canonical},
              {"dtype", to_string(result.type)},
              {"overlap", result.overlap},
              {"ranks", result.ranks},
              {"count", result.count},
              {"bytes", result.bytes()},
              {"iterations", result.iterations},
              {"time_us", result.time_us},
              {"p99_us", result.p99_us},
              {"algbw_gbps", result.algbw_gbps()},
              {"busbw_gbps", optional_record(result.busbw_gbps())},
              {"wire_bytes", result.wire_bytes},
              {"wirebw_gbps", optional_record(result.wirebw_gbps())},
              {"ratio", optional_record(result.ratio())},
              {"nmse", optional_record(result.nmse)},
              {"wrong", result.wrong}};
  if (result.interface_bytes) line["interface_bytes"] = *result.interface_bytes;
  if (!result.note().empty()) line["note"] = result.note();
  return line;
}

case_result from_record(record const& line) {
  case_result result;
  result.collective = parse_collective(field<std::string>(line, "collective"));
  result.transport = field<std::string>(line, "transport");
  result.reduction = field<std::string>(line, "reduction");
  result.spec = field<std::string>(line, "spec");
  result.canonical = field<std::string>(line, "canonical");
  result.type = parse_dtype(field<std::string>(line, "dtype"));
  result.overlap = field<bool>(line, "overlap");
  result.ranks = field<std::size_t>(line, "ranks");
  result.count = field<std::size_t>(line, "count");
  result.iterations = field<std::size_t>(line, "iterations");
  result.time_us = field<double>(line, "time_us");
  result.p99_us = field<double>(line, "p99_us");
  result.wire_bytes = field<std::size_t>(line, "wire_bytes");
  if (line.contains("interface_bytes")) result.interface_bytes = field<std::size_t>(line, "interface_bytes");
  if (line.contains("nmse") && !line["nmse"].is_null()) result.nmse = field<double>(line, "nmse");
  result.wrong = field<std::size_t>(line, "wrong");
  return result;
}

std::string table_header(std::size_t spec_width) {
  constexpr auto line = "#{:>11}{:>13}{:>6}{:>7}{:>6}{:>11}{:>9}{:>9}{:>8}  {:<{}}  {:<10}{:>8}{:>9}{:>10}{:>11}\n";
  return fmt::format(line, "size", "count", "type", "redop", "root", "time", "algbw", "busbw", "#wrong", "spec",
                     spec_width, "reduction", "ratio", "wirebw", "nmse", "p99") +
         fmt::format(line, "(B)", "(elements)", "", "", "", "(us)", "(GB/s)", "(GB/s)", "", "", spec_width, "", "(x)",
                     "(GB/s)", "", "(us)");
}

std::string table_row(case_result const& result, std::size_t spec_width) {
  return fmt::format(" {:>11}{:>13}{:>6}{:>7}{:>6}{:>11}{:>9}{:>9}{:>8}  {:<{}}  {:<10}{:>8}{:>9}{:>10}{:>11}\n",
                     result.bytes(), result.count, to_string(result.type), redop_of(result.collective),
                     result.collective == collective_kind::broadcast ? 0 : -1, figure(result.time_us, 2),
                     figure(result.algbw_gbps(), 2), figure(result.busbw_gbps(), 2), result.wrong, result.spec,
                     spec_width, result.reduction, figure(result.ratio(), 2), figure(result.wirebw_gbps(), 2),
                     result.nmse ? fmt::format("{:.2e}", *result.nmse) : "N/A", figure(result.p99_us, 2));
}

bool is_dense_baseline(case_result const& result) {
  return result.collective == collective_kind::all_reduce && result.reduction == "dense" &&
         result.spec.starts_with("none");
}

std::vector<break_even> break_evens(std::vector<case_result> const& results) {
  std::map<std::pair<std::string, std::size_t>, double> dense;  // by setting and bytes
  for (auto const& result : results) {
    if (is_dense_baseline(result)) dense.emplace(std::pair{result.setting(), result.bytes()}, result.time_us);
  }
  std::vector<break_even> found;
  std::vector<std::vector<duel>> duels;
  for (auto const& result : results) {
    auto const baseline = dense.find({result.setting(), result.bytes()});
    if (is_dense_baseline(result) || baseline == dense.end()) continue;
    auto const known = std::find_if(found.begin(), found.end(), [&](break_even const& one) {
      return one.setting == result.setting() && one.spec == result.spec;
    });
    auto const index = static_cast<std::size_t>(known - found.begin());
    if (known == found.end()) {
      found.push_back({.setting = result.setting(), .spec = result.spec, .reduction = result.reduction, .bytes = {}});
      duels.emplace_back();
    }
    duels[index].push_back({result.bytes(), result.time_us, baseline->second});
    double const speedup = baseline->second / result.time_us;
    if (result.bytes() >= found[index].last_bytes) {
      found[index].last_speedup = speedup;
      found[index].last_bytes = result.bytes();
    }
    if (result.bytes() > 0 && speedup > found[index].best_speedup) {
      found[index].best_speedup = speedup;
      found[index].best_bytes = result.bytes();
    }
  }
  for (std::size_t i = 0; i < found.size(); ++i) {
    std::sort(duels[i].begin(), duels[i].end(), [](duel const& a, duel const& b) { return a.bytes < b.bytes; });
    found[i].bytes = break_even_bytes(duels[i]);
  }
  return found;
}

}  // namespace gradwire::program::sweep
