#pragma once

#include <chrono>
#include <memory>
#include <string>

#include <gradwire/communicator.hpp>

namespace gradwire {

struct gloo_options {
  std::size_t rank = 0;
  std::size_t size = 1;
  //! Where the ranks meet: "tcp://host:port" (rank 0 serves it) or "file:///folder" (seen by all ranks, its own for
  //! each run).
  std::string rendezvous;
  //! Network interface or host name to bind to; empty: the one that reaches the rendezvous.
  std::string interface {};
  std::chrono::milliseconds timeout = default_timeout;
};

//! Joins the group; blocks until all ranks have. Throws errc::timeout that names the ranks that did not come,
//! errc::invalid_argument for an interface that this machine does not have, and errc::unsupported in a build without
//! Gloo.
[[nodiscard]] std::unique_ptr<communicator> make_gloo(gloo_options const& options);

//! False in a build without Gloo.
[[nodiscard]] bool has_gloo() noexcept;

}  // namespace gradwire
