#pragma once

#include <mpi.h>

#include <cstddef>
#include <span>
#include <vector>

#include "comm/mpi/session.hpp"

namespace gradwire::mpi {

//! Messages under way, both ways, none of which blocks.
//!
//! MPI cannot take back a send. So that nobody reads a buffer after the call that was given it has thrown, small
//! messages are sent from a copy, and a large one is sent once its receiver has said that it waits: then it is taken at
//! once, or its receiver is in trouble, too.
class transfer {
 public:
  struct limits {
    std::size_t copied_bytes = std::size_t{64} << 10;  //!< up to this a message is small, on both ends
    std::size_t piece_bytes = std::size_t{1} << 30;    //!< a large one goes in pieces: MPI counts in int
  };
  //! The tags of letters that say "I wait for this" are above the messages' own.
  static constexpr int most_tag = (1 << 14) - 1;  // MPI guarantees 15 bits

  explicit transfer(MPI_Comm comm) : transfer{comm, limits{}} {}
  transfer(MPI_Comm comm, limits most) : comm_{comm}, limits_{most} {}

  //! `bytes` must live until done() or abandon(). Messages between two ranks with one tag arrive in order; a receiver
  //! of another size is an error there.
  void send(std::size_t peer, int tag, std::span<std::byte const> bytes);
  void receive(std::size_t peer, int tag, std::span<std::byte> bytes);

  //! Lets MPI work; true when a step was done. Throws std::runtime_error.
  bool advance();
  [[nodiscard]] bool done() const noexcept { return open_ == 0; }
  //! Bytes of large messages that are on their way now.
  [[nodiscard]] std::size_t moving_bytes() const;
  //! The peers of what is not done.
  [[nodiscard]] std::vector<std::size_t> waits_for() const;

  //! Gives up: afterwards nothing touches the buffers, except where a peer stops in the middle of a large message and
  //! does not go on until `deadline`.
  void abandon(clock::time_point deadline) noexcept;

 private:
  enum class kind { copied_send, large_send, receive, say_ready, hear_ready };
  struct step {
    kind what{};
    std::size_t peer = 0;
    int tag = 0;
    std::span<std::byte const> out{};  // hear_ready: what is sent then
    std::size_t bytes = 0;             // receive: how many must come
    std::vector<std::byte> copy{};     // copied_send
  };

  template <class Call>
  void begin(step what, Call call);
  void finish(std::size_t index, MPI_Status const& status);

  MPI_Comm comm_;
  limits limits_;
  // Equal indices.
  std::vector<MPI_Request> requests_;
  std::vector<step> steps_;
  std::size_t open_ = 0;
  // MPI_Testsome's.
  std::vector<int> indices_;
  std::vector<MPI_Status> statuses_;
};

}  // namespace gradwire::mpi
