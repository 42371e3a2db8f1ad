#pragma once

#include <cstddef>
#include <span>

#include <gradwire/buffer.hpp>

#include "overlap/buckets.hpp"
#include "overlap/model.hpp"

namespace gradwire::overlap {

//! Undoes what a step did to the residuals when any of its means is not finite. Such a step is skipped by its loss
//! scaler, on every rank, since means are equal on all; without this, ranks with finite gradients would have put their
//! share of the skipped step into residuals, and taken out of them what was sent for nothing.
//!
//! Calls are ordered by the caller: keep before encode, keep_owner before sum, inspect behind decode, settle behind
//! all.
class rollback {
 public:
  rollback(model& of, std::pmr::memory_resource* memory);

  void keep(std::span<segment const> segments) noexcept;
  void keep_owner(chunk& of) const;
  void inspect(elements means, std::span<segment const> segments) noexcept;
  //! Ends step `step`; restores the residuals of all buckets that use them by then, if a mean was not finite.
  void settle(std::span<std::span<bucket> const> buckets, std::size_t step) noexcept;

 private:
  void restore(bucket& of) const noexcept;

  model& model_;
  buffer shadow_;  // laid out as the residual arena
  bool spoiled_ = false;
};

//! Whether every element of the segments is a number.
[[nodiscard]] bool all_finite(const_elements in, std::span<segment const> segments) noexcept;

}  // namespace gradwire::overlap
