#include <gradwire/transport.hpp>

#include <gradwire/inproc.hpp>

namespace gradwire {

transport_entry transport_inproc() {
  return {.name = "inproc",
          .summary = "ranks are threads of one process",
          .unavailable = [] { return std::string{}; },
          .make_group = make_inproc_group};
}

}  // namespace gradwire
