#include "program/common/ranks.hpp"

#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cstdlib>
#include <filesystem>
#include <optional>
#include <string_view>

#include <fmt/format.h>
#include <CLI/CLI.hpp>

#include <gradwire/error.hpp>
#include <gradwire/launch.hpp>
#include <gradwire/transport.hpp>

#include "program/common/console.hpp"
#include "program/common/end_at_once.hpp"
#include "program/common/interrupt.hpp"
#include "program/common/json_lines.hpp"
#include "program/common/numbers.hpp"
#include "program/common/process.hpp"
#include "program/common/temporary_directory.hpp"

namespace gradwire::program {
namespace {

constexpr std::chrono::seconds grace_after_failure{10};

// A folder of its own for each launch: where its ranks meet, and where their error lines wait.
class meeting_place {
 public:
  meeting_place() { std::filesystem::create_directory(folder_ / "meet"); }

  [[nodiscard]] std::string rendezvous() const { return "file://" + (folder_ / "meet").string(); }
  [[nodiscard]] std::filesystem::path errors(std::size_t rank) const {
    return folder_ / fmt::format("rank{}.err", rank);
  }

 private:
  temporary_directory folder_;
};

// How much an end explains: a signal more than a refusal, a refusal more than "a peer went away".
int weight(process_end const& end) { return end.signalled ? 3 : end.value == 2 ? 2 : end.value != 0 ? 1 : 0; }

struct failure {
  std::size_t rank = 0;
  process_end end;
};

// Waits for all of them; nullopt when all ended well, else the one that explains most.
std::optional<failure> supervise(std::vector<process>& running, std::function<void()> const& meanwhile) {
  std::optional<failure> worst;
  std::size_t left = running.size();
  auto deadline = std::chrono::steady_clock::time_point::max();
  while (left > 0) {
    auto const now = std::chrono::steady_clock::now();
    auto const wait = deadline == std::chrono::steady_clock::time_point::max()
                          ? std::chrono::milliseconds{60'000}
                          : std::chrono::duration_cast<std::chrono::milliseconds>(deadline - now);
    auto const ended = wait_any(running, meanwhile ? std::min(wait, std::chrono::milliseconds{200}) : wait);
    if (meanwhile) meanwhile();
    if (interrupted() || (!ended && std::chrono::steady_clock::now() >= deadline)) {
      stop_all(running);
      throw_if_interrupted();
      return worst;
    }
    if (!ended) continue;
    --left;
    auto const end = *running[*ended].end();
    if (!end.good() && deadline == std::chrono::steady_clock::time_point::max()) {
      deadline = std::chrono::steady_clock::now() + grace_after_failure;
    }
    if (!end.good() && (!worst || weight(end) > weight(worst->end))) worst = failure{*ended, end};
  }
  return worst;
}

exit_code explain(failure const& what, std::vector<process> const& running, meeting_place const& meet) {
  std::size_t const ranks = running.size();
  if (what.end.signalled) {
    throw program_error{fmt::format("rank {} of {} (process {}) died by {}; the others were stopped", what.rank, ranks,
                                    running[what.rank].id(), what.end.text()),
                        exit_code::no};
  }
  // A rank that failed in an orderly way has said why; rank 0 said it on this process's own standard error. When all
  // came to the same end, that is all there is to say.
  bool const together = std::all_of(running.begin(), running.end(), [&](process const& one) {
    return one.end() && !one.end()->signalled && one.end()->value == what.end.value;
  });
  if (!together) {
    if (what.rank != 0) {
      std::string const lines = read_file(meet.errors(what.rank));
      write_to_stderr(lines);
    }
    print_error(fmt::format("rank {} of {} ended with {}; the others were stopped", what.rank, ranks, what.end.text()));
  }
  return what.end.value == static_cast<int>(exit_code::usage) ? exit_code::usage : exit_code::no;
}

// mpirun says so itself, but ends with 1, as a rank whose answer is no.
void expect_launchable(transport_entry const& transport) {
  if (geteuid() != 0) return;
  for (char const* const name : {"OMPI_ALLOW_RUN_AS_ROOT", "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM"}) {
    char const* const value = std::getenv(name);  // NOLINT(concurrency-mt-unsafe): before threads
    if (value != nullptr && std::string_view{value} == "1") continue;
    throw program_error{
        fmt::format("--transport {} starts its ranks with mpirun, which refuses root: set OMPI_ALLOW_RUN_AS_ROOT=1 and "
                    "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1, or run as another user",
                    transport.name)};
  }
}

exit_code launch_by(transport_entry const& transport, std::vector<std::string> const& rank, std::size_t ranks,
                    std::function<void()> const& meanwhile) {
  auto command = transport.launcher(ranks);
  auto const launcher = command.front();
  expect_launchable(transport);
  command.insert(command.end(), rank.begin(), rank.end());
  std::vector<process> running;
  try {
    running.emplace_back(process_options{.arguments = command});
  } catch (program_error const& failure) {
    throw program_error{
        fmt::format("{}; --transport {} starts its ranks with {}: install it, or start them yourself "
                    "with the launcher of your cluster",
                    failure.what(), transport.name, launcher)};
  }
  auto const worst = supervise(running, meanwhile);
  if (!worst) return exit_code::done;
  if (worst->end.signalled) {
    throw program_error{fmt::format("{} died by {}", launcher, worst->end.text()), exit_code::no};
  }
  // The status of the rank that failed first, as a shell gives it; of statuses of its own mpirun has 1, too, when it
  // cannot start a rank, which it says itself.
  constexpr int signalled = 128;
  if (worst->end.value > signalled) {
    process_end const death{.signalled = true, .value = worst->end.value - signalled};
    throw program_error{fmt::format("{} ended with {}: a rank died by {}, unless {} says that it could not start one",
                                    launcher, worst->end.text(), death.text(), launcher),
                        exit_code::no};
  }
  return worst->end.value == static_cast<int>(exit_code::no) ? exit_code::no : exit_code::usage;
}

// Without the rendezvous, which only some transports need.
std::optional<launch_info> launched_place() { return detect_launch(env::get(), false); }

}  // namespace

std::string transport_help() {
  std::vector<std::string> lines;
  for (transport_entry const& each : transports()) lines.push_back(fmt::format("{}: {}", each.name, each.summary));
  return fmt::format("{}", fmt::join(lines, "; "));
}

CLI::Validator known_transport() {
  std::vector<std::string> names;
  for (transport_entry const& each : transports()) names.emplace_back(each.name);
  return CLI::IsMember(names);
}

void add_world_options(CLI::App& command, world_options& options) {
  command
      .add_option_function<std::size_t>(
          "--ranks",
          [&options](std::size_t ranks) {
            options.ranks = ranks;
            options.ranks_given = true;
          },
          "number of workers")
      ->type_name("N")
      ->default_str("4 (quadratic: below); under a launcher: its world")
      ->transform(whole_number(1, 4096));
  command.add_option("--transport", options.transport, transport_help())
      ->type_name("NAME")
      ->capture_default_str()
      ->check(known_transport());
  add_timeout_option(command, options.timeout_ms);
}

bool is_launched_rank() { return launched_place().has_value(); }

bool is_first_rank() {
  auto const launch = launched_place();
  return !launch || launch->rank == 0;
}

exit_code launch_ranks(transport_entry const& transport, std::vector<std::string> const& arguments, std::size_t ranks,
                       std::function<void()> const& meanwhile) {
  signal_guard const guard;
  std::vector<std::string> command{self_executable()};
  command.insert(command.end(), arguments.begin(), arguments.end());
  if (transport.launcher != nullptr) return launch_by(transport, command, ranks, meanwhile);
  meeting_place const meet;
  std::vector<process> running;
  running.reserve(ranks);
  for (std::size_t rank = 0; rank < ranks; ++rank) {
    throw_if_interrupted();
    process_options options{.arguments = command};
    options.environment = {{"RANK", std::to_string(rank)},
                           {"LOCAL_RANK", std::to_string(rank)},
                           {"WORLD_SIZE", std::to_string(ranks)},
                           {"GRADWIRE_RENDEZVOUS", meet.rendezvous()}};
    if (rank != 0) options.errors = meet.errors(rank);
    running.emplace_back(options);
  }
  auto const worst = supervise(running, meanwhile);
  return worst ? explain(*worst, running, meet) : exit_code::done;
}

std::unique_ptr<communicator> join_world(world_options const& options) {
  transport_entry const& transport = find_transport(options.transport);
  auto const launch = detect_launch(env::get(), transport.launcher == nullptr);
  expects(launch.has_value(), "join_world: this process is not a launched rank");
  if (transport.make == nullptr) {
    throw error{errc::unsupported, fmt::format("--transport {} under {}: its ranks are {}, but {} started processes",
                                               transport.name, launch->launcher, transport.summary, launch->launcher)};
  }
  if (options.ranks_given && options.ranks != launch->world) {
    throw error{errc::invalid_argument, fmt::format("--ranks {} under {}, which started {} ranks: leave --ranks out",
                                                    options.ranks, launch->launcher, launch->world)};
  }
  interrupt_watch const watch{end_at_once};
  return transport.make({.rank = launch->rank,
                         .size = launch->world,
                         .rendezvous = launch->rendezvous,
                         .interface = env::get().interface.value_or(""),
                         .timeout = options.timeout()});
}

exit_code run_world(world_options const& options, context const& ctx,
                    std::function<exit_code(communicator&)> const& body) {
  signal_guard const guard;
  if (is_launched_rank()) {
    auto const comm = join_world(options);
    abort_on_interrupt const watch{*comm};
    return body(*comm);
  }
  transport_entry const& transport = find_transport(options.transport);
  if (transport.run != nullptr) {
    std::atomic<int> worst{0};
    transport.run(
        options.ranks,
        [&](communicator& comm) {
          std::optional<abort_on_interrupt> watch;  // one for the group
          if (comm.rank() == 0) watch.emplace(comm);
          int const status = static_cast<int>(body(comm));
          for (int seen = worst; status > seen && !worst.compare_exchange_weak(seen, status);) {
          }
        },
        options.timeout());
    return static_cast<exit_code>(worst.load());
  }
  return launch_ranks(transport, {ctx.arguments.begin() + 1, ctx.arguments.end()}, options.ranks);
}

}  // namespace gradwire::program
