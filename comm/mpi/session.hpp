#pragma once

#include <mpi.h>

#include <chrono>
#include <cstddef>
#include <vector>

namespace gradwire::mpi {

using clock = std::chrono::steady_clock;

//! Throws std::runtime_error with MPI's words unless `code` is MPI_SUCCESS.
void check(int code, char const* call);

//! One group's stake in MPI. The first one initialises MPI where nobody has, and then it is finalised when the process
//! exits, if no group lives and all ranks come to it: within `patience`, and within seconds after a failure.
class session {
 public:
  //! Throws errc::unsupported.
  explicit session(std::chrono::milliseconds patience);
  ~session();
  session(session const&) = delete;
  session& operator=(session const&) = delete;
  session(session&&) = delete;
  session& operator=(session&&) = delete;

  //! A group failed: ranks may be missing at the end.
  static void note_failure() noexcept;
};

//! A communicator of our own whose errors are returned.
class owned_comm {
 public:
  //! Collective over `parent`'s ranks. Throws errc::timeout when not all come until `deadline`.
  static owned_comm duplicate(MPI_Comm parent, clock::time_point deadline);
  explicit owned_comm(MPI_Comm made);
  //! Frees it, which takes no peer in Open MPI and MPICH.
  ~owned_comm();
  owned_comm(owned_comm&& other) noexcept;
  owned_comm& operator=(owned_comm&&) = delete;
  owned_comm(owned_comm const&) = delete;
  owned_comm& operator=(owned_comm const&) = delete;

  [[nodiscard]] MPI_Comm get() const noexcept { return comm_; }
  [[nodiscard]] std::size_t rank() const;
  [[nodiscard]] std::size_t size() const;
  //! It will not be freed: messages may still be under way to it, and MPI gives its number to the next communicator,
  //! which would take them.
  void keep() noexcept { kept_ = true; }

 private:
  MPI_Comm comm_ = MPI_COMM_NULL;
  bool kept_ = false;
};

//! Keeps the bytes of a send that nobody waits for until MPI has taken them. Any thread.
void keep_until_sent(MPI_Request request, std::vector<std::byte> bytes);

}  // namespace gradwire::mpi
