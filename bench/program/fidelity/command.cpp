#include <cstddef>
#include <memory>
#include <string>
#include <vector>

#include <fmt/format.h>
#include <CLI/CLI.hpp>

#include <gradwire/error.hpp>

#include "program/common/console.hpp"
#include "program/common/context.hpp"
#include "program/common/interrupt.hpp"
#include "program/common/json_lines.hpp"
#include "program/common/numbers.hpp"
#include "program/fidelity/fidelity.hpp"
#include "program/fidelity/npy.hpp"

namespace gradwire::program {
namespace {

constexpr char const* footer =
    "x is what an --input file holds (little-endian f2, f4 or f8, any shape), taken as one tensor; D is x encoded and\n"
    "decoded. nmse is |x-D|^2/|x|^2; bias the mean of D-x over elements and repeats relative to the rms of x; element\n"
    "bias |mean of D over repeats - x|/|x| without the noise of the repeats: 0 for an unbiased method.\n"
    "sum error is |sum of what was sent - sum of x|/|sum of x| over --steps steps with the same x: error feedback "
    "(+ef)\n"
    "leaves only the last residual missing, without it a biased method keeps its error.\n"
    "Example: gradwire fidelity --spec bf16 onebit onebit+ef 'topk(ratio=0.01)+ef' --input grad.npy --steps 100";

struct fidelity_command {
  std::vector<std::string> specs;
  std::vector<std::string> inputs;
  fidelity::fidelity_options options;
  output_options output;
};

std::vector<spec> parse_specs(std::vector<std::string> const& texts) {
  std::vector<spec> methods;
  for (std::string const& text : texts) {
    methods.push_back(spec::parse(text));
    if (methods.back().warmup_steps != 0) {
      throw program_error{fmt::format("--spec {}: fidelity looks at the method itself; leave warmup(...) out", text)};
    }
  }
  return methods;
}

fidelity::fidelity_result measure(spec const& method, std::vector<float> const& x, std::string const& input,
                                  fidelity::fidelity_options const& options) {
  try {
    return measure_fidelity(method, x, options);
  } catch (error const& failure) {
    throw program_error{fmt::format("{}: {}", input, failure.what())};
  }
}

std::vector<std::string> cells(fidelity::fidelity_result const& result, bool steps) {
  std::vector<std::string> row{result.spec,
                               fmt::format("{}", result.bytes),
                               fmt::format("{:.3f}", result.bits_per_element()),
                               fmt::format("{:.3e}", result.nmse),
                               fmt::format("{:+.1e}", result.bias),
                               fmt::format("{:.2e}", result.element_bias),
                               result.cosine ? fmt::format("{:.6f}", *result.cosine) : "N/A",
                               fmt::format("{:.3e}", result.max_abs_error)};
  if (steps) row.push_back(fmt::format("{:.3e}", result.sum_error.value_or(0)));
  return row;
}

exit_code run(fidelity_command const& command) {
  signal_guard const guard;
  auto const methods = parse_specs(command.specs);
  std::vector<fidelity::npy_array> arrays;
  for (auto const& input : command.inputs) arrays.push_back(fidelity::read_npy(input));
  console out{command.output};
  json_lines json{command.output.json};
  progress bar{command.output, "fidelity", methods.size() * arrays.size()};
  bool const steps = command.options.steps != 0;
  std::size_t done = 0;
  for (std::size_t i = 0; i < arrays.size(); ++i) {
    std::vector<table::column> columns{{"spec", align::left}, {"bytes"},  {"bits/element"}, {"nmse"}, {"bias"},
                                       {"element bias"},      {"cosine"}, {"max |error|"}};
    if (steps) columns.push_back({fmt::format("sum error ({} steps)", command.options.steps)});
    table rows{columns};
    for (auto const& method : methods) {
      throw_if_interrupted();
      bar.show(done++, method.text());
      auto const result = measure(method, arrays[i].values, command.inputs[i], command.options);
      bar.clear();  // records may go to the same terminal
      json.write(to_record(result, command.inputs[i], command.options));
      rows.add(cells(result, steps));
    }
    bar.clear();
    std::size_t const count = arrays[i].values.size();
    out.print("{}{}: {} number{} of {}\n", i == 0 ? "" : "\n", command.inputs[i], count, count == 1 ? "" : "s",
              arrays[i].descr);
    out.write(rows.text());
  }
  return exit_code::done;
}

}  // namespace

void add_fidelity(CLI::App& app, context& ctx) {
  auto* const command = app.add_subcommand("fidelity", "error, bias, angle and bytes of methods on a gradient dump");
  auto const chosen = std::make_shared<fidelity_command>();
  command->add_option("--spec", chosen->specs, "methods")->type_name("SPEC ...")->required();
  command->add_option("--input", chosen->inputs, "NumPy arrays")->type_name("FILE.npy ...")->required();
  command->add_option("--steps", chosen->options.steps, "steps of error feedback to add up; 0: none")
      ->type_name("N")
      ->capture_default_str()
      ->transform(whole_number(0, 1'000'000'000));
  command->add_option("--repeats", chosen->options.repeats, "encodings with random numbers of their own")
      ->type_name("N")
      ->capture_default_str()
      ->transform(whole_number(1, 1'000'000));
  command->add_option("--seed", chosen->options.seed, "of the random numbers")
      ->type_name("K")
      ->capture_default_str()
      ->transform(whole_number());
  add_output_options(*command, chosen->output, "one record an input and spec");
  command->footer(footer);
  command->callback([chosen, &ctx] { ctx.run = [chosen] { return run(*chosen); }; });
}

}  // namespace gradwire::program
