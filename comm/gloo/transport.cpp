#include <gradwire/transport.hpp>

#include <gradwire/gloo.hpp>

namespace gradwire {

transport_entry transport_gloo() {
  return {.name = "gloo",
          .summary = "ranks are processes on one or several machines, over TCP",
          .unavailable =
              [] {
                return has_gloo() ? std::string{}
                                  : std::string{"built without Gloo: install libgloo-dev and build again"};
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
