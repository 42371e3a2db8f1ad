#include "comm/gloo/device.hpp"

#include <gloo/transport/tcp/device.h>
#include <net/if.h>
#include <netdb.h>

#include <gradwire/error.hpp>

#include "comm/gloo/sigpipe.hpp"

namespace gradwire {
namespace {

bool is_interface(std::string const& name) { return if_nametoindex(name.c_str()) != 0; }

bool resolves(std::string const& host) {
  addrinfo hints{};
  hints.ai_socktype = SOCK_STREAM;
  addrinfo* found = nullptr;
  if (getaddrinfo(host.c_str(), nullptr, &hints, &found) != 0) return false;
  freeaddrinfo(found);
  return true;
}

std::string interface_names() {
  std::string names;
  struct if_nameindex* const all = if_nameindex();
  if (all == nullptr) return "none";
  for (auto const* one = all; one->if_index != 0; ++one)
    names += (names.empty() ? "" : ", ") + std::string{one->if_name};
  if_freenameindex(all);
  return names;
}

}  // namespace

std::string without_origin(std::string_view text) {
  auto const close = text.starts_with('[') ? text.find("] ") : std::string_view::npos;
  return std::string{close == std::string_view::npos ? text : text.substr(close + 2)};
}

void check_interface(std::string const& interface) {
  if (is_interface(interface) || resolves(interface)) return;
  throw error{errc::invalid_argument, "'" + interface + "' is neither a network interface of this machine (" +
                                          interface_names() +
                                          ") nor a host name that can be resolved; see GRADWIRE_INTERFACE"};
}

std::shared_ptr<gloo::transport::Device> bind_device(std::string const& interface) {
  check_interface(interface);
  gloo::transport::tcp::attr where;
  (is_interface(interface) ? where.iface : where.hostname) = interface;
  // The device's thread is started here and inherits the mask.
  without_sigpipe const quiet;
  try {
    return gloo::transport::tcp::CreateDevice(where);
  } catch (std::exception const& why) {
    throw error{errc::invalid_argument,
                "Gloo cannot bind to '" + interface + "': " + without_origin(why.what()) +
                    "; give a network interface or a host name of this machine (GRADWIRE_INTERFACE)"};
  }
}

}  // namespace gradwire
