#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "comm/host_communicator.hpp"
#include "comm/rendezvous/board.hpp"
#include "comm/rendezvous/verdict.hpp"

namespace gradwire {

//! What transports share that move messages between processes: collectives as lists of messages that are all under way
//! at once, and, through a board, who is to blame when they fail.
//!
//! A transport implements exchange, spoil and do_split, calls watch_board() at the end of its constructor and
//! leave_group() first thing in its destructor, for the board's thread calls spoil().
class message_communicator : public host_communicator {
 public:
  void abort() noexcept final;

 protected:
  using clock = board::clock;
  enum class operation_code : std::uint8_t {
    all_gather = 1,
    all_to_all,
    broadcast,
    barrier,
    point_to_point,
    all_reduce
  };

  struct message {
    std::size_t peer = 0;
    std::byte* data = nullptr;
    std::size_t bytes = 0;
    // Both ends know these; messages that differ in one must never meet.
    operation_code code{};
    std::uint64_t number = 0;  //!< running number of the collective, or of the letters to and from this peer
  };

  //! `members[r]` is the board's number of the group's rank r; `group` names it on the board, "0.1c2" one split from
  //! "0". With one rank there is no board.
  message_communicator(std::shared_ptr<board> shared, std::string group, std::vector<std::size_t> members,
                       std::size_t rank, std::chrono::milliseconds timeout);

  //! Ends when all have arrived. After a throw nothing touches the buffers any more; a transport that cannot promise it
  //! whatever its peers do says when. Throws whatever the transport does: it becomes the group's error.
  virtual void exchange(std::span<message const> sends, std::span<message const> receives,
                        clock::time_point deadline) = 0;
  //! Ends every wait of this group on this rank, now and later. Any thread, any number of times.
  virtual void spoil() noexcept = 0;

  void watch_board();
  void leave_group() noexcept;

  //! Runs an operation over the transport; whatever it throws becomes the group's error.
  template <class Body>
  void attempt(std::string const& operation, Body body) {
    check_not_aborted();
    if (size() == 1) return;
    auto const deadline = clock::now() + timeout();
    try {
      body(deadline);
    } catch (std::exception const& why) {
      fail(clock::now() >= deadline, operation, why.what());
    }
  }
  //! Throws the group's error.
  [[noreturn]] void fail(bool timed_out, std::string const& operation, std::string const& detail);

  //! The number of the next collective.
  [[nodiscard]] std::uint64_t next_number() noexcept { return ++sequence_; }
  [[nodiscard]] std::string const& group() const noexcept { return group_; }
  //! By rank in the group, ranks on the board.
  [[nodiscard]] std::vector<std::size_t> const& members() const noexcept { return members_; }
  [[nodiscard]] verdict const& judge() const noexcept { return *verdict_; }

  //! The ranks that chose `color`, by (key, rank here): what a split begins with.
  struct part {
    std::string group;
    std::vector<std::size_t> ranks;    //!< here
    std::vector<std::size_t> members;  //!< on the board
    std::size_t place = 0;             //!< this rank's in them
  };
  [[nodiscard]] part agree_on_part(std::uint32_t color, std::uint32_t key);

  //! "sum of 7 f32", for the names of operations.
  [[nodiscard]] static std::string to_text(dtype type, reduce_op op, std::size_t count);

  void do_all_gather(std::span<std::byte const> in, std::span<std::byte> out, sizes bytes) final;
  void do_all_to_all(std::span<std::byte const> in, sizes send_bytes, std::span<std::byte> out, sizes recv_bytes) final;
  void do_broadcast(std::span<std::byte> inout, std::size_t root) final;
  void do_barrier() final;
  void do_send(std::span<std::byte const> in, std::size_t peer) final;
  void do_recv(std::span<std::byte> out, std::size_t peer) final;

  // The messages of an all_gather and an all_to_all, for operations that are made of them.
  void gather_parts(std::span<std::byte const> in, std::span<std::byte> out, sizes bytes, operation_code code,
                    std::uint64_t number, clock::time_point deadline);
  void exchange_parts(std::span<std::byte const> in, sizes send_bytes, std::span<std::byte> out, sizes recv_bytes,
                      operation_code code, std::uint64_t number, clock::time_point deadline);

 private:
  void check_not_aborted() const;
  // Every other rank, beginning `1` after this one: so not all ranks send to one first.
  [[nodiscard]] std::vector<std::size_t> others() const;

  std::shared_ptr<board> board_;
  std::string group_;
  std::vector<std::size_t> members_;
  std::optional<verdict> verdict_;
  std::atomic<bool> aborted_ = false;
  std::uint64_t sequence_ = 0;
  std::uint64_t splits_ = 0;
  std::vector<std::uint64_t> sent_to_;
  std::vector<std::uint64_t> received_from_;
  std::optional<board::subscription> watch_;
};

}  // namespace gradwire
