#include <gradwire/transport.hpp>

#include <gradwire/gloo.hpp>

namespace gradwire {

transport_entry transport_gloo() {
  return {.name = "gloo",
          .summary = "processes, on one or several machines",
          .unavailable =
              [] {
                return has_gloo() ? std::string{}
                                  : std::string{"this build has no Gloo; install libgloo-dev and build again"};
              },
          .make =
              [](transport_options const& options) {
                return make_gloo({.rank = options.rank,
                                  .size = options.size,
                                  .rendezvous = options.rendezvous,
                                  .interface = options.interface,
                                  .timeout = options.timeout});
              }};
}

}  // namespace gradwire
