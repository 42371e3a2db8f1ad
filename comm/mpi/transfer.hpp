#pragma once

#include <mpi.h>

#include <cstddef>
#include <span>
#include <vector>

#include "comm/mpi/session.hpp"

namespace gradwire::mpi {

//! Messages under way, both ways, none of which blocks.
//!
//! MPI cannot take back a send, nor a receive whose sender has come. So that nobody touches a buffer after the call
//! that was given it has thrown, small messages are sent from a copy, and a large one goes in pieces, each of which is
//! sent once its receiver has said that it waits for it: what is under way when one end gives up is one piece, which is
//! taken at once, or its receiver is in trouble, too.
class transfer {
 public:
  struct limits {
    std::size_t copied_bytes = std::size_t{64} << 10;  //!< up to this a message is small, on both ends
    std::size_t piece_bytes = std::size_t{2} << 20;    //!< a large one goes in pieces of this, one after the other
  };
  //! The tag with this bit is that of letters that say "I wait for this"; messages' own must not have it.
  static constexpr int ready_tag = 1 << 14;

  explicit transfer(MPI_Comm comm) : transfer{comm, limits{}} {}
  transfer(MPI_Comm comm, limits most) : comm_{comm}, limits_{most} {}

  //! `bytes` must live until done() or abandon(). Between two ranks one message of a tag is under way at a time. Ends
  //! that know another size: an error where that is seen, at the sender of a large message, else at the receiver; where
  //! the message is small at the receiver only, neither sees it, and both wait.
  void send(std::size_t peer, int tag, std::span<std::byte const> bytes);
  void receive(std::size_t peer, int tag, std::span<std::byte> bytes);

  //! Lets MPI work; true when a step was done. Throws std::runtime_error.
  bool advance();
  [[nodiscard]] bool done() const noexcept { return open_ == 0; }
  //! Bytes of pieces that are on their way now, or whose sender has not come.
  [[nodiscard]] std::size_t moving_bytes() const;
  //! The peers of what is not done.
  [[nodiscard]] std::vector<std::size_t> waits_for() const;

  //! Gives up: afterwards nothing touches the buffers, except where a peer stops in the middle of a piece and does not
  //! go on until `deadline`, or a link takes longer for one.
  void abandon(clock::time_point deadline) noexcept;

 private:
  enum class kind { copied_send, large_send, receive, say_ready, hear_ready };
  struct step {
    kind what{};
    std::size_t peer = 0;
    int tag = 0;
    std::size_t bytes = 0;             // large_send, receive: of this piece
    std::span<std::byte const> out{};  // hear_ready, large_send: what is left to send
    std::span<std::byte> in{};         // receive: what is left to come after this
    std::vector<std::byte> letter{};   // what MPI reads or writes in the other kinds
  };

  template <class Call>
  void begin(step what, Call call);
  void hear_ready(std::size_t peer, int tag, std::span<std::byte const> out);
  void send_piece(step const& heard);
  void expect(std::size_t peer, int tag, std::span<std::byte> bytes, std::span<std::byte> later);
  void receive_piece(std::size_t peer, int tag, std::span<std::byte> in);
  void finish(std::size_t index, MPI_Status const& status);

  MPI_Comm comm_;
  limits limits_;
  // Equal indices; the places of `free_` are to be used again.
  std::vector<MPI_Request> requests_;
  std::vector<step> steps_;
  std::vector<std::size_t> free_;
  std::size_t open_ = 0;
  // MPI_Testsome's.
  std::vector<int> indices_;
  std::vector<MPI_Status> statuses_;
};

}  // namespace gradwire::mpi
