#include <CLI/CLI.hpp>

#include "program/common/context.hpp"

namespace gradwire::program {

void add_codecs(CLI::App& app, context& ctx) {
  auto* const command = app.add_subcommand("codecs", "list the methods, or explain one spec");
  command->callback([&ctx] { ctx.run = [] { return exit_code::done; }; });
}

}  // namespace gradwire::program
