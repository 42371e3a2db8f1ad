#pragma once

#include <memory>
#include <string>
#include <string_view>

#include <gloo/transport/device.h>

namespace gradwire {

//! Gloo's texts begin with [file:line] of its own sources.
[[nodiscard]] std::string without_origin(std::string_view text);

//! Throws errc::invalid_argument, which lists what this machine has, when `interface` is neither the name of a network
//! interface nor a host name that can be resolved. Gloo itself would read memory that nobody wrote.
void check_interface(std::string const& interface);

//! Gloo's thread and socket, bound to a network interface or host name of this machine. Throws errc::invalid_argument.
[[nodiscard]] std::shared_ptr<gloo::transport::Device> bind_device(std::string const& interface);

}  // namespace gradwire
