#include "tests/comm/worlds.hpp"

#include <gtest/gtest.h>

#include <cstdlib>
#include <filesystem>
#include <numeric>
#include <thread>

#include "comm/rendezvous/socket.hpp"

namespace gradwire::test {

world::world(std::size_t size) : ranks_(size), gate_{static_cast<std::ptrdiff_t>(size)} {
  std::iota(ranks_.begin(), ranks_.end(), std::size_t{0});
}

outcomes run_each(transport_case const& transport, std::size_t size,
                  std::function<void(communicator&, world&)> const& body, std::chrono::milliseconds timeout) {
  auto const group = transport.make(size, timeout);
  outcomes results(size);
  auto const run = [&](std::size_t rank) {
    std::unique_ptr<communicator> comm;
    try {
      comm = group->join(rank);
      body(*comm, *group);
    } catch (error const& why) {
      results[rank] = why;
    } catch (std::exception const& why) {
      results[rank] = error{errc::invalid_argument, why.what()};
    }
    if (results[rank] && comm) comm->abort();
  };
  {
    std::vector<std::jthread> threads;
    for (auto const rank : group->ranks_here()) threads.emplace_back(run, rank);
  }
  group->complete(results);
  return results;
}

outcomes run_each(transport_case const& transport, std::size_t size, std::function<void(communicator&)> const& body,
                  std::chrono::milliseconds timeout) {
  return run_each(
      transport, size, [&](communicator& comm, world&) { body(comm); }, timeout);
}

void run_all(transport_case const& transport, std::size_t size, std::function<void(communicator&)> const& body) {
  auto const results = run_each(transport, size, body);
  for (std::size_t r = 0; r < size; ++r) {
    if (results[r]) ADD_FAILURE() << "rank " << r << ": " << results[r]->what();
  }
}

temporary_folder::temporary_folder()
    : path_{(std::filesystem::temp_directory_path() / "gradwire-test-XXXXXX").string()} {
  if (mkdtemp(path_.data()) == nullptr) throw std::runtime_error{"mkdtemp failed for " + path_};
}

temporary_folder::~temporary_folder() {
  std::error_code ignored;
  std::filesystem::remove_all(path_, ignored);
}

std::uint16_t free_port() { return port_of(listen_on({"127.0.0.1", 0})); }

}  // namespace gradwire::test
