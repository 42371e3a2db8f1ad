#pragma once

#include <cstddef>
#include <span>
#include <vector>

#include "overlap/buckets.hpp"
#include "overlap/model.hpp"
#include "overlap/state.hpp"

namespace gradwire::overlap {

//! The owner residuals that this rank holds now.
[[nodiscard]] std::vector<saved_state::owner_run> owner_runs(std::span<bucket const> buckets);

//! Gives owner residuals a place in `buckets`: their own where every run has its counterpart there; otherwise all of
//! them, times the number of ranks, are added to this rank's worker residuals. Either way, without communication,
//! Σ applied + owner + (1/n)·Σ worker residuals = Σ mean gradients still holds (docs/design.md §8).
void place_owner_runs(std::span<saved_state::owner_run const> runs, std::span<bucket> buckets, model& into,
                      std::size_t ranks);

//! Throws errc::mismatch, naming the first difference, unless `state` is of this model, of rank `rank` of `ranks`; and
//! errc::corrupt_payload when it contradicts itself.
void check_state(saved_state const& state, model const& of, std::size_t rank, std::size_t ranks);

//! The worker residuals as `states`, of another number of ranks, have them: each rank gets their mean, with every owner
//! residual folded in.
void merge_residuals(std::span<saved_state const> states, model& into);

}  // namespace gradwire::overlap
