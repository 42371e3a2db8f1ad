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

//! The residuals of `of` as they are now, in a state whose other fields are empty but for `owner_runs`.
[[nodiscard]] saved_state capture(model& of, std::vector<saved_state::owner_run> owner_runs);

//! What this rank restores from: its own of `states` when there are as many as ranks, else all. Throws errc::mismatch,
//! naming the first difference, unless they are of this model, of ranks 0, 1, … in order, and of one step; and
//! errc::corrupt_payload when one is damaged or contradicts itself.
[[nodiscard]] std::vector<saved_state> read_states(std::span<std::vector<std::byte> const> states, model const& of,
                                                   std::size_t rank, std::size_t ranks);

//! The worker residuals of one state, of the same rank and number of ranks.
void restore_residuals(saved_state const& state, model& into);

//! The worker residuals as `states`, of another number of ranks, have them: each rank gets their mean, with every owner
//! residual folded in.
void merge_residuals(std::span<saved_state const> states, model& into);

}  // namespace gradwire::overlap
