#include <memory>

#include <fmt/format.h>
#include <CLI/CLI.hpp>

#include "program/common/console.hpp"
#include "program/common/context.hpp"
#include "program/common/end_at_once.hpp"
#include "program/common/interrupt.hpp"
#include "program/common/json_lines.hpp"
#include "program/common/numbers.hpp"
#include "program/doctor/checks.hpp"

namespace gradwire::program {
namespace {

struct doctor_command_options : doctor_options {
  output_options output;
};

class reporter {
 public:
  explicit reporter(output_options const& options) : people_{options}, records_{options.json} {}

  void say(finding const& line) {
    worst_ = std::max(worst_, line.how);
    record entry{{"event", "check"}, {"check", line.check}, {"verdict", to_string(line.how)}, {"text", line.text}};
    entry["mend"] = line.mend.empty() ? record(nullptr) : record(line.mend);
    entry["values"] = line.values;
    records_.write(entry);
    people_.print("{:<8} {:<31} {}\n", to_string(line.how), line.check, line.text);
    if (!line.mend.empty()) people_.print("{:<8} {:<31} -> {}\n", "", "", line.mend);
    throw_if_interrupted();
  }
  [[nodiscard]] exit_code end() {
    people_.write(worst_ == severity::failure ? "\nSomething above would stop a run.\n"
                                              : "\nNothing would stop a run.\n");
    return worst_ == severity::failure ? exit_code::no : exit_code::done;
  }

 private:
  console people_;
  json_lines records_;
  severity worst_ = severity::ok;
};

exit_code run_doctor(doctor_command_options const& options) {
  signal_guard const guard;
  interrupt_watch const watch{end_at_once};  // what was found stands on the terminal
  reporter report{options.output};
  report.say(check_cpu());
  report.say(check_memory_speed());
  report.say(check_cores(options));
  report.say(check_open_files(options));
  report.say(check_temporary_folder());
  report.say(check_launch());
  report.say(check_local_rank());
  report.say(check_interfaces());
  for (transport_entry const& transport : transports()) report.say(check_transport(transport, options));
  for (finding const& line : check_gpu()) report.say(line);
  for (finding const& line : check_break_even(options)) report.say(line);
  return report.end();
}

}  // namespace

void add_doctor(CLI::App& app, context& ctx) {
  auto* const command = app.add_subcommand("doctor", "what is wrong with this machine's set-up, and how to mend it");
  auto const options = std::make_shared<doctor_command_options>();
  command->add_option("--ranks", options->ranks, "workers that you want to run on this machine")
      ->type_name("N")
      ->capture_default_str()
      ->transform(whole_number(1, 4096));
  add_timeout_option(*command, options->timeout_ms);
  add_output_options(*command, options->output, "one record a check");
  command->footer(std::string{break_even_definition} + "\nExit status 1 when something would stop a run.");
  command->callback([&ctx, options] { ctx.run = [options] { return run_doctor(*options); }; });
}

}  // namespace gradwire::program
