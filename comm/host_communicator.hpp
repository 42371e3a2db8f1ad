#pragma once

#include <atomic>
#include <functional>
#include <mutex>
#include <optional>
#include <string>
#include <vector>

#include <gradwire/communicator.hpp>
#include <gradwire/error.hpp>

namespace gradwire {

//! What transports whose operations block a host thread share: arguments are checked, bytes and collectives counted,
//! the blocking do_* is enqueued on the caller's host stream, and after a failure every later call throws.
//!
//! A transport implements do_all_gather, do_all_to_all, do_send, do_recv, split and abort. The other collectives have
//! defaults made of these; override them where the transport does better. do_* get checked arguments, run on one
//! thread at a time, must return within timeout() and report failures by throwing gradwire::error.
class host_communicator : public communicator {
 public:
  host_communicator(std::size_t rank, std::size_t size, std::chrono::milliseconds timeout);

  [[nodiscard]] std::size_t rank() const noexcept final { return rank_; }
  [[nodiscard]] std::size_t size() const noexcept final { return size_; }
  [[nodiscard]] std::chrono::milliseconds timeout() const noexcept final { return timeout_; }
  [[nodiscard]] comm_stats stats() const noexcept final;

  work all_gather(std::span<std::byte const> in, std::span<std::byte> out, std::span<std::size_t const> bytes,
                  stream_ref stream) final;
  work all_to_all(std::span<std::byte const> in, std::span<std::size_t const> send_bytes, std::span<std::byte> out,
                  std::span<std::size_t const> recv_bytes, stream_ref stream) final;
  work all_reduce(elements inout, std::size_t count, reduce_op op, stream_ref stream) final;
  work reduce_scatter(const_elements in, elements out, std::span<std::size_t const> counts, reduce_op op,
                      stream_ref stream) final;
  work broadcast(std::span<std::byte> inout, std::size_t root, stream_ref stream) final;
  work send(std::span<std::byte const> in, std::size_t peer, stream_ref stream) final;
  work recv(std::span<std::byte> out, std::size_t peer, stream_ref stream) final;
  work barrier(stream_ref stream) final;
  [[nodiscard]] std::unique_ptr<communicator> split(std::uint32_t color, std::uint32_t key) final;

  //! Operations enqueued and not yet ended.
  [[nodiscard]] std::size_t pending() const noexcept { return pending_.load(); }

 protected:
  using sizes = std::span<std::size_t const>;

  //! `in` may be the own part of `out`.
  virtual void do_all_gather(std::span<std::byte const> in, std::span<std::byte> out, sizes bytes) = 0;
  virtual void do_all_to_all(std::span<std::byte const> in, sizes send_bytes, std::span<std::byte> out,
                             sizes recv_bytes) = 0;
  virtual void do_send(std::span<std::byte const> in, std::size_t peer) = 0;
  virtual void do_recv(std::span<std::byte> out, std::size_t peer) = 0;
  [[nodiscard]] virtual std::unique_ptr<communicator> do_split(std::uint32_t color, std::uint32_t key) = 0;

  //! Default: reduce_scatter of even parts, then all_gather; sums in rank order.
  virtual void do_all_reduce(elements inout, std::size_t count, reduce_op op);
  //! Default: all_to_all, then a sum in rank order.
  virtual void do_reduce_scatter(const_elements in, elements out, sizes counts, reduce_op op);
  //! Default: all_to_all in which only the root sends.
  virtual void do_broadcast(std::span<std::byte> inout, std::size_t root);
  //! Default: all_gather of one byte each.
  virtual void do_barrier();

 private:
  // `body` runs on the stream; its failure is remembered.
  work launch(char const* operation, stream_ref stream, std::function<void()> body);
  void count(std::size_t bytes_sent) noexcept;
  void check_peer(char const* operation, std::size_t peer) const;
  void check_usable(char const* operation) const;
  void remember(error const& why);

  std::size_t rank_;
  std::size_t size_;
  std::chrono::milliseconds timeout_;
  std::atomic<std::size_t> bytes_sent_ = 0;
  std::atomic<std::size_t> collectives_ = 0;
  std::atomic<std::size_t> pending_ = 0;
  mutable std::mutex mutex_;
  std::optional<error> failure_;
};

//! Element counts of `parts` nearly equal parts of `count`; the first ones get one more.
[[nodiscard]] std::vector<std::size_t> even_parts(std::size_t count, std::size_t parts);

//! "rank 2", "ranks 1, 3 and 4".
[[nodiscard]] std::string name_ranks(std::span<std::size_t const> ranks);

}  // namespace gradwire
