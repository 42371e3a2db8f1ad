#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include <gradwire/communicator.hpp>
#include <gradwire/exec.hpp>
#include <gradwire/spec.hpp>

namespace gradwire {

//! A trained tensor, as the reducer sees it.
struct parameter {
  std::string name;                //!< unique; equal on all ranks
  std::vector<std::size_t> shape;  //!< empty for a scalar; the gradient is contiguous
  dtype type = dtype::f32;
  //! The caller's gradient memory: copied in when ready and written back with the mean. Null: the gradient lives in the
  //! reducer (`gradient(i)`), which saves both copies.
  void* gradient = nullptr;
};

struct reducer_options {
  spec method = spec::parse("none");
  std::vector<rule> rules{};
  std::size_t min_numel = 1024;              //!< smaller parameters go dense unless a rule says otherwise
  std::size_t first_bucket_bytes = 1 << 20;  //!< the bucket that is ready first is small, so that the wire starts early
  std::size_t bucket_bytes = std::size_t{25} << 20;
  std::size_t chunk_bytes = std::size_t{4} << 20;  //!< buckets above are cut, so that encode, wire and decode overlap
  std::uint64_t seed = 0;                          //!< equal on all ranks
  bool timeline = false;                           //!< record spans for write_timeline()
  exec on{};                                       //!< device and memory; on.stream is not used
};

//! Bytes are what this rank sent for gradients.
struct reducer_stats {
  std::size_t steps = 0;  //!< with those of the run that load_state() restored
  double raw_bytes = 0;   //!< had every gradient gone in f32 by the dense algorithm
  std::size_t wire_bytes = 0;
  std::size_t collectives = 0;
  double exposed_seconds = 0;  //!< time that synchronize() waited, measured
  std::size_t buckets = 0;     //!< of the current layout
};

//! Averages gradients while backward still runs. One per model and rank.
//!
//!   gradwire::reducer reducer{comm, parameters, {.method = gradwire::spec::parse("onebit+ef")}};
//!   for each step:   backward calls reducer.mark_ready(i) as soon as gradient i is complete;
//!                    reducer.synchronize(); optimizer step on the means.
//!
//! Buckets follow the order of the first backward (before it: the reverse of `parameters`), are launched strictly in
//! that order so that ranks agree, and never mix methods or dtypes. Residuals belong to parameters: they keep their
//! place when buckets are rebuilt: once, behind the first step, in the order that rank 0's backward had.
//!
//! When a mean is not finite, on every rank then, the step has to be skipped, as loss scalers do: all residuals are as
//! before it, on every rank. The constructor compares the configuration over all ranks (errc::mismatch). After an
//! exception from synchronize() the reducer and its communicator are unusable.
class reducer {
 public:
  //! `comm` must outlive the reducer. Also throws errc::invalid_argument for options out of range and for parameters
  //! without a name or with the same one.
  reducer(communicator& comm, std::vector<parameter> parameters, reducer_options options);
  //! Waits for what was launched; when a step failed, or an exception is on its way in the middle of one, aborts the
  //! communicator first, so that no rank waits. Never throws.
  ~reducer();
  reducer(reducer const&) = delete;
  reducer& operator=(reducer const&) = delete;

  //! Gradient i, shape and dtype as the parameter's, zero at first; stays where it is for the reducer's life. After
  //! synchronize() it holds the mean over ranks, equal on every rank.
  [[nodiscard]] void* gradient(std::size_t index);
  //! Sets every gradient to zero. Not between mark_ready and synchronize.
  void zero_gradients();

  //! Gradient i is complete for this step once `stream` is past this point (the null stream: now). Never blocks. Throws
  //! errc::invalid_argument for a second call in one step.
  void mark_ready(std::size_t index, stream_ref stream = {});
  //! Launches what was not marked (parameters without use in this step: their accumulated gradient counts), then makes
  //! `stream` wait for all means (the null stream: the caller). Ends the step. Rethrows the first failure and aborts
  //! the communicator, so that the other ranks end too. The first call blocks: the ranks agree on the order of buckets.
  void synchronize(stream_ref stream = {});

  //! While the guard lives, mark_ready does nothing: gradients add up locally. Error feedback happens once per
  //! synchronize().
  class no_sync_guard {
   public:
    ~no_sync_guard();
    no_sync_guard(no_sync_guard const&) = delete;
    no_sync_guard& operator=(no_sync_guard const&) = delete;

   private:
    friend class reducer;
    explicit no_sync_guard(reducer& owner);
    reducer& owner_;
  };
  [[nodiscard]] no_sync_guard no_sync();

  [[nodiscard]] reducer_stats stats() const;
  //! The worker residual of parameter i; empty when its method has no error feedback. For inspection between steps.
  [[nodiscard]] std::span<float const> residual(std::size_t index) const;

  //! Everything that a later step depends on: step count, seed, bucket order, worker and owner residuals, behind a
  //! header and checksum. A run restored from it is bit-equal to one that was never interrupted.
  [[nodiscard]] std::vector<std::byte> save_state() const;
  //! `states`: what save_state() gave, by old rank. With as many as there are ranks now, each rank takes its own and
  //! nothing changes. With another number, owner residuals are folded into worker residuals and those are dealt out so
  //! that (1/n)·Σ residuals keeps its value. Throws errc::corrupt_payload or errc::mismatch, and is then unchanged.
  void load_state(std::span<std::vector<std::byte> const> states);

  //! Chrome/Perfetto JSON of every bucket's ready, encode, wire, decode and exposed spans so far. Needs
  //! options.timeline.
  void write_timeline(std::filesystem::path const& file) const;

  struct impl;

 private:
  std::unique_ptr<impl> impl_;
};

}  // namespace gradwire
