#pragma once

#include <chrono>
#include <cstddef>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include <gradwire/communicator.hpp>

#include "program/common/context.hpp"
#include "program/common/interrupt.hpp"

namespace CLI {
class App;
class Validator;
}  // namespace CLI

namespace gradwire {
struct transport_entry;
}  // namespace gradwire

namespace gradwire::program {

//! `--ranks`, `--transport` and `--timeout`.
struct world_options {
  std::size_t ranks = 4;
  bool ranks_given = false;
  std::string transport = "gloo";  //!< the name of a transport
  std::size_t timeout_ms = static_cast<std::size_t>(default_timeout.count());
  [[nodiscard]] std::chrono::milliseconds timeout() const { return std::chrono::milliseconds{timeout_ms}; }
};
void add_world_options(CLI::App& command, world_options& options);
//! For a command's own `--transport`.
[[nodiscard]] std::string transport_help();
[[nodiscard]] CLI::Validator known_transport();

//! True in a process that is one rank of a world that somebody else started: torchrun, mpirun, srun, or launch_ranks.
[[nodiscard]] bool is_launched_rank();
//! True where tables, progress and files are this process's to write: rank 0, or not a launched rank.
[[nodiscard]] bool is_first_rank();

//! Starts `ranks` processes of this program on this machine with `arguments` (argv without the program's name), each a
//! launched rank (RANK, WORLD_SIZE, LOCAL_RANK, GRADWIRE_RENDEZVOUS), and supervises them: when one dies, the others
//! get a few seconds to end by themselves. Rank 0 keeps this process's output; the error lines of the others are
//! printed only when they say what went wrong first. Returns their common status; throws program_error that names the
//! rank that failed and how it ended, interrupted_error after Ctrl-C. No process outlives the call. Main thread only.
//! `meanwhile`, where there is one, is called some times a second. Ranks of a transport with a launcher of its own are
//! started and supervised by that, which also prints what they say.
exit_code launch_ranks(transport_entry const& transport, std::vector<std::string> const& arguments, std::size_t ranks,
                       std::function<void()> const& meanwhile = {});

//! This launched rank's end of the world. An interruption while it waits for the others ends the process at once: there
//! is nothing to finish yet. Throws errc::invalid_argument when `options.ranks` was given and differs, and
//! errc::unsupported for a transport whose ranks are threads.
[[nodiscard]] std::unique_ptr<communicator> join_world(world_options const& options);

//! While one lives, an interruption fails the group: ranks that wait for one another end, where they would have waited
//! for as long as the group's timeout. Ranks that notice by themselves have a moment to end in order first. A second
//! interruption ends the process at once.
class abort_on_interrupt {
 public:
  explicit abort_on_interrupt(communicator& comm) : watch_{[&comm] { comm.abort(); }, std::chrono::milliseconds{300}} {}

 private:
  interrupt_watch watch_;
};

//! Runs `body` on every rank: here, when this is a launched rank; on threads of this process; or in processes of this
//! program started with the same command line, which this process then only supervises: as the transport wants it.
//! Returns the highest status of the ranks in this process. Holds a signal_guard: `body` polls throw_if_interrupted().
exit_code run_world(world_options const& options, context const& ctx,
                    std::function<exit_code(communicator&)> const& body);

}  // namespace gradwire::program
