#pragma once

#include <chrono>
#include <functional>
#include <memory>
#include <vector>

#include <gradwire/communicator.hpp>

namespace gradwire {

//! A group whose ranks are threads of this process. Element r is rank r's end. Throws errc::invalid_argument when
//! `size` or `timeout` is not above 0.
[[nodiscard]] std::vector<std::unique_ptr<communicator>> make_inproc_group(
    std::size_t size, std::chrono::milliseconds timeout = default_timeout);

//! Runs `body` once per rank, each on a thread of its own. When one throws, the group is aborted and, after all have
//! ended, the first failure that was not a consequence of the abort is rethrown.
void run_ranks(std::size_t size, std::function<void(communicator&)> const& body,
               std::chrono::milliseconds timeout = default_timeout);

}  // namespace gradwire
