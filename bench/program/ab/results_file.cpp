#include "program/ab/results_file.hpp"

#include <algorithm>
#include <iterator>

#include <fmt/format.h>

#include <gradwire/version.hpp>

#include "program/ab/explain.hpp"
#include "program/common/context.hpp"

namespace gradwire::program {
namespace {

void refuse_others(std::filesystem::path const& path, record const& line, experiment const& wanted) {
  experiment const found{line.at("command").get<std::vector<std::string>>(), line.at("shell").get<bool>(),
                         line.at("metric").get<std::string>(), line.at("value").get<std::string>()};
  if (found == wanted) return;
  auto const refuse = [&](char const* what, std::string const& there, std::string const& here) {
    throw program_error{
        fmt::format("'{}' is of another experiment: its {} is {}, not {}; give the same, or another --out",
                    path.string(), what, there, here)};
  };
  if (found.metric != wanted.metric) refuse("metric", found.metric, wanted.metric);
  if (found.value != wanted.value) refuse("value", found.value, wanted.value);
  refuse("command", command_text(found.command), command_text(wanted.command));
}

struct contents {
  std::optional<record> of;  // the record of its experiment
  std::vector<run> runs;
};

contents read_contents(std::filesystem::path const& path) {
  contents found;
  std::size_t number = 0;
  for (record const& line : read_json_lines(path)) {
    ++number;
    try {
      std::string const event = line.at("event").get<std::string>();
      if (event == "experiment") found.of = line;
      if (event == "run") found.runs.push_back(run::from_record(line));
    } catch (record::exception const& failure) {
      throw program_error{fmt::format("'{}', record {}: not one of gradwire ab's ({}); name another --out",
                                      path.string(), number, failure.what())};
    }
  }
  if (!found.of && number > 0) {
    throw program_error{
        fmt::format("'{}' was not written by gradwire ab (no experiment record); name another --out", path.string())};
  }
  return found;
}

}  // namespace

record experiment::to_record() const {
  return {{"event", "experiment"}, {"command", command}, {"shell", shell},
          {"metric", metric},      {"value", value},     {"version", version()}};
}

results_file::results_file(std::filesystem::path const& path, experiment const& experiment, bool resume) {
  contents found;
  if (std::filesystem::exists(path)) found = read_contents(path);
  // Without a run in it, a file is only what a mistyped command left.
  if (!found.runs.empty()) {
    if (!resume) {
      throw program_error{
          fmt::format("'{}' has runs in it already: --resume goes on with it, --out names another "
                      "directory",
                      path.string())};
    }
    refuse_others(path, *found.of, experiment);
  }
  std::ranges::copy_if(found.runs, std::back_inserter(kept_),
                       [](run const& one) { return one.status != run_status::failed; });
  std::string bytes = experiment.to_record().dump() + "\n";
  for (run const& one : kept_) bytes += one.to_record().dump() + "\n";
  write_file(path, bytes);
  out_.emplace(path.string(), open_mode::append);
}

}  // namespace gradwire::program
