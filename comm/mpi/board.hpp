#pragma once

#include <condition_variable>
#include <cstddef>
#include <mutex>
#include <string>
#include <thread>

#include "comm/mpi/session.hpp"
#include "comm/rendezvous/board.hpp"

namespace gradwire::mpi {

//! A rank's copy of a board that lives in messages: each rank sends what it publishes to all others. There is no order
//! between ranks: of two values published at once under one key, ranks may keep different ones. MPI does not tell who
//! died, so nobody is ever lost.
class mpi_board final : public board {
 public:
  explicit mpi_board(owned_comm comm);
  ~mpi_board() override;
  mpi_board(mpi_board const&) = delete;
  mpi_board& operator=(mpi_board const&) = delete;
  mpi_board(mpi_board&&) = delete;
  mpi_board& operator=(mpi_board&&) = delete;

  void publish(std::string const& key, std::string const& value) override;

 private:
  void run();
  bool take_one();

  owned_comm comm_;
  std::mutex mutex_;
  std::condition_variable wake_;
  bool stopping_ = false;
  std::thread reader_;
};

}  // namespace gradwire::mpi
