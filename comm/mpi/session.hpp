#pragma once

#include <mpi.h>

#include <atomic>
#include <chrono>
#include <cstddef>
#include <vector>

namespace gradwire::mpi {

using clock = std::chrono::steady_clock;

//! Throws std::runtime_error with MPI's words unless `code` is MPI_SUCCESS.
void check(int code, char const* call);

//! One group's stake in MPI. The first one initialises MPI where nobody has, and then it is finalised when the process
//! exits, if no group lives: all ranks wait for each other then, but after a failure for seconds only.
class session {
 public:
  //! Throws errc::unsupported, or errc::timeout when not all ranks initialise MPI within `patience`.
  explicit session(std::chrono::milliseconds patience);
  ~session();
  session(session const&) = delete;
  session& operator=(session const&) = delete;
  session(session&&) = delete;
  session& operator=(session&&) = delete;

  //! A group failed: ranks may be missing at the end.
  static void note_failure() noexcept;
};

//! The largest tag; MPI_COMM_WORLD knows it for all communicators.
[[nodiscard]] int most_tag();

//! While it lives, errors of `comm` are returned.
class returned_errors {
 public:
  explicit returned_errors(MPI_Comm comm);
  ~returned_errors();
  returned_errors(returned_errors const&) = delete;
  returned_errors& operator=(returned_errors const&) = delete;
  returned_errors(returned_errors&&) = delete;
  returned_errors& operator=(returned_errors&&) = delete;

 private:
  MPI_Comm comm_;
  MPI_Errhandler before_ = MPI_ERRHANDLER_NULL;
};

//! A communicator of our own whose errors are returned.
class owned_comm {
 public:
  //! Collective over `parent`'s ranks. Throws errc::timeout when not all come until `deadline`; `parent` is of no use
  //! for collectives then.
  static owned_comm duplicate(MPI_Comm parent, clock::time_point deadline);
  explicit owned_comm(MPI_Comm made);
  //! Frees it, which takes no peer in Open MPI.
  ~owned_comm();
  owned_comm(owned_comm&& other) noexcept;
  owned_comm& operator=(owned_comm&&) = delete;
  owned_comm(owned_comm const&) = delete;
  owned_comm& operator=(owned_comm const&) = delete;

  [[nodiscard]] MPI_Comm get() const noexcept { return comm_; }
  [[nodiscard]] std::size_t rank() const;
  [[nodiscard]] std::size_t size() const;
  //! It will not be freed: messages may still be under way to it, and MPI gives its number to the next communicator,
  //! which would take them. Any thread.
  void keep() noexcept { kept_ = true; }

 private:
  MPI_Comm comm_ = MPI_COMM_NULL;
  std::atomic<bool> kept_ = false;
};

//! Keeps the bytes of a send or a receive that nobody waits for until MPI is done with them. Any thread.
void keep_until_done(MPI_Request request, std::vector<std::byte> bytes);

}  // namespace gradwire::mpi
