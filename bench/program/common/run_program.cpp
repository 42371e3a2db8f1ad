#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <exception>
#include <new>
#include <string>
#include <string_view>
#include <system_error>

#include <fmt/format.h>
#include <CLI/CLI.hpp>

#include <gradwire/error.hpp>
#include <gradwire/version.hpp>

#include "program/common/console.hpp"
#include "program/common/context.hpp"
#include "program/common/interrupt.hpp"

namespace gradwire::program {
namespace {

// Failures of peers are an answer ("it ran, and a rank died"); everything else is to be mended before it can run.
exit_code status_of(errc code) {
  return code == errc::communicator || code == errc::timeout ? exit_code::no : exit_code::usage;
}

std::string subcommand_names(CLI::App const& app) {
  std::string names;
  for (CLI::App const* command : app.get_subcommands([](CLI::App const*) { return true; })) {
    names += (names.empty() ? "" : ", ") + command->get_name();
  }
  return names;
}

exit_code explain(CLI::App& app, CLI::ParseError const& failure, int argc, char const* const* argv) {
  if (failure.get_exit_code() == static_cast<int>(CLI::ExitCodes::Success)) {  // --help, --version
    static_cast<void>(app.exit(failure));
    return exit_code::done;
  }
  if (argc < 2) {
    write_to_stderr(app.help());
    return exit_code::usage;
  }
  auto const chosen = app.get_subcommands();
  std::string const where = chosen.empty() ? "" : " " + chosen.front()->get_name();
  if (chosen.empty() && argv[1][0] != '-') {
    print_error(fmt::format("unknown subcommand '{}': use one of {}", argv[1], subcommand_names(app)));
  } else {
    std::string text = failure.what();
    for (char& c : text) c = c == '\n' ? ' ' : c;
    print_error(fmt::format("{} (gradwire{} --help lists the options)", text, where));
  }
  return exit_code::usage;
}

// Limits that a user can raise show as the system's message, wherever they are met.
std::string with_mend(std::string text) {
  auto const says = [&](std::string const& what) { return text.find(what) != std::string::npos; };
  if (says(std::generic_category().message(EMFILE)) && !says("ulimit")) {
    text += "; raise the limit on open files, e.g. ulimit -n 4096, or use fewer ranks";
  }
  return text;
}

exit_code guarded(context& ctx) {
  try {
    return ctx.run();
  } catch (program_error const& failure) {
    if (failure.status() != exit_code::interrupted) print_error(with_mend(failure.what()));
    return failure.status();
  } catch (error const& failure) {
    if (interrupted()) return exit_code::interrupted;  // its peers went first
    print_error(with_mend(failure.what()));
    if (ctx.verbose) {
      write_to_stderr(fmt::format("  {} thrown at {}:{} ({})\n", to_string(failure.code()), failure.where().file,
                                  failure.where().line, failure.where().function));
    }
    return status_of(failure.code());
  } catch (std::bad_alloc const&) {
    print_error("out of memory: use a smaller size or fewer ranks");
    return exit_code::usage;
  } catch (std::exception const& failure) {
    print_error(with_mend(failure.what()));
    return exit_code::usage;
  }
}

// A standard stream that the caller closed would become the first file that is opened here, and error reports would go
// into it. With this in its place a write to it fails, as it should.
void fill_standard_streams() {
  for (int const fd : {STDIN_FILENO, STDOUT_FILENO, STDERR_FILENO}) {
    if (fcntl(fd, F_GETFD) < 0) static_cast<void>(open("/dev/null", O_RDONLY));  // the lowest free one: this
  }
}

}  // namespace

int run_program(int argc, char const* const* argv) {
  fill_standard_streams();
  context ctx;
  ctx.arguments.assign(argv, argv + argc);
  CLI::App app{"gradwire averages gradients across data-parallel workers with far fewer bytes on the wire.",
               "gradwire"};
  app.set_version_flag("--version", "gradwire " + std::string{version()}, "print the version and exit");
  auto const add_verbose = [&ctx](CLI::App& to) {
    to.add_flag("--verbose", ctx.verbose, "with errors, say where in the source they were found");
  };
  add_verbose(app);
  app.require_subcommand(1);
  app.get_formatter()->column_width(34);
  app.footer(
      "Each subcommand explains itself:  gradwire train --help\n"
      "Exit status: 0 done; 1 it ran and the answer is no; 2 usage or environment; 130 interrupted.");
  add_commands(app, ctx);
  for (CLI::App* const command : app.get_subcommands([](CLI::App const*) { return true; })) add_verbose(*command);
  // A command for `ab` may have any options: CLI11 does not see it.
  auto const* const dashes = std::find(argv, argv + argc, std::string_view{"--"});
  if (dashes != argv + argc) ctx.command.assign(dashes + 1, argv + argc);
  try {
    app.parse(static_cast<int>(dashes - argv), argv);
  } catch (CLI::ParseError const& failure) {
    return static_cast<int>(explain(app, failure, argc, argv));
  }
  if (dashes != argv + argc && !ctx.takes_command) {
    print_error(fmt::format("{} takes no command after --", app.get_subcommands().front()->get_name()));
    return static_cast<int>(exit_code::usage);
  }
  return static_cast<int>(guarded(ctx));
}

}  // namespace gradwire::program
