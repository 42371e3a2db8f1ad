#include <cmath>
#include <filesystem>
#include <memory>
#include <optional>

#include <fmt/format.h>
#include <CLI/CLI.hpp>

#include <gradwire/launch.hpp>
#include <gradwire/spec.hpp>

#include "program/common/console.hpp"
#include "program/common/context.hpp"
#include "program/common/interrupt.hpp"
#include "program/common/json_lines.hpp"
#include "program/common/numbers.hpp"
#include "program/common/output_directory.hpp"
#include "program/common/ranks.hpp"
#include "program/train/checkpoint.hpp"
#include "program/train/optimizer.hpp"
#include "program/train/quadratic.hpp"
#include "program/train/trainer.hpp"

namespace gradwire::program {
namespace {

struct train_options {
  world_options world;
  output_options output;
  train_files files;
  train_config config;  // zeros and empty texts: the workload's default
  std::string checkpoint;
};

void add_workload_options(CLI::App& command, train_options& options) {
  train_config& config = options.config;
  command.add_option("--workload", config.workload, "digits, text or quadratic")
      ->type_name("NAME")
      ->default_val("digits");
  command.add_option("--model", config.model, "digits: mlp or conv (default mlp)")->type_name("NAME");
  command.add_option("--problem", config.problem, "quadratic: ce1 … ce5 or ce10, below")->type_name("NAME");
  command.add_option("--data", config.data, "digits: a CSV, gzip or not; text: any files (default: built in)")
      ->type_name("FILE");
}

void add_method_options(CLI::App& command, train_options& options) {
  train_config& config = options.config;
  command.add_option("--spec", config.spec, "how gradients travel, e.g. onebit+ef; `gradwire codecs` lists them")
      ->type_name("SPEC")
      ->default_val("none");
  command
      .add_option("--rule", config.rules,
                  "exceptions, first match first: name~REGEX=>SPEC, ndim=N=>SPEC, min_numel=N=>SPEC")
      ->type_name("RULE");
}

void add_training_options(CLI::App& command, train_options& options) {
  train_config& config = options.config;
  command.add_option("--steps", config.steps, "optimizer steps, in all (defaults: below)")
      ->type_name("N")
      ->transform(whole_number(1, 1 << 30));
  command.add_option("--batch", config.batch, "samples a rank takes at a time")
      ->type_name("N")
      ->transform(whole_number(1, 1 << 20));
  command.add_option("--accumulate", config.accumulate, "batches that add up to one step")
      ->type_name("N")
      ->capture_default_str()
      ->transform(whole_number(1, 1 << 20));
  command.add_option("--lr", config.lr, "learning rate")->type_name("X");
  command.add_option("--optimizer", config.optimizer, "sgd, momentum (0.9) or adam")->type_name("NAME");
  command.add_option("--seed", config.seed, "of weights, data order, noise and stochastic rounding")
      ->type_name("K")
      ->capture_default_str()
      ->transform(whole_number());
  command.add_option("--eval-every", config.eval_every, "steps between evaluations (and checkpoints)")
      ->type_name("N")
      ->transform(whole_number(1, 1 << 30));
}

void add_file_options(CLI::App& command, train_options& options) {
  command.add_option("--metrics", options.files.metrics, "write the run's records as JSON lines; - is standard output")
      ->type_name("FILE");
  command.add_option("--trace", options.files.trace, "write rank 0's timeline, for ui.perfetto.dev")->type_name("FILE");
  auto* const checkpoint =
      command.add_option("--checkpoint", options.checkpoint, "keep the state of all ranks here")->type_name("DIR");
  command.add_flag("--resume", options.files.resume, "go on from the checkpoint")->needs(checkpoint);
}

template <class T>
void fill(T& value, T const& preset) {
  if (value == T{}) value = preset;
}

// The whole configuration, checked; what is wrong is said once, before any rank starts.
void complete(train_options& options, bool lr_given) {
  train_config& config = options.config;
  if (config.workload == "digits") fill(config.model, std::string{"mlp"});
  if (config.workload != "digits" && !config.model.empty()) throw program_error{"--model is for --workload digits"};
  if (config.workload != "quadratic" && !config.problem.empty()) {
    throw program_error{"--problem is for --workload quadratic"};
  }
  workload_defaults const presets = defaults_of(config.workload, config.model, config.problem);
  fill(config.steps, presets.steps);
  fill(config.batch, presets.batch);
  fill(config.eval_every, std::min(presets.eval_every, config.steps));
  fill(config.optimizer, presets.optimizer);
  if (!lr_given) config.lr = presets.lr;
  if (!(config.lr > 0) || !std::isfinite(config.lr)) {
    throw program_error{fmt::format("--lr {} is not a positive number: use one such as {}", config.lr, presets.lr)};
  }
  if (!options.world.ranks_given) options.world.ranks = presets.ranks;
  auto const launch = detect_launch(env::get(), false);
  config.world = launch ? launch->world : options.world.ranks;
  config.spec = spec::parse(config.spec).text();
  for (std::string& text : config.rules) text = rule::parse(text).text();
  config.compress_everything = config.workload == "quadratic";
  static_cast<void>(make_optimizer(config.optimizer, config.lr, {}));
}

// What complete() fills in, for --help.
std::string defaults_table() {
  table rows{{{"", align::left},
              {"--ranks"},
              {"--steps"},
              {"--batch"},
              {"--lr"},
              {"--optimizer", align::left},
              {"--eval-every"}}};
  auto const add = [&](std::string const& name, workload_defaults const& preset) {
    rows.add({"  " + name, std::to_string(preset.ranks), std::to_string(preset.steps), std::to_string(preset.batch),
              fmt::format("{}", preset.lr), preset.optimizer, std::to_string(preset.eval_every)});
  };
  add("digits", defaults_of("digits", "mlp", ""));
  add("text", defaults_of("text", "", ""));
  for (std::string const& problem : quadratic_problem_names()) {
    add("quadratic " + problem, defaults_of("quadratic", "", problem));
  }
  return rows.text();
}

void check_writable(std::string const& path) {
  if (!path.empty() && path != "-") json_lines{path, open_mode::append};
}

void say_interrupted(train_options const& options) {
  std::vector<std::string> files;
  for (std::string const& file : {options.files.metrics, options.output.json}) {
    if (!file.empty() && file != "-") files.push_back(file);
  }
  std::string text = "interrupted";
  if (!files.empty()) text += fmt::format("; the records so far are kept in {}", fmt::join(files, " and "));
  if (std::filesystem::exists(checkpoint_file(options.files.checkpoint))) {
    text += fmt::format("; the state of the last evaluation is kept in {}, --resume goes on", options.checkpoint);
  } else if (files.empty()) {
    text += "; nothing is kept (--metrics FILE keeps the records, --checkpoint DIR the state)";
  }
  print_error(text);
}

exit_code run_train(train_options& options, context const& ctx, bool lr_given) {
  if (options.files.metrics == "-" && options.output.json.empty()) options.output.json = "-";
  if (options.files.metrics == options.output.json) options.files.metrics.clear();
  complete(options, lr_given);
  workload_factory const make = load_workload(options.config);
  options.files.checkpoint = options.checkpoint;
  std::optional<output_directory> directory;
  if (!is_launched_rank()) {
    check_writable(options.files.metrics);
    check_writable(options.output.json);
    check_writable(options.files.trace);
    if (!options.checkpoint.empty()) directory.emplace(options.checkpoint, "--checkpoint");
  }
  try {
    return run_world(options.world, ctx, [&](communicator& comm) {
      return train_rank(comm, options.config, make, options.files, options.output);
    });
  } catch (std::exception const&) {
    if (interrupted() && !is_launched_rank()) say_interrupted(options);
    throw;
  }
}

}  // namespace

void add_train(CLI::App& app, context& ctx) {
  auto* const command = app.add_subcommand("train", "train a built-in workload on several ranks, with a spec");
  auto const options = std::make_shared<train_options>();
  add_workload_options(*command, *options);
  add_method_options(*command, *options);
  add_world_options(*command, options->world);
  add_training_options(*command, *options);
  add_file_options(*command, *options);
  add_output_options(*command, options->output, "the records of --metrics");
  command->footer(
      "Data parallel: a step takes ranks × batch × accumulate samples, and all ranks end with equal parameters.\n"
      "Without a launcher it starts its own ranks on this machine; under torchrun, mpirun or srun it is one of them.\n"
      "Problems of --workload quadratic:\n" +
      quadratic_problems() + "\nDefaults by workload:\n" + defaults_table() +
      "Example: gradwire train --spec onebit+ef --ranks 4 --metrics run.jsonl --trace run.trace.json");
  command->callback([&ctx, options, command] {
    bool const lr_given = command->count("--lr") > 0;
    ctx.run = [&ctx, options, lr_given] { return run_train(*options, ctx, lr_given); };
  });
}

}  // namespace gradwire::program
