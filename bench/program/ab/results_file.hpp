#pragma once

#include <filesystem>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "program/ab/judge.hpp"
#include "program/ab/runs.hpp"
#include "program/common/json_lines.hpp"

namespace gradwire::program {

//! What makes runs comparable: two result files with equal ones belong to the same experiment. Arms and seeds may be
//! added later, and margin and baseline only matter to the verdicts.
struct experiment {
  std::vector<std::string> command;  //!< with its placeholders
  bool shell = false;
  std::string metric;
  std::string value;  //!< "last" or "best"

  //! {"event":"experiment",…}, the first of a file.
  [[nodiscard]] record to_record() const;
  friend bool operator==(experiment const&, experiment const&) = default;
};

//! DIR/results.jsonl: a record of the experiment, one record a run as it ends, and the verdicts.
class results_file {
 public:
  //! With `resume` and a file there: reads it, keeps the runs that are finished (ok or diverged; failed ones get
  //! another try) and writes it anew without verdicts. Without `resume` a file with runs in it is refused. Throws
  //! program_error: refused; of another experiment (names what differs); damaged (file and line); not writable.
  results_file(std::filesystem::path const& path, experiment const& experiment, bool resume);

  //! Finished runs of an earlier start, for this experiment.
  [[nodiscard]] std::span<run const> kept() const noexcept { return kept_; }
  //! Appends; the record is with the system when this returns.
  void add(record const& line) { out_->write(line); }

 private:
  std::vector<run> kept_;
  std::optional<json_lines> out_;
};

}  // namespace gradwire::program
