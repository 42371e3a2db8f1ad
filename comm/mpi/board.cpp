#include "comm/mpi/board.hpp"

#include <chrono>
#include <cstring>
#include <stdexcept>
#include <utility>
#include <vector>

#include <gradwire/error.hpp>

namespace gradwire::mpi {
namespace {

// News is rare and never urgent by less; a look costs a microsecond.
constexpr std::chrono::milliseconds between_looks{5};

}  // namespace

mpi_board::mpi_board(owned_comm comm) : comm_{std::move(comm)} {
  comm_.keep();  // ranks leave one after the other, and say so to those that have left
  reader_ = std::thread{[this] { run(); }};
}

mpi_board::~mpi_board() {
  {
    std::scoped_lock const lock{mutex_};
    stopping_ = true;
    wake_.notify_all();
  }
  reader_.join();
}

// "key\0value"
void mpi_board::publish(std::string const& key, std::string const& value) {
  learn(key, value);
  auto const text = key + '\0' + value;
  auto const* const first = reinterpret_cast<std::byte const*>(text.data());
  try {
    for (std::size_t r = 0; r < comm_.size(); ++r) {
      if (r == comm_.rank()) continue;
      std::vector<std::byte> bytes(first, first + text.size());
      MPI_Request request = MPI_REQUEST_NULL;
      check(MPI_Isend(bytes.data(), static_cast<int>(bytes.size()), MPI_BYTE, static_cast<int>(r), 0, comm_.get(),
                      &request),
            "MPI_Isend");
      keep_until_done(request, std::move(bytes));
    }
  } catch (std::runtime_error const& why) {
    throw error{errc::communicator, why.what()};
  }
}

void mpi_board::run() {
  std::unique_lock lock{mutex_};
  while (!stopping_) {
    lock.unlock();
    bool more = false;
    try {
      more = take_one();
    } catch (std::exception const& why) {
      close(why.what());
      return;
    }
    lock.lock();
    if (!more) wake_.wait_for(lock, between_looks, [this] { return stopping_; });
  }
}

bool mpi_board::take_one() {
  int found = 0;
  MPI_Message message = MPI_MESSAGE_NULL;
  MPI_Status status{};
  check(MPI_Improbe(MPI_ANY_SOURCE, 0, comm_.get(), &found, &message, &status), "MPI_Improbe");
  if (found == 0) return false;
  int size = 0;
  check(MPI_Get_count(&status, MPI_BYTE, &size), "MPI_Get_count");
  std::string text(static_cast<std::size_t>(size), '\0');
  check(MPI_Mrecv(text.data(), size, MPI_BYTE, &message, &status), "MPI_Mrecv");
  auto const end = text.find('\0');
  learn(text.substr(0, end), text.substr(end + 1));
  return true;
}

}  // namespace gradwire::mpi
