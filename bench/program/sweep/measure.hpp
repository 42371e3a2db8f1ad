#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <optional>
#include <string>

#include <gradwire/communicator.hpp>
#include <gradwire/dtype.hpp>
#include <gradwire/spec.hpp>

#include "program/sweep/result.hpp"

namespace gradwire::program::sweep {

struct measure_options {
  dtype type = dtype::f32;
  //! Timed calls. Empty: 50, fewer (down to 5) where they would take more than about a second.
  std::optional<std::size_t> iterations;
  std::size_t warmup = 3;  //!< calls before; cut short once they took half a second, unless iterations are given
  std::uint64_t seed = 1;  //!< of inputs and random numbers
  //! Through the reducer: in chunks whose encoding, sending and decoding overlap. Else one stage after the other.
  bool overlap = false;
  std::string counted_interface{};  //!< network interface whose bytes are counted during the timed calls; empty: none
};

//! Averages `count` elements with `method`, times it and checks every element on every rank (see reduction_model).
//! Without error feedback the last timed call is checked; with it the first three are, as residuals move on, and after
//! the timed ones that all ranks agree. Gaussian gradients; where only exact sums can be checked (dense), whole numbers
//! are timed and checked, and one more call gives nmse. Collective: equal arguments on all ranks; equal results.
[[nodiscard]] case_result measure_all_reduce(communicator& comm, spec const& method, std::size_t count,
                                             measure_options const& options);

//! The same for a collective that moves raw bytes; `count` elements are the whole array.
[[nodiscard]] case_result measure_raw(communicator& comm, collective_kind kind, std::size_t count,
                                      measure_options const& options);

}  // namespace gradwire::program::sweep
