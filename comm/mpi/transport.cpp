#include <gradwire/transport.hpp>

#include <gradwire/error.hpp>
#include <gradwire/mpi.hpp>

namespace gradwire {

transport_entry transport_mpi() {
  return {.name = "mpi",
          .summary = "processes that MPI's launcher starts",
          .unavailable =
              [] {
                return has_mpi() ? std::string{}
                                 : std::string{
                                       "this build has no MPI; install libopenmpi-dev and openmpi-bin and build "
                                       "again"};
              },
          .make =
              [](transport_options const& options) {
                auto group = make_mpi({.timeout = options.timeout});
                if (group->rank() == options.rank && group->size() == options.size) return group;
                throw error{errc::invalid_argument,
                            "mpi: this process was started as rank " + std::to_string(options.rank) + " of " +
                                std::to_string(options.size) + ", but is rank " + std::to_string(group->rank()) +
                                " of " + std::to_string(group->size()) +
                                " to MPI: start the ranks with the launcher of the same MPI, mpirun -n " +
                                std::to_string(options.size) + " PROGRAM, or with srun --mpi=pmix"};
              },
          .launcher = [](std::size_t ranks) -> std::vector<std::string> {
            // Ranks have several threads: one core is not enough for them, which is what mpirun binds two ranks to.
            return {"mpirun", "--oversubscribe", "--bind-to", "none", "-n", std::to_string(ranks)};
          }};
}

}  // namespace gradwire
