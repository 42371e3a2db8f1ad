#pragma once

#include <cstddef>
#include <optional>
#include <span>
#include <string_view>

namespace gradwire::program::sweep {

//! The collectives that the sweep can time. Compression averages, so only all_reduce takes specs; the others move raw
//! bytes.
enum class collective_kind : std::uint8_t { all_reduce, reduce_scatter, all_gather, all_to_all, broadcast };

[[nodiscard]] std::string_view to_string(collective_kind kind) noexcept;
//! Throws errc::invalid_argument that lists the names.
[[nodiscard]] collective_kind parse_collective(std::string_view text);

//! What busbw is algbw times of: the share of the size that the busiest link of an ideal algorithm carries
//! (nccl-tests, doc/PERFORMANCE.md). Empty with one rank: nothing crosses a bus.
[[nodiscard]] std::optional<double> bus_factor(collective_kind kind, std::size_t ranks) noexcept;

//! Nearest-rank percentile (the smallest value with at least `percent` of all values at or below it). `values` is not
//! empty and need not be sorted; 0 < percent <= 100.
[[nodiscard]] double percentile(std::span<double const> values, double percent);

//! bytes / seconds in GB/s (10^9 bytes a second), from microseconds.
[[nodiscard]] double bandwidth_gbps(double bytes, double time_us) noexcept;

//! One size of a spec beside the dense baseline of the same run and setting.
struct duel {
  std::size_t bytes = 0;
  double time_us = 0;
  double dense_us = 0;
};

//! The smallest size from which on, in this range, every size is faster than dense; empty when the largest is not.
//! `duels` are in ascending order of bytes; sizes of 0 bytes do not count.
[[nodiscard]] std::optional<std::size_t> break_even_bytes(std::span<duel const> duels) noexcept;

}  // namespace gradwire::program::sweep
