#pragma once

#include <cstddef>
#include <filesystem>
#include <memory>
#include <span>
#include <vector>

#include <gradwire/communicator.hpp>
#include <gradwire/reducer.hpp>
#include <gradwire/stream.hpp>

namespace gradwire {

//! Where a parameter's gradient lies in a bucket: parameter `index` of the averager, its first element at `offset`.
struct bucket_slot {
  std::size_t index = 0;
  std::size_t offset = 0;
  friend bool operator==(bucket_slot const&, bucket_slot const&) = default;
};

//! Averages gradients in buckets that somebody else lays out and hands over one by one while backward runs: what a
//! communication hook of PyTorch's DistributedDataParallel needs. `reducer` is for those who have no buckets.
//!
//! As with `reducer`, methods and residuals belong to parameters, so buckets may be laid out anew at any step; a bucket
//! may mix methods. All ranks hand over the same buckets in the same order. When a mean is not finite, all residuals
//! are as before the step, on every rank. After a failure the averager and its communicator are unusable.
class bucket_averager {
 public:
  //! parameter::gradient must be null; of the options, those about bucket sizes are not used. `comm` must outlive the
  //! averager and have no other user. Collective: compares the configuration over all ranks (errc::mismatch). Throws
  //! errc::invalid_argument for options out of range and names that are empty or not unique.
  bucket_averager(communicator& comm, std::vector<parameter> parameters, reducer_options options);
  //! Waits for what was started; aborts the communicator first when something failed. Never throws.
  ~bucket_averager();
  bucket_averager(bucket_averager const&) = delete;
  bucket_averager& operator=(bucket_averager const&) = delete;

  //! Averages the next bucket of this step in place, behind what is enqueued on `stream`; returns the point behind
  //! which `memory` holds the means, equal on all ranks. The memory must stay, untouched, until then. `slots` do not
  //! overlap; `last`: this bucket ends the step. Does not block, unless the bucket has another layout than that of this
  //! number in the step before. Throws errc::invalid_argument for slots that do not fit, and the failure of an earlier
  //! bucket. A failure of this one comes out of the event, on every rank. Once either has happened no bucket's memory
  //! is touched any more.
  [[nodiscard]] event average(elements memory, std::span<bucket_slot const> slots, bool last, stream_ref stream = {});

  //! exposed_seconds: from the call with `last` to the end of the step.
  [[nodiscard]] reducer_stats stats() const;
  //! As those of `reducer`. Between steps, and once all events were reached.
  [[nodiscard]] std::span<float const> residual(std::size_t index) const;
  [[nodiscard]] std::vector<std::byte> save_state() const;
  void load_state(std::span<std::vector<std::byte> const> states);
  void write_timeline(std::filesystem::path const& file) const;

 private:
  struct impl;
  std::unique_ptr<impl> impl_;
};

}  // namespace gradwire
