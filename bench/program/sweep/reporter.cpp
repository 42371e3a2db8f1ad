#include "program/sweep/reporter.hpp"

#include <algorithm>
#include <numeric>

#include <fmt/format.h>

#include <gradwire/version.hpp>

#include "program/sweep/pictures.hpp"

namespace gradwire::program::sweep {
namespace {

// Why it is no results.jsonl of a sweep; empty when it is one, or not there.
std::string foreign(std::filesystem::path const& file) {
  if (!std::filesystem::exists(file)) return {};
  try {
    for (record const& line : read_json_lines(file)) {
      std::string const event = line.at("event").get<std::string>();
      if (event != "case" && event != "skipped") return fmt::format("it has a record of '{}'", event);
    }
  } catch (std::exception const& failure) {
    return failure.what();
  }
  return {};
}

// An earlier sweep's results may be replaced; those of another experiment may not.
void refuse_others(std::filesystem::path const& file) {
  if (std::string const why = foreign(file); !why.empty()) {
    throw program_error{
        fmt::format("'{}' was not written by gradwire sweep ({}): name another --out", file.string(), why)};
  }
}

}  // namespace

sweep_reporter::sweep_reporter(output_options const& output, std::string const& json, std::filesystem::path const& out,
                               sweep_plan const& plan, std::size_t cases)
    : console_{output},
      progress_{output, "sweep", cases},
      json_{json},
      spec_width_{plan.spec_width()},
      collective_{plan.collective},
      type_{plan.options.type} {
  if (out.empty()) return;
  out_.emplace(out);
  refuse_others(*out_ / "results.jsonl");
}

void sweep_reporter::begin_sweep() {
  console_.print("# gradwire {} sweep: {} of {}{}\n", version(), to_string(collective_), to_string(type_),
                 collective_ == collective_kind::all_reduce ? ", mean over ranks" : "");
}

void sweep_reporter::begin_world(std::string_view transport, std::size_t ranks) {
  progress_.clear();
  console_.print("#\n# {}, {} rank{}\n", transport, ranks, ranks == 1 ? "" : "s");
  console_.write(table_header(spec_width_));
}

void sweep_reporter::write(record const& line) {
  progress_.clear();  // records may go to the same terminal
  json_.write(line);
  if (!out_) return;
  // Only now: until there is something new, an earlier sweep's results stay.
  if (!out_lines_) out_lines_.emplace((*out_ / "results.jsonl").string());
  out_lines_->write(line);
}

void sweep_reporter::keep(case_result const& result) {
  results_.push_back(result);
  std::string const note{result.note()};
  if (!note.empty() && std::find(notes_.begin(), notes_.end(), note) == notes_.end()) notes_.push_back(note);
}

void sweep_reporter::add(case_result const& result) {
  keep(result);
  write(to_record(result));
  progress_.clear();
  console_.write(table_row(result, spec_width_));
  progress_.show(results_.size(), result.spec);
}

void sweep_reporter::skip(skipped_method const& method) {
  skipped_.push_back(method);
  write({{"event", "skipped"}, {"spec", method.spec}, {"reason", method.reason}});
  console_.print("# skipped {}: {}\n", method.spec, method.reason);
}

void sweep_reporter::take(record const& line) {
  write(line);
  if (line.value("event", "") == "skipped") {
    skipped_.push_back({line.value("spec", ""), line.value("reason", "")});
  } else {
    keep(from_record(line));
  }
}

void sweep_reporter::print_break_evens() {
  auto const found = break_evens(results_);
  if (found.empty()) return;
  table rows{{{"setting", align::left},
              {"spec", align::left},
              {"reduction", align::left},
              {"break-even"},
              {"most times as fast"},
              {"at"}}};
  for (auto const& one : found) {
    rows.add({one.setting, one.spec, one.reduction,
              one.bytes ? format_bytes(static_cast<double>(*one.bytes)) : "none in this range",
              fmt::format("{:.2f}", one.best_speedup), format_bytes(static_cast<double>(one.best_bytes))});
  }
  console_.write(
      "#\n# Break-even with dense (none): the smallest size from which on every size measured here is faster\n"
      "# than dense in the same run and setting.\n");
  console_.write(rows.text());
}

exit_code sweep_reporter::finish(std::vector<std::string> const& command_line) {
  progress_.clear();
  if (results_.empty() && !skipped_.empty()) throw program_error{skipped_.front().reason};
  for (auto const& note : notes_) console_.print("# N/A: {}\n", note);
  std::size_t const wrong = std::accumulate(results_.begin(), results_.end(), std::size_t{0},
                                            [](std::size_t sum, case_result const& one) { return sum + one.wrong; });
  print_break_evens();
  console_.print("#\n# wrong elements: {} {}\n", wrong, wrong == 0 ? "OK" : "FAILED");
  if (out_ && !results_.empty()) {
    auto const file = *out_ / "sweep.html";
    write_sweep_page(file, collective_, results_, command_line);
    console_.print("# pictures: {}\n", file.string());
  }
  return wrong == 0 ? exit_code::done : exit_code::no;
}

}  // namespace gradwire::program::sweep
