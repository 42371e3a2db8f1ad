#pragma once

#include <functional>
#include <stdexcept>
#include <string>
#include <vector>

namespace CLI {
class App;
}

namespace gradwire::program {

//! Exit statuses (docs: every `--help`).
enum class exit_code : int {
  done = 0,
  no = 1,            //!< it ran and the answer is no: a wrong element, a worse arm, a rank that died
  usage = 2,         //!< usage or environment; one line says what to do
  interrupted = 130  //!< Ctrl-C; what was finished is kept
};

//! A failure of the program itself, as opposed to gradwire::error from the library. what() is one line that says what
//! to do.
class program_error : public std::runtime_error {
 public:
  explicit program_error(std::string const& text, exit_code status = exit_code::usage)
      : std::runtime_error{text}, status_{status} {}
  [[nodiscard]] exit_code status() const noexcept { return status_; }

 private:
  exit_code status_;
};

//! Thrown where Ctrl-C (or SIGTERM, or SIGHUP) ends the work.
class interrupted_error : public program_error {
 public:
  interrupted_error() : program_error{"interrupted", exit_code::interrupted} {}
};

//! What main() and the subcommands share.
struct context {
  std::vector<std::string> arguments;  //!< the command line as given, program name first
  std::vector<std::string> command;    //!< what stands after `--`; never parsed
  bool takes_command = false;          //!< set by the callback of a subcommand that takes a `-- COMMAND`
  bool verbose = false;
  //! Set by the callback of the chosen subcommand; main() calls it once the whole command line is understood.
  std::function<exit_code()> run;
};

//! Adds every subcommand (generated from the folders).
void add_commands(CLI::App& app, context& ctx);

//! The whole program: parses, runs, prints errors as one line on standard error; returns the exit status.
[[nodiscard]] int run_program(int argc, char const* const* argv);

}  // namespace gradwire::program
