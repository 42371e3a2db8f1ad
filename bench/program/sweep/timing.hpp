#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <optional>
#include <span>
#include <vector>

#include <gradwire/communicator.hpp>

#include "program/sweep/measure.hpp"

namespace gradwire::program::sweep {

struct timing {
  std::size_t iterations = 0;
  double p50_us = 0;
  double p99_us = 0;
  //! That the interface of the busiest rank sent in a timed call and the barrier before it: the mean over calls.
  std::optional<std::size_t> interface_bytes;
};

//! Runs `call` warm-up and timed times; before each, `prepare` (not timed) and a barrier. An iteration takes as long as
//! on its slowest rank. Collective. Throws interrupted_error between calls after Ctrl-C.
[[nodiscard]] timing time_calls(communicator& comm, measure_options const& options,
                                std::function<void()> const& prepare, std::function<void()> const& call);

//! `value` of every rank, in rank order. Collective.
template <class T>
[[nodiscard]] std::vector<T> gather(communicator& comm, T const& value) {
  std::vector<T> all(comm.size());
  std::vector<std::size_t> const bytes(comm.size(), sizeof(T));
  comm.all_gather(std::as_bytes(std::span{&value, 1}), std::as_writable_bytes(std::span{all}), bytes, {}).wait();
  return all;
}

//! What every case tells, of one call in which this rank sent `sent` bytes. Collective.
[[nodiscard]] case_result describe(communicator& comm, measure_options const& options, std::size_t count,
                                   std::size_t sent, timing const& time);

//! How many of the elements of `width` bytes in `mine` differ, bit by bit, from rank 0's; then `mine` holds rank 0's.
//! Collective.
[[nodiscard]] std::size_t replace_by_first_ranks(communicator& comm, std::span<std::byte> mine, std::size_t width);

}  // namespace gradwire::program::sweep
