#include "program/ab/schedule.hpp"

#include <algorithm>
#include <deque>
#include <system_error>

#include <fmt/format.h>

#include "program/common/context.hpp"
#include "program/common/interrupt.hpp"
#include "program/common/process.hpp"

namespace gradwire::program {
namespace {

using clock = std::chrono::steady_clock;

// Longer than a run gives its own ranks, so that it can tidy up behind them.
constexpr std::chrono::seconds grace{8};

struct running_run {
  run what;
  clock::time_point started;
  clock::time_point deadline;
};

// Processes and what they run, in step; the first wants to be one piece of memory for wait_any.
class pool {
 public:
  pool(schedule_options const& options, std::string_view metric) : options_{options}, metric_{metric} {}
  pool(pool const&) = delete;
  pool& operator=(pool const&) = delete;
  ~pool() { stop_all(processes_, grace); }

  [[nodiscard]] std::size_t size() const noexcept { return runs_.size(); }

  void start(run what) {
    auto const log = options_.directory / what.log;
    // An earlier try may have left its files.
    for (auto const& file : {log, options_.directory / what.metrics_file}) {
      std::error_code failure;
      std::filesystem::remove(file, failure);
      if (failure) throw program_error{fmt::format("cannot replace '{}': {}", file.string(), failure.message())};
    }
    process_options started;
    started.arguments = what.command;
    started.output = log;
    started.errors = log;
    processes_.emplace_back(started);
    auto const now = clock::now();
    runs_.push_back({std::move(what), now, now + options_.run_timeout});
  }

  // Waits for one end; empty when a signal came instead.
  std::optional<run> next() {
    for (;;) {
      auto const first = std::ranges::min_element(runs_, {}, &running_run::deadline);
      auto const left = std::chrono::duration_cast<std::chrono::milliseconds>(first->deadline - clock::now());
      if (left.count() <= 0) return overdue(static_cast<std::size_t>(first - runs_.begin()));
      if (auto const index = wait_any(processes_, std::min(left, std::chrono::milliseconds{60'000}))) {
        process_end const end = *processes_[*index].end();
        if (!end.signalled) runs_[*index].what.exit_status = end.value;
        return conclude_at(*index, end.good() ? "" : fmt::format("it ended with {}", end.text()));
      }
      if (interrupted()) return std::nullopt;
    }
  }

 private:
  run overdue(std::size_t index) {
    stop_all(std::span{processes_}.subspan(index, 1), grace);
    double const limit = std::chrono::duration<double>(options_.run_timeout).count();
    return conclude_at(index, fmt::format("stopped after {:g} seconds, the --run-timeout", limit));
  }

  run conclude_at(std::size_t index, std::string const& end_text) {
    run done = std::move(runs_[index].what);
    double const seconds = std::chrono::duration<double>(clock::now() - runs_[index].started).count();
    runs_.erase(runs_.begin() + static_cast<std::ptrdiff_t>(index));
    std::vector<process> rest;  // processes move, but are never assigned
    for (std::size_t i = 0; i < processes_.size(); ++i) {
      if (i != index) rest.push_back(std::move(processes_[i]));
    }
    processes_.swap(rest);
    conclude(done, options_.directory / done.metrics_file, metric_, options_.choice, end_text, seconds);
    return done;
  }

  schedule_options const& options_;
  std::string_view metric_;
  std::vector<running_run> runs_;
  std::vector<process> processes_;
};

}  // namespace

std::vector<run> plan_runs(question const& asked, experiment const& experiment, std::filesystem::path const& directory,
                           std::string const& program) {
  std::vector<std::string> command = experiment.command;
  if (!program.empty()) command.front() = program;
  std::vector<run> runs;
  for (std::uint64_t const seed : asked.seeds) {
    for (std::string const& arm : asked.arms) {
      run one;
      one.arm = arm;
      one.seed = seed;
      std::string const name = run_name(arm, seed);
      one.log = "logs/" + name + ".log";
      one.metrics_file = "metrics/" + name + ".jsonl";
      one.command = fill_in(command, experiment.shell, arm, seed, (directory / one.metrics_file).string());
      runs.push_back(std::move(one));
    }
  }
  return runs;
}

void execute_runs(std::vector<run> planned, schedule_options const& options, std::string_view metric,
                  std::function<void(run const&)> const& finished) {
  for (char const* const name : {"logs", "metrics"}) {
    std::error_code failure;
    std::filesystem::create_directories(options.directory / name, failure);
    if (failure) {
      throw program_error{fmt::format("cannot make '{}': {}", (options.directory / name).string(), failure.message())};
    }
  }
  signal_guard const guard;
  pool running{options, metric};
  std::size_t next = 0;
  while (next < planned.size() || running.size() > 0) {
    throw_if_interrupted();
    if (next < planned.size() && running.size() < options.jobs) {
      running.start(std::move(planned[next++]));
    } else if (auto const done = running.next()) {
      finished(*done);
    }
  }
}

}  // namespace gradwire::program
