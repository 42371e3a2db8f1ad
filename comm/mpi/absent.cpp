#include <gradwire/mpi.hpp>

#include <gradwire/error.hpp>

namespace gradwire {

std::unique_ptr<communicator> make_mpi(mpi_options const&) {
  throw error{errc::unsupported,
              "this build has no MPI: install libopenmpi-dev and openmpi-bin and build again, or use gloo"};
}

bool has_mpi() noexcept { return false; }

}  // namespace gradwire
