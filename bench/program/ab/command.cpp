#include <algorithm>
#include <chrono>
#include <cmath>
#include <ctime>

#include <fmt/chrono.h>
#include <fmt/format.h>
#include <CLI/CLI.hpp>

#include <gradwire/error.hpp>
#include <gradwire/spec.hpp>

#include "program/ab/explain.hpp"
#include "program/ab/report.hpp"
#include "program/ab/results_file.hpp"
#include "program/ab/schedule.hpp"
#include "program/common/console.hpp"
#include "program/common/context.hpp"
#include "program/common/numbers.hpp"
#include "program/common/output_directory.hpp"
#include "program/common/process.hpp"

namespace gradwire::program {
namespace {

struct ab_options {
  std::vector<std::string> arms;
  std::string baseline = "none";
  std::size_t seeds = 5;
  std::vector<std::string> seed_list;
  std::string metric = "accuracy";
  std::string value = "last";
  double margin = 0.01;
  std::string better;
  std::size_t jobs = 1;
  std::string directory = "ab";
  bool resume = false;
  bool shell = false;
  double timeout_seconds = 86'400;
  output_options output;
};

direction chosen_direction(ab_options const& options) {
  if (!options.better.empty()) return options.better == "higher" ? direction::higher : direction::lower;
  bool const low = std::ranges::any_of(std::vector{"loss", "objective", "distance", "error", "perplexity"},
                                       [&](char const* name) { return options.metric == name; });
  return low ? direction::lower : direction::higher;
}

template <class T>
void refuse_twice(std::vector<T> values, char const* option) {
  std::ranges::sort(values);
  auto const twice = std::ranges::adjacent_find(values);
  if (twice != values.end()) throw program_error{fmt::format("{} {} is given twice: once is enough", option, *twice)};
}

question make_question(ab_options const& options) {
  if (!(options.margin > 0) || !std::isfinite(options.margin)) {
    throw program_error{
        fmt::format("--margin {}: give the largest difference that does not matter, above 0, in units "
                    "of {}",
                    options.margin, options.metric)};
  }
  question asked;
  asked.arms = options.arms;
  asked.baseline = options.baseline;
  refuse_twice(options.arms, "--arm");
  if (std::ranges::all_of(asked.arms, [&](auto const& arm) { return arm == asked.baseline; })) {
    throw program_error{fmt::format("--arm {} is the baseline: give an --arm to compare with it, or another --baseline",
                                    asked.baseline)};
  }
  if (std::ranges::find(asked.arms, asked.baseline) == asked.arms.end()) {
    asked.arms.insert(asked.arms.begin(), asked.baseline);
  }
  for (std::string const& list : options.seed_list) {
    auto const seeds = parse_whole_numbers(list).value_or(std::vector<std::uint64_t>{});
    asked.seeds.insert(asked.seeds.end(), seeds.begin(), seeds.end());
  }
  refuse_twice(asked.seeds, "--seed-list: seed");
  if (asked.seeds.empty()) {
    for (std::uint64_t seed = 1; seed <= options.seeds; ++seed) asked.seeds.push_back(seed);
  }
  asked.metric = options.metric;
  asked.margin = options.margin;
  asked.better = chosen_direction(options);
  return asked;
}

// The built-in training, with the options that are not ab's own.
std::vector<std::string> train_command(question const& asked, std::vector<std::string> const& train_options) {
  for (std::string const& option : train_options) {
    for (std::string_view const own : {"--spec", "--seed", "--metrics"}) {
      if (option == own || option.starts_with(std::string{own} + "=")) {
        throw program_error{fmt::format("{} is filled in by ab for every run: use --arm and --seeds", own)};
      }
    }
  }
  std::vector<std::pair<std::string, std::string>> canonical;
  for (std::string const& arm : asked.arms) {
    std::string const text = spec::parse(arm).text();
    for (auto const& [other_text, other] : canonical) {
      if (text == other_text) {
        throw program_error{fmt::format("--arm {} and --arm {} are the same method ({})", other, arm, text)};
      }
    }
    canonical.emplace_back(text, arm);
  }
  std::vector<std::string> command{"gradwire", "train",  "--spec",    "{spec}",
                                   "--seed",   "{seed}", "--metrics", "{metrics}"};
  command.insert(command.end(), train_options.begin(), train_options.end());
  return command;
}

std::vector<std::string> foreign_command(std::vector<std::string> const& command,
                                         std::vector<std::string> const& train_options) {
  if (!train_options.empty()) {
    throw program_error{
        fmt::format("'{}' is not an option of ab (gradwire ab --help lists them); options of the COMMAND go after it",
                    train_options.front())};
  }
  for (char const* const needed : {"{spec}", "{seed}", "{metrics}"}) {
    if (std::ranges::none_of(command, [&](auto const& word) { return word.find(needed) != word.npos; })) {
      throw program_error{
          fmt::format("the COMMAND has no {}: put it where the program takes it, e.g. -- python "
                      "train.py --method {{spec}} --seed {{seed}} --metrics {{metrics}}",
                      needed)};
    }
  }
  return command;
}

std::string now_text() {
  std::time_t const now = std::chrono::system_clock::to_time_t(std::chrono::system_clock::now());
  return fmt::format("{:%Y-%m-%d %H:%M} UTC", fmt::gmtime(now));
}

class ab_run {
 public:
  ab_run(ab_options options, std::vector<std::string> const& train_options, context const& ctx)
      : options_{std::move(options)},
        command_line_{ctx.arguments},
        asked_{make_question(options_)},
        own_{ctx.command.empty()},
        what_{own_ ? train_command(asked_, train_options) : foreign_command(ctx.command, train_options), options_.shell,
              options_.metric, options_.value},
        console_{options_.output},
        directory_{options_.directory},
        results_{directory_ / "results.jsonl", what_, options_.resume},
        json_{options_.output.json} {}

  exit_code operator()() {
    execute();
    auto const results = judge_arms(asked_, runs_);
    write_verdicts(results);
    write_page(directory_ / "report.html",
               make_page({asked_, what_, results, runs_, directory_.path(), command_line_, options_.jobs, now_text()}));
    show(results);
    return any_worse_or_failed(results) ? exit_code::no : exit_code::done;
  }

 private:
  void execute() {
    json_.write(what_.to_record());
    auto planned = plan_runs(asked_, what_, directory_.path(), own_ ? self_executable() : "");
    std::erase_if(planned, [&](run const& one) {
      auto const kept = std::ranges::find_if(
          results_.kept(), [&](run const& other) { return other.arm == one.arm && other.seed == one.seed; });
      if (kept == results_.kept().end()) return false;
      runs_.push_back(*kept);
      json_.write(kept->to_record());
      return true;
    });
    std::size_t const total = planned.size() + runs_.size();
    if (!runs_.empty()) console_.print("{} of {} runs were finished before\n", runs_.size(), total);
    progress bar{options_.output, "ab", total};
    bar.show(runs_.size());
    schedule_options schedule;
    schedule.directory = directory_.path();
    schedule.jobs = options_.jobs;
    schedule.run_timeout = std::chrono::milliseconds{std::llround(options_.timeout_seconds * 1000)};
    schedule.choice = options_.value == "last"             ? pick::last
                      : asked_.better == direction::higher ? pick::best_higher
                                                           : pick::best_lower;
    try {
      execute_runs(std::move(planned), schedule, asked_.metric, [&](run const& one) { keep(one, bar, total); });
    } catch (interrupted_error const&) {
      bar.clear();
      print_error(fmt::format("interrupted; {} of {} runs are finished and kept in {}, --resume goes on", runs_.size(),
                              total, (directory_ / "results.jsonl").string()));
      throw;
    }
  }

  void keep(run const& one, progress& bar, std::size_t total) {
    auto const log = directory_ / one.log;
    // The first of our own runs was refused: so would be all others.
    if (own_ && runs_.empty() && one.exit_status == static_cast<int>(exit_code::usage)) {
      throw program_error{fmt::format("gradwire train did not start: {} (log: {})", last_lines(log, 1), log.string())};
    }
    // Nor would any other run write it.
    if (runs_.empty() && one.lacks_metric) {
      throw program_error{fmt::format("--metric {}: the first run ended well, but {} (log: {})", asked_.metric,
                                      one.reason, log.string())};
    }
    bar.clear();  // records may go to the same terminal
    results_.add(one.to_record());
    json_.write(one.to_record());
    runs_.push_back(one);
    if (one.status != run_status::ok) {
      console_.print("{}, seed {}: {}: {} (log: {})\n", one.arm, one.seed, to_string(one.status), one.reason,
                     log.string());
    } else if (!bar.on()) {
      console_.print("{} of {}: {}, seed {}: {} {}, {}\n", runs_.size(), total, one.arm, one.seed, asked_.metric,
                     value_text(*one.value, asked_.margin), format_seconds(one.seconds.value_or(0)));
    }
    bar.show(runs_.size(), runs_.size() < total ? fmt::format("{}, seed {} done", one.arm, one.seed) : "");
  }

  void write_verdicts(std::span<arm_result const> results) {
    auto const baseline = std::ranges::find_if(results, [](arm_result const& one) { return one.is_baseline; });
    for (arm_result const& one : results) {
      if (one.is_baseline) continue;
      auto const line = one.to_record(asked_, baseline->mean);
      results_.add(line);
      json_.write(line);
    }
  }

  void show(std::span<arm_result const> results) {
    console_.print("\n{}\n\n{}", summary_text(asked_, results), verdict_table(asked_, results));
    console_.print("\nWhat to look at next\n  {}: curves by step, bytes and time, and how to read them\n",
                   (directory_ / "report.html").string());
    for (std::string line : next_steps(asked_, results, runs_, directory_.path(), command_line_)) {
      for (auto at = line.find('\n'); at != line.npos; at = line.find('\n', at + 1)) line.replace(at, 1, "\n      | ");
      console_.print("  {}\n", line);
    }
  }

  ab_options options_;
  std::vector<std::string> command_line_;
  question asked_;
  bool own_;
  experiment what_;
  console console_;
  output_directory directory_;
  results_file results_;
  json_lines json_;
  std::vector<run> runs_;
};

void add_question_options(CLI::App& command, ab_options& options) {
  command.add_option("--arm", options.arms, "a method to judge; may be given several times")
      ->type_name("SPEC")
      ->required()
      ->allow_extra_args(false);
  command.add_option("--baseline", options.baseline, "what the arms are compared with; run as well")
      ->type_name("SPEC")
      ->capture_default_str();
  auto* const seeds = command.add_option("--seeds", options.seeds, "seeds 1 to N; each arm runs once per seed")
                          ->type_name("N")
                          ->transform(whole_number(1, 100'000))
                          ->capture_default_str();
  command.add_option("--seed-list", options.seed_list, "these seeds instead, e.g. 1,2,3")
      ->type_name("K,...")
      ->allow_extra_args(false)
      ->transform(whole_numbers())
      ->excludes(seeds);
  command.add_option("--metric", options.metric, "which eval records count")->type_name("NAME")->capture_default_str();
  command.add_option("--value", options.value, "which of them is the value of a run")
      ->check(CLI::IsMember({"last", "best"}))
      ->capture_default_str();
  command.add_option("--margin", options.margin, "the largest difference that does not matter, in units of the metric")
      ->type_name("X")
      ->capture_default_str();
  command
      .add_option("--better", options.better,
                  "default: lower for loss, objective, distance, error and perplexity, else higher")
      ->check(CLI::IsMember({"higher", "lower"}));
}

void add_run_options(CLI::App& command, ab_options& options) {
  command.add_option("--jobs", options.jobs, "runs at a time; more than one makes times rough")
      ->type_name("J")
      ->transform(whole_number(1, 4096))
      ->capture_default_str();
  command.add_option("--out", options.directory, "directory of results.jsonl, report.html, logs/ and metrics/")
      ->type_name("DIR")
      ->capture_default_str();
  command.add_flag("--resume", options.resume, "keep finished runs in DIR and run only what is missing");
  command.add_flag("--shell", options.shell, "run COMMAND by sh -c; filled-in values are quoted");
  command.add_option("--run-timeout", options.timeout_seconds, "longest time of one run")
      ->type_name("SECONDS")
      ->transform(number_of_seconds(0.001, 1e7))
      ->capture_default_str();
  add_output_options(command, options.output, "the experiment, its runs and verdicts, as in results.jsonl");
}

}  // namespace

void add_ab(CLI::App& app, context& ctx) {
  auto* const command =
      app.add_subcommand("ab", "A/B test of convergence: does training with a method reach the baseline?");
  auto options = std::make_shared<ab_options>();
  add_question_options(*command, *options);
  add_run_options(*command, *options);
  command->allow_extras();
  command->footer(
      "gradwire ab [OPTIONS] [options of gradwire train]     the built-in training\n"
      "gradwire ab [OPTIONS] -- COMMAND ...                  any program: {spec}, {seed} and {metrics} in its "
      "arguments\n"
      "are filled in; it writes JSON lines to {metrics}, of which only these are needed:\n"
      "  {\"event\":\"eval\",\"step\":50,\"metric\":\"accuracy\",\"value\":0.93}\n"
      "\n"
      "Verdicts, from the differences arm - baseline over equal seeds (paired t):\n"
      "  equivalent    the 90 % interval lies inside ±margin (two one-sided tests at 5 %)\n"
      "  better worse  else, the 95 % interval lies on one side of 0\n"
      "  inconclusive  else, with the number of seeds that would about settle it\n"
      "A failed or diverged run is a failed seed; an arm with one is inconclusive, or worse where the other seeds show "
      "it.\n"
      "Exit status 1: an arm is worse or a run failed.\n"
      "\n"
      "  gradwire ab --arm onebit+ef --arm 'quant(bits=4)' --workload digits --steps 300 --out my_ab");
  command->callback([&ctx, options, command] {
    ctx.takes_command = true;
    ctx.run = [&ctx, options, extras = command->remaining()] { return ab_run{*options, extras, ctx}(); };
  });
}

}  // namespace gradwire::program
