#include <gradwire/transport.hpp>

#include <gradwire/inproc.hpp>

namespace gradwire {

transport_entry transport_inproc() {
  return {.name = "inproc",
          .summary = "threads of this process",
          .unavailable = [] { return std::string{}; },
          .run = run_ranks};
}

}  // namespace gradwire
