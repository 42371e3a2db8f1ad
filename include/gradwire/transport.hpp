#pragma once

#include <chrono>
#include <cstddef>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include <gradwire/communicator.hpp>

namespace gradwire {

//! One rank's place and how it meets the others.
struct transport_options {
  std::size_t rank = 0;
  std::size_t size = 1;
  std::string rendezvous;    //!< as in gloo_options
  std::string interface {};  //!< as in gloo_options
  std::chrono::milliseconds timeout = default_timeout;
};

//! One transport: what `--transport NAME` and `gradwire doctor` know of it. Each folder comm/NAME with a transport.cpp
//! is one; the build finds it and calls its function transport_NAME() (docs/adding_a_transport.md).
struct transport_entry {
  std::string_view name;
  std::string_view summary;
  //! Empty when this build and machine can use it; otherwise the reason and the mend.
  std::string (*unavailable)() = nullptr;
  //! Joins a group whose ranks are processes; null for a transport whose ranks are threads.
  std::unique_ptr<communicator> (*make)(transport_options const& options) = nullptr;
  //! Runs `body` once per rank, on threads of this process, and rethrows what failed first; null for a transport whose
  //! ranks are processes.
  void (*run)(std::size_t size, std::function<void(communicator&)> const& body,
              std::chrono::milliseconds timeout) = nullptr;
  //! What goes before the command line of a rank to start `ranks` of them on this machine, for a transport whose ranks
  //! only a launcher of its own can start, which also brings them together; null: any processes meet at `rendezvous`.
  std::vector<std::string> (*launcher)(std::size_t ranks) = nullptr;
};

//! Every transport of this build, in order of name.
[[nodiscard]] std::span<transport_entry const> transports();

//! Throws errc::invalid_argument that lists the names, and errc::unsupported with the reason and the mend when this
//! build or machine cannot use it.
[[nodiscard]] transport_entry const& find_transport(std::string_view name);

}  // namespace gradwire
