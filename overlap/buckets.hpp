#pragma once

#include <cstddef>
#include <memory>
#include <span>
#include <vector>

#include <gradwire/reduction.hpp>

#include "overlap/model.hpp"

namespace gradwire::overlap {

//! A part of a bucket that goes through encode, wire and decode by itself, so that neighbours overlap.
struct chunk {
  std::unique_ptr<reduction> method;
  std::unique_ptr<reduction> warmup;  //!< dense f32, for the first steps; null when the method has no warm-up
  bool copied = false;                //!< some of its gradients are the caller's memory
  std::vector<float> owner_shadow;    //!< owner residuals as they were before this step
};

//! Parameters of one group that are reduced together. Launched in index order on every rank.
struct bucket {
  std::vector<std::size_t> parameters;
  dtype type = dtype::f32;
  bool feedback = false;
  std::size_t warmup_steps = 0;
  std::vector<chunk> chunks;
  std::size_t pending = 0;  //!< parameters that are not ready yet in this step
};

//! What the planning of buckets looks at, of one parameter.
struct bucket_item {
  std::size_t group = 0;
  std::size_t bytes = 0;
};

//! Which parameters share a bucket, in launch order. `order`: parameters as backward completes them. A group's bucket
//! is closed once it holds `first_bytes` (its first one) or `bytes`; buckets are sorted by when their last member is
//! ready, so that in-order launch holds none of them back.
[[nodiscard]] std::vector<std::vector<std::size_t>> plan_buckets(std::span<bucket_item const> parameters,
                                                                 std::span<std::size_t const> order,
                                                                 std::size_t first_bytes, std::size_t bytes);

//! The chunks of a bucket whose gradients lie at `segments`, of parameters of one group, with their reductions.
[[nodiscard]] std::vector<chunk> make_chunks(communicator& comm, model const& of, std::span<segment const> segments,
                                             reducer_options const& options);

//! What launching `of` once will do is added to the wire bytes and collectives of `totals`, whose steps say which step
//! it is. Returns the number of collectives.
std::size_t count(bucket const& of, reducer_stats& totals);

//! The buckets with their chunks and reductions.
[[nodiscard]] std::vector<bucket> make_buckets(communicator& comm, model const& of, std::span<std::size_t const> order,
                                               reducer_options const& options);

}  // namespace gradwire::overlap
