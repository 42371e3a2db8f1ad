#pragma once

#include <chrono>
#include <memory>
#include <optional>

#include <gradwire/communicator.hpp>

namespace gradwire {

struct mpi_options {
  //! MPI_Comm_c2f() of the intracommunicator whose ranks make the group (mpi4py: comm.py2f()); nothing:
  //! MPI_COMM_WORLD. It is duplicated: the group never meets the caller's own messages, and the caller may free it.
  std::optional<int> over{};
  std::chrono::milliseconds timeout = default_timeout;
};

//! Joins the group of all ranks of that communicator, which all have to call this; blocks until they have. Who must be
//! started by MPI's launcher (mpirun, srun) is one rank alone otherwise.
//!
//! MPI is initialised here when nobody has done so, for which MPI waits as long as it likes, and then finalised when
//! the process exits, unless a group still lives. Ranks wait for each other there, as MPI_Finalize does, however long
//! the others still work; after a failure for two seconds at most, and then they leave without. Who initialises MPI
//! finalises it after the last group is gone. It has to give MPI_THREAD_MULTIPLE, because streams, abort() and the
//! group's own thread call it from threads of their own.
//!
//! Throws errc::timeout when not all ranks came (the communicator is of no use for collectives then, MPI_COMM_WORLD too
//! where MPI was initialised here), errc::invalid_argument for a communicator that is none, and
//! errc::unsupported when MPI was finalised before or gives less than MPI_THREAD_MULTIPLE, or in a build without MPI.
//! A rank that dies is named when the timeout ends, as one that did not arrive: MPI does not tell before, and most
//! launchers end the other ranks when one dies.
[[nodiscard]] std::unique_ptr<communicator> make_mpi(mpi_options const& options = {});

//! False in a build without MPI.
[[nodiscard]] bool has_mpi() noexcept;

}  // namespace gradwire
