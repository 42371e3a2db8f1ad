#pragma once

#include <mpi.h>

#include "tests/comm/worlds.hpp"

namespace gradwire::test {

//! MPI as a user has it who starts it himself, in a process of mpirun's that runs the same tests as all others.
//! Failures are printed by each, everything else by rank 0.
class mpi_environment final : public testing::Environment {
 public:
  void SetUp() override;
  void TearDown() override;
  [[nodiscard]] static int rank();
  [[nodiscard]] static int size();
};

//! The first `size` ranks of MPI_COMM_WORLD, which must have as many. Each process runs its own.
class mpi_world final : public world {
 public:
  mpi_world(std::size_t size, std::chrono::milliseconds timeout);
  ~mpi_world() override;
  mpi_world(mpi_world const&) = delete;
  mpi_world& operator=(mpi_world const&) = delete;
  mpi_world(mpi_world&&) = delete;
  mpi_world& operator=(mpi_world&&) = delete;

  [[nodiscard]] std::unique_ptr<communicator> join(std::size_t rank) override;
  void meet() override;
  [[nodiscard]] std::vector<std::size_t> ranks_here() const override;
  void complete(outcomes& results) override;

 private:
  std::chrono::milliseconds timeout_;
  MPI_Comm ranks_ = MPI_COMM_NULL;
};

[[nodiscard]] transport_case mpi_case();

}  // namespace gradwire::test
