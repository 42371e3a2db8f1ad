#pragma once

#include <cstddef>
#include <filesystem>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "program/common/console.hpp"
#include "program/common/context.hpp"
#include "program/common/json_lines.hpp"
#include "program/common/output_directory.hpp"
#include "program/sweep/plan.hpp"
#include "program/sweep/result.hpp"

namespace gradwire::program::sweep {

//! Takes the results of a sweep as they come: rows for people, JSON lines, and at the end the break-even table,
//! results.jsonl and sweep.html.
class sweep_reporter {
 public:
  //! `json`: where records go, as json_lines takes it. `out`: the folder of results.jsonl and sweep.html; empty: none.
  sweep_reporter(output_options const& output, std::string const& json, std::filesystem::path const& out,
                 sweep_plan const& plan, std::size_t cases);

  //! What all rows have in common.
  void begin_sweep();
  //! What the rows of one world have in common.
  void begin_world(std::string_view transport, std::size_t ranks);
  void add(case_result const& result);
  void skip(skipped_method const& method);
  //! A record of another process, which has printed its row.
  void take(record const& line);
  //! Break-even, verdict, files. Throws program_error when nothing could be measured, with the reason of the first
  //! skip. exit_code::no when an element was wrong.
  exit_code finish(std::vector<std::string> const& command_line);

  [[nodiscard]] std::vector<case_result> const& results() const noexcept { return results_; }

 private:
  void write(record const& line);
  void keep(case_result const& result);
  void print_break_evens();

  console console_;
  progress progress_;
  json_lines json_;
  std::optional<output_directory> out_;
  std::optional<json_lines> out_lines_;
  std::size_t spec_width_;
  collective_kind collective_;
  dtype type_;
  std::vector<case_result> results_;
  std::vector<skipped_method> skipped_;
  std::vector<std::string> notes_;  // why figures are N/A, each once
};

}  // namespace gradwire::program::sweep
