#include "program/sweep/worlds.hpp"

#include <filesystem>
#include <utility>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <gradwire/handshake.hpp>
#include <gradwire/transport.hpp>
#include <gradwire/version.hpp>

#include "program/common/interrupt.hpp"
#include "program/common/json_lines.hpp"
#include "program/common/ranks.hpp"
#include "program/common/temporary_directory.hpp"
#include "program/sweep/interface_counter.hpp"
#include "program/sweep/plan.hpp"
#include "program/sweep/reporter.hpp"

namespace gradwire::program::sweep {
namespace {

struct world {
  transport_entry const* transport;
  std::size_t ranks;
};

std::vector<std::string> specs_of(sweep_options const& options) {
  if (!options.specs.empty()) return options.specs;
  return {"bf16", "onebit+ef", "quant(bits=4)", "topk(ratio=0.01)+ef"};
}

std::vector<std::string> reductions_of(sweep_options const& options) {
  return options.reductions.empty() ? std::vector<std::string>{"auto"} : options.reductions;
}

sweep_plan make_plan(sweep_options const& options) {
  sweep_plan plan;
  plan.collective = parse_collective(options.collective);
  plan.options = {parse_dtype(options.type), options.iterations,       options.warmup, options.seed,
                  options.overlap,           options.counted_interface};
  if (!options.counted_interface.empty())
    static_cast<void>(interface_counter{options.counted_interface});  // refused before ranks start
  plan.counts = sweep_counts(parse_bytes(options.min_bytes, "--min-bytes"),
                             parse_bytes(options.max_bytes, "--max-bytes"), options.factor, plan.options.type);
  if (plan.collective == collective_kind::all_reduce) {
    plan.methods = sweep_methods(specs_of(options), reductions_of(options));
  } else if (!options.specs.empty() || !options.reductions.empty() || options.overlap) {
    throw program_error{
        fmt::format("--collective {} moves raw bytes: leave --spec, --reduction and --overlap out, or use "
                    "all_reduce, the one collective that averages",
                    options.collective)};
  }
  return plan;
}

std::vector<world> worlds_of(sweep_options const& options) {
  std::vector<world> worlds;
  for (auto const& transport : options.transports.empty() ? std::vector<std::string>{"gloo"} : options.transports) {
    transport_entry const& entry = find_transport(transport);
    for (std::size_t const ranks : options.ranks.empty() ? std::vector<std::size_t>{2} : options.ranks) {
      worlds.push_back({&entry, ranks});
    }
  }
  return worlds;
}

// The command line of one rank of one world of this sweep; it prints rows and leaves its records in `records`.
std::vector<std::string> part_arguments(sweep_options const& options, std::string_view transport,
                                        std::filesystem::path const& records) {
  std::vector<std::string> line{"sweep", "--part", records.string(), "--transport", std::string{transport}};
  auto const give = [&](char const* option, std::string const& value) {
    line.emplace_back(option);
    line.push_back(value);
  };
  give("--collective", options.collective);
  for (auto const& spec : options.specs) give("--spec", spec);
  for (auto const& reduction : options.reductions) give("--reduction", reduction);
  give("--min-bytes", options.min_bytes);
  give("--max-bytes", options.max_bytes);
  give("--factor", std::to_string(options.factor));
  give("--dtype", options.type);
  if (options.iterations) give("--iters", std::to_string(*options.iterations));
  give("--warmup", std::to_string(options.warmup));
  give("--seed", std::to_string(options.seed));
  if (options.overlap) line.emplace_back("--overlap");
  if (!options.counted_interface.empty()) give("--count-interface", options.counted_interface);
  give("--timeout", fmt::format("{}", static_cast<double>(options.timeout_ms) / 1000));
  if (options.output.json == "-") give("--json", "-");  // so that rows go to standard error
  if (options.output.quiet) line.emplace_back("--quiet");
  return line;
}

// Ranks that somebody started by hand may have been given different command lines.
void require_equal_plans(communicator& comm, sweep_plan const& plan) {
  std::vector<std::string> methods;
  for (auto const& method : plan.methods) methods.push_back(method.how.text());
  std::vector<config_field> const fields{
      {"version", std::string{version()}},
      {"--collective", std::string{to_string(plan.collective)}},
      {"--spec and --reduction", fmt::format("{}", fmt::join(methods, " "))},
      {"--dtype", std::string{to_string(plan.options.type)}},
      {"sizes", fmt::format("{}", fmt::join(plan.counts, " "))},
      {"--iters", plan.options.iterations ? std::to_string(*plan.options.iterations) : "unset"},
      {"--warmup", std::to_string(plan.options.warmup)},
      {"--seed", std::to_string(plan.options.seed)},
      {"--overlap", plan.options.overlap ? "set" : "unset"},
      {"--count-interface",
       plan.options.counted_interface.empty() ? "unset" : "set"}};  // machines may name theirs differently
  require_equal_configuration(comm, fields);
}

// One rank's work; `reporter` is null on all but rank 0.
void measure_world(communicator& comm, sweep_plan const& plan, sweep_reporter* reporter) {
  require_equal_plans(comm, plan);
  if (reporter != nullptr) reporter->begin_world(comm.transport(), comm.size());
  run_plan(
      comm, plan, [&](case_result const& result) { reporter->add(result); },
      [&](skipped_method const& method) { reporter->skip(method); });
}

exit_code run_launched(sweep_options const& options, sweep_plan const& plan, context const& ctx) {
  if (options.transports.size() > 1 || options.ranks.size() > 1) {
    throw program_error{"under a launcher there is one world: give one --transport and leave --ranks out"};
  }
  world_options place;
  place.timeout_ms = options.timeout_ms;
  if (!options.transports.empty()) place.transport = options.transports.front();
  place.ranks_given = !options.ranks.empty();
  if (place.ranks_given) place.ranks = options.ranks.front();
  bool const part = !options.part.empty();
  std::optional<sweep_reporter> reporter;
  if (is_first_rank()) {
    reporter.emplace(options.output, part ? options.part : options.output.json, options.out, plan, plan.cases());
    if (!part) reporter->begin_sweep();
  }
  auto const comm = join_world(place);
  abort_on_interrupt const watch{*comm};
  measure_world(*comm, plan, reporter ? &*reporter : nullptr);
  return reporter && !part ? reporter->finish(ctx.arguments) : exit_code::done;
}

exit_code run_processes(sweep_options const& options, world const& where, sweep_reporter& reporter) {
  temporary_directory const folder;
  auto const records = folder / "records.jsonl";  // rank 0 leaves them there
  write_file(records, "");                        // it may end before its first one
  // As they come: this process may be ended at any time, and what is finished is to be kept.
  std::size_t taken = 0;
  std::uintmax_t seen = 0;
  auto const collect = [&] {
    std::uintmax_t const size = std::filesystem::file_size(records);
    if (size == std::exchange(seen, size)) return;
    auto const lines = read_json_lines(records);
    while (taken < lines.size()) reporter.take(lines[taken++]);
  };
  try {
    exit_code const status =
        launch_ranks(*where.transport, part_arguments(options, where.transport->name, records), where.ranks, collect);
    collect();
    return status;
  } catch (program_error const&) {  // a rank died, or Ctrl-C: what is finished is kept
    collect();
    throw;
  }
}

void run_threads(sweep_options const& options, world const& where, sweep_plan const& plan, sweep_reporter& reporter) {
  where.transport->run(
      where.ranks,
      [&](communicator& comm) {
        bool const first = comm.rank() == 0;
        std::optional<abort_on_interrupt> watch;  // one for the group
        if (first) watch.emplace(comm);
        measure_world(comm, plan, first ? &reporter : nullptr);
      },
      std::chrono::milliseconds{options.timeout_ms});
}

void say_interrupted(sweep_options const& options, std::size_t finished, std::size_t cases) {
  std::string file = options.output.json == "-" ? "" : options.output.json;
  if (!options.out.empty()) file = (std::filesystem::path{options.out} / "results.jsonl").string();
  std::string const kept = file.empty() || finished == 0 ? "" : " and kept in " + file;
  print_error(fmt::format("interrupted; {} of {} cases are finished{}", finished, cases, kept));
}

exit_code run_here(sweep_options const& options, sweep_plan const& plan, context const& ctx) {
  auto const worlds = worlds_of(options);
  std::size_t const cases = plan.cases() * worlds.size();
  sweep_reporter reporter{options.output, options.output.json, options.out, plan, cases};
  reporter.begin_sweep();
  try {
    for (world const& where : worlds) {
      if (where.transport->run != nullptr) {
        run_threads(options, where, plan, reporter);
        continue;
      }
      exit_code const status = run_processes(options, where, reporter);
      if (status == exit_code::done) continue;
      if (!reporter.results().empty()) static_cast<void>(reporter.finish(ctx.arguments));
      return status;
    }
  } catch (std::exception const&) {
    if (!reporter.results().empty()) static_cast<void>(reporter.finish(ctx.arguments));
    if (interrupted()) say_interrupted(options, reporter.results().size(), cases);
    throw;
  }
  return reporter.finish(ctx.arguments);
}

}  // namespace

exit_code run_sweep(sweep_options const& options, context const& ctx) {
  signal_guard const guard;
  sweep_plan const plan = make_plan(options);
  return is_launched_rank() ? run_launched(options, plan, ctx) : run_here(options, plan, ctx);
}

}  // namespace gradwire::program::sweep
