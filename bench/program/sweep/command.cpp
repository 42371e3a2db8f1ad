#include <unistd.h>

#include <cstddef>
#include <filesystem>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <CLI/CLI.hpp>

#include "program/common/console.hpp"
#include "program/common/context.hpp"
#include "program/common/numbers.hpp"
#include "program/common/ranks.hpp"
#include "program/sweep/plan.hpp"
#include "program/sweep/reporter.hpp"
#include "program/sweep/worlds.hpp"

namespace gradwire::program {
namespace {

constexpr char const* footer =
    "Inputs are independent standard Gaussian numbers on every rank; where the transport's own all-reduce does the "
    "sum\n"
    "(dense), whole numbers that every order of summation adds exactly, and Gaussian ones for nmse.\n"
    "Every element of every rank is checked against a serial model of the reduction; checking is not timed.\n"
    "time and p99 are percentiles over iterations of the slowest rank's time; algbw is bytes / time, busbw is algbw\n"
    "times the collective's factor in nccl-tests (all_reduce 2(n-1)/n), wirebw is bytes actually sent / time, ratio "
    "is\n"
    "bytes the dense algorithm sends / bytes actually sent. GB/s are 10^9 bytes a second.\n"
    "Exit status 1: an element was wrong.\n"
    "Example: gradwire sweep --spec onebit+ef 'quant(bits=4)' --ranks 2 4 --transport inproc gloo --min-bytes 64K "
    "--out sweep";

void add_options(CLI::App& command, sweep::sweep_options& options) {
  // Not for people: the worlds of a sweep over processes are started with it. CLI11 sets a blank line after every group
  // but the last, also for one that it does not show: that one has to come before the first option of the other.
  command.set_help_flag();
  command.add_option("--part", options.part)->group("");
  command.set_help_flag("-h,--help", "Print this help message and exit");
  command
      .add_option("--collective", options.collective,
                  "all_reduce (with specs), or raw bytes by reduce_scatter, all_gather, all_to_all or broadcast")
      ->type_name("NAME")
      ->capture_default_str();
  command.add_option("--spec", options.specs, "methods; dense (none) is always measured with them")
      ->type_name("SPEC ...")
      ->default_str("bf16 onebit+ef quant(bits=4) topk(ratio=0.01)+ef");
  command.add_option("--reduction", options.reductions, "how they average: auto leaves it to the spec")
      ->type_name("NAME ...")
      ->default_str("auto");
  command.add_option("--transport", options.transports, transport_help())
      ->type_name("NAME ...")
      ->default_str("gloo")
      ->check(known_transport());
  command.add_option("--ranks", options.ranks, "numbers of workers")
      ->type_name("N ...")
      ->default_str("2; under a launcher: its world")
      ->transform(whole_number(1, 4096));
  command.add_option("--min-bytes", options.min_bytes, "smallest size; K, M and G are powers of 1024")
      ->type_name("SIZE")
      ->capture_default_str();
  command.add_option("--max-bytes", options.max_bytes, "largest size")->type_name("SIZE")->capture_default_str();
  command.add_option("--factor", options.factor, "from one size to the next")
      ->type_name("N")
      ->capture_default_str()
      ->transform(whole_number(2, 1 << 30));
  command.add_option("--dtype", options.type, "of the gradients: f32, f16 or bf16")
      ->type_name("TYPE")
      ->capture_default_str();
  command.add_option("--iters", options.iterations, "timed calls a case")
      ->type_name("N")
      ->default_str("50, fewer where they would take more than a second")
      ->transform(whole_number(1, 1'000'000));
  command.add_option("--warmup", options.warmup, "untimed calls before")
      ->type_name("N")
      ->capture_default_str()
      ->transform(whole_number(0, 1'000'000));
  command.add_option("--seed", options.seed, "of inputs and random numbers")
      ->type_name("K")
      ->capture_default_str()
      ->transform(whole_number());
  command.add_flag("--overlap", options.overlap,
                   "average through the reducer: in chunks, whose encoding, sending and decoding overlap; dense (none) "
                   "stays one all-reduce of the transport");
  command
      .add_option("--count-interface", options.counted_interface,
                  "also record interface_bytes: what this network interface, by the kernel's count, sent in a call")
      ->type_name("NAME");
  command.add_option("--out", options.out, "write results.jsonl and sweep.html there")->type_name("DIR");
  add_timeout_option(command, options.timeout_ms);
  add_output_options(command, options.output, "one record a case");
  command.footer(footer);
}

}  // namespace

void add_sweep(CLI::App& app, context& ctx) {
  auto* const command =
      app.add_subcommand("sweep", "time methods over sizes, ranks and transports; check every element");
  auto const options = std::make_shared<sweep::sweep_options>();
  add_options(*command, *options);
  command->callback([options, &ctx] { ctx.run = [options, &ctx] { return sweep::run_sweep(*options, ctx); }; });
}

}  // namespace gradwire::program
