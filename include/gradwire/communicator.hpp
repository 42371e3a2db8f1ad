#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string_view>

#include <gradwire/dtype.hpp>
#include <gradwire/stream.hpp>

namespace gradwire {

enum class reduce_op : std::uint8_t { sum, max, min };

//! What a transport does natively.
struct comm_caps {
  bool device_buffers = false;  //!< takes device memory
  bool in_order_sum = false;    //!< all_reduce adds in rank order, so results do not depend on the transport
};

//! What one rank has done so far. Bytes are those this rank sends by the algorithm's count: all_gather (n−1)·own,
//! all_to_all all but its own part, all_reduce 2(n−1)/n·S, reduce_scatter (n−1)/n·S, broadcast (n−1)·S at the root.
struct comm_stats {
  std::size_t bytes_sent = 0;
  std::size_t collectives = 0;
};

//! Completion of one collective.
class work {
 public:
  work() = default;
  explicit work(event done) : done_{std::move(done)} {}
  //! Device streams and host streams are made to wait; with the null host stream the caller blocks. Rethrows the
  //! collective's error, on the host or in the stream that waits.
  void wait(stream_ref stream = {}) const { gradwire::wait(stream, done_); }
  [[nodiscard]] event const& done() const noexcept { return done_; }

 private:
  event done_;
};

//! One rank's end of a group: moves bytes and adds numbers, knows nothing of compression.
//!
//! Collectives are enqueued on `stream` and return at once (the null host stream runs them inline); buffers must live
//! until the stream is past them. All ranks issue the same collectives in the same order, from one stream at a time.
//! Every operation ends within the group's timeout: errc::timeout when a rank is missing, errc::communicator when one
//! failed or aborted, naming the rank where it is known. After either, the group is unusable and every later call
//! throws. Byte counts may be 0 and differ by rank. In and out must not overlap unless said.
class communicator {
 public:
  virtual ~communicator() = default;

  [[nodiscard]] virtual std::size_t rank() const noexcept = 0;
  [[nodiscard]] virtual std::size_t size() const noexcept = 0;
  [[nodiscard]] virtual std::string_view transport() const noexcept = 0;
  [[nodiscard]] virtual comm_caps caps() const noexcept = 0;
  [[nodiscard]] virtual comm_stats stats() const noexcept = 0;
  [[nodiscard]] virtual std::chrono::milliseconds timeout() const noexcept = 0;

  //! Rank r contributes `bytes[r]` bytes (`bytes` has size() entries, equal on all ranks); `out` gets all contributions
  //! in rank order. `in` may be the own part of `out`.
  virtual work all_gather(std::span<std::byte const> in, std::span<std::byte> out, std::span<std::size_t const> bytes,
                          stream_ref stream) = 0;
  //! Part r of `in` goes to rank r; `out` gets the parts for this rank in rank order. Sizes in bytes, size() entries.
  virtual work all_to_all(std::span<std::byte const> in, std::span<std::size_t const> send_bytes,
                          std::span<std::byte> out, std::span<std::size_t const> recv_bytes, stream_ref stream) = 0;
  //! In place; every rank ends with the same bytes. f16 and bf16 are added in f32 and rounded at each hop.
  virtual work all_reduce(elements inout, std::size_t count, reduce_op op, stream_ref stream) = 0;
  //! `in` holds sum(counts) elements, `out` counts[rank()]: the reduction of that rank's part.
  virtual work reduce_scatter(const_elements in, elements out, std::span<std::size_t const> counts, reduce_op op,
                              stream_ref stream) = 0;
  //! Ends with the root's bytes on every rank. Here and below: throws errc::invalid_argument for a root or peer that is
  //! no rank of the group, or is this rank where another is due.
  virtual work broadcast(std::span<std::byte> inout, std::size_t root, stream_ref stream) = 0;
  //! A send matches the receive of equal size that its peer issues in the same order.
  virtual work send(std::span<std::byte const> in, std::size_t peer, stream_ref stream) = 0;
  virtual work recv(std::span<std::byte> out, std::size_t peer, stream_ref stream) = 0;
  virtual work barrier(stream_ref stream) = 0;
  //! A new group of the ranks that pass the same `color`, ordered by (key, rank). Collective; blocks.
  [[nodiscard]] virtual std::unique_ptr<communicator> split(std::uint32_t color, std::uint32_t key) = 0;
  //! Fails this group on every rank, now: waiting operations end with errc::communicator. Any thread may call it.
  virtual void abort() noexcept = 0;
};

}  // namespace gradwire
