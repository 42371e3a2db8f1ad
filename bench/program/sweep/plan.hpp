#pragma once

#include <cstddef>
#include <functional>
#include <string>
#include <vector>

#include <gradwire/communicator.hpp>
#include <gradwire/spec.hpp>

#include "program/sweep/measure.hpp"

namespace gradwire::program::sweep {

//! A spec and what it is called in tables and records: as it was written, with the reduction where that came on top.
struct sweep_method {
  spec how;
  std::string label;
};

//! What is measured on every world of a sweep.
struct sweep_plan {
  collective_kind collective = collective_kind::all_reduce;
  std::vector<sweep_method> methods;  //!< all_reduce only; the dense baseline first
  std::vector<std::size_t> counts;    //!< elements
  measure_options options;

  [[nodiscard]] std::size_t cases() const noexcept;
  //! Characters of the longest label: the width of the table's column.
  [[nodiscard]] std::size_t spec_width() const;
};

//! A method that cannot be measured, with the reason (it cannot go by that reduction, …).
struct skipped_method {
  std::string spec;
  std::string reason;
};

//! Element counts: bytes from `min_bytes`, times `factor`, up to `max_bytes`, each rounded down to whole elements;
//! equal ones once. 0 is followed by one element. Throws program_error for a factor under 2 and for a maximum under the
//! minimum.
[[nodiscard]] std::vector<std::size_t> sweep_counts(std::size_t min_bytes, std::size_t max_bytes, std::size_t factor,
                                                    dtype type);

//! Every spec by every reduction, each once, after the dense baseline `none` (put in when it is not asked for). "auto"
//! leaves a spec as it is. Throws errc::invalid_argument or program_error: an unknown spec or reduction, modifiers that
//! a sweep cannot show (warmup), or a spec whose own via(...) says otherwise than `reductions`.
[[nodiscard]] std::vector<sweep_method> sweep_methods(std::vector<std::string> const& specs,
                                                      std::vector<std::string> const& reductions);

//! Runs the plan on this world, method by method from the smallest size up. `done` and `skipped` are called on rank 0
//! as results come. Collective.
void run_plan(communicator& comm, sweep_plan const& plan, std::function<void(case_result const&)> const& done,
              std::function<void(skipped_method const&)> const& skipped);

}  // namespace gradwire::program::sweep
