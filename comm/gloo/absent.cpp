#include <gradwire/gloo.hpp>

#include <gradwire/error.hpp>

namespace gradwire {

std::unique_ptr<communicator> make_gloo(gloo_options const&) {
  throw error{errc::unsupported, "this build has no Gloo: install libgloo-dev and build again, or use inproc"};
}

bool has_gloo() noexcept { return false; }

}  // namespace gradwire
