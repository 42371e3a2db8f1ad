#include "program/sweep/statistics.hpp"

#include <algorithm>
#include <array>
#include <cmath>
#include <vector>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <gradwire/error.hpp>

namespace gradwire::program::sweep {

namespace {

constexpr std::array<std::string_view, 5> collective_names{"all_reduce", "reduce_scatter", "all_gather", "all_to_all",
                                                           "broadcast"};

}  // namespace

std::string_view to_string(collective_kind kind) noexcept { return collective_names[static_cast<std::size_t>(kind)]; }

collective_kind parse_collective(std::string_view text) {
  auto const found = std::find(collective_names.begin(), collective_names.end(), text);
  if (found == collective_names.end()) {
    throw error{errc::invalid_argument,
                fmt::format("--collective {}: not known here; use {}", text, fmt::join(collective_names, ", "))};
  }
  return static_cast<collective_kind>(found - collective_names.begin());
}

std::optional<double> bus_factor(collective_kind kind, std::size_t ranks) noexcept {
  if (ranks < 2) return std::nullopt;
  double const share = static_cast<double>(ranks - 1) / static_cast<double>(ranks);
  if (kind == collective_kind::broadcast) return 1.0;
  return kind == collective_kind::all_reduce ? 2 * share : share;
}

double percentile(std::span<double const> values, double percent) {
  expects(!values.empty() && percent > 0 && percent <= 100, "percentile: needs values and 0 < percent <= 100");
  std::vector<double> sorted{values.begin(), values.end()};
  // The small shrink keeps products such as 0.99·100 from being taken for a hair more than 99.
  double const rank = std::ceil(percent / 100 * static_cast<double>(sorted.size()) - 1e-9);
  auto const at = sorted.begin() + static_cast<std::ptrdiff_t>(std::max(rank, 1.0)) - 1;
  std::nth_element(sorted.begin(), at, sorted.end());
  return *at;
}

double bandwidth_gbps(double bytes, double time_us) noexcept { return time_us > 0 ? bytes / (time_us * 1e3) : 0; }

std::optional<std::size_t> break_even_bytes(std::span<duel const> duels) noexcept {
  std::optional<std::size_t> from;
  for (std::size_t i = duels.size(); i-- > 0;) {
    if (duels[i].bytes == 0) continue;
    if (!(duels[i].time_us < duels[i].dense_us)) break;
    from = duels[i].bytes;
  }
  return from;
}

}  // namespace gradwire::program::sweep
