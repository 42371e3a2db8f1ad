#pragma once

#include <cstddef>
#include <functional>
#include <span>
#include <string_view>

#include <gradwire/exec.hpp>
#include <gradwire/stream.hpp>

#include "overlap/buckets.hpp"
#include "overlap/model.hpp"
#include "overlap/rollback.hpp"
#include "overlap/timeline.hpp"

namespace gradwire::overlap {

//! The streams that buckets pass through: encode, wire, decode. Work is enqueued in an order that depends on the bucket
//! alone, so all ranks issue the same collectives in the same order, and the wire never waits for a bucket that is not
//! launched yet.
class pipeline {
 public:
  //! `patience`: how long the producer of a gradient may take once its bucket was launched. `record` may be null.
  pipeline(model& of, exec const& on, std::chrono::milliseconds patience, timeline* record);

  //! Enqueues all stages of bucket `number`, whose segments index `gradients`, behind `producers`; returns the point at
  //! which its means are in place. Does not block. `of` must stay until then.
  event launch(bucket& of, std::size_t number, elements gradients, random_key key, std::span<event const> producers);
  //! Ends the step once all of `buckets` are through; returns the point behind all of it.
  event finish(std::vector<std::span<bucket>> buckets, std::size_t step);
  [[nodiscard]] stream_ref wire() noexcept { return wire_.ref(); }
  //! Blocks until all streams are idle; rethrows their first failure.
  void drain(std::chrono::milliseconds timeout);
  //! After a failure: blocks until no stream touches gradients any more, each for at most `timeout`.
  void quiesce(std::chrono::milliseconds timeout) noexcept;

 private:
  struct place {
    std::size_t step = 0;
    std::size_t bucket = 0;
    std::size_t chunk = 0;
  };

  void encode(chunk& of, reduction& how, reduction_call const& call, place at);
  void exchange(chunk& of, reduction& how, reduction_call const& call, place at, std::size_t exchange, event& local);
  void record(track row, std::string_view name, stream_ref stream, place at, std::size_t bytes,
              std::function<void()> const& enqueue_work);
  [[nodiscard]] exec on_stream(stream_ref stream) const;

  model& model_;
  exec on_;
  std::chrono::milliseconds patience_;
  timeline* timeline_;
  rollback rollback_;
  event step_done_;
  host_stream encode_{"gw-encode"};
  host_stream wire_{"gw-wire"};
  host_stream decode_{"gw-decode"};
};

}  // namespace gradwire::overlap
