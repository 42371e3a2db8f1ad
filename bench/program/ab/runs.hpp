#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "program/common/json_lines.hpp"
#include "program/common/shell.hpp"

namespace gradwire::program {

enum class run_status : unsigned char { ok, failed, diverged };
[[nodiscard]] std::string_view to_string(run_status value) noexcept;

//! Which `eval` record of a run is its value.
enum class pick : unsigned char { last, best_higher, best_lower };

struct step_point {
  double step = 0;
  std::optional<double> loss;  //!< empty where it was not finite
  std::optional<double> seconds;
  std::optional<double> exposed_seconds;
  std::optional<double> raw_bytes;
  std::optional<double> wire_bytes;
};

struct eval_point {
  double step = 0;              //!< as written, or its number among the evals (1, 2, …)
  std::optional<double> value;  //!< empty where it was not finite
};

//! What a metrics file says. Everything that a program did not write is empty.
struct metrics {
  std::vector<step_point> steps;
  std::vector<eval_point> evals;           //!< of the chosen metric
  std::vector<std::string> other_metrics;  //!< names of the metrics that were not chosen
  std::optional<std::string> end_status;   //!< of the `end` record
  std::optional<double> step_count;        //!< totals: of the `end` record, else summed over the steps
  std::optional<double> seconds;
  std::optional<double> raw_bytes;
  std::optional<double> wire_bytes;

  //! Reads JSON lines; NaN and Infinity, which Python's json module writes, count as values that are not finite. A last
  //! line without its newline is left out if it is not whole. Throws program_error that names the file and the line.
  [[nodiscard]] static metrics read(std::filesystem::path const& file, std::string_view metric);
};

//! One arm with one seed.
struct run {
  std::string arm;
  std::uint64_t seed = 0;
  run_status status = run_status::failed;
  std::optional<double> value;
  std::optional<double> steps;
  std::optional<double> seconds;
  std::optional<double> raw_bytes;
  std::optional<double> wire_bytes;
  std::optional<int> exit_status;    //!< of its process, if it was not ended by a signal; not recorded
  bool lacks_metric = false;         //!< ended well, but without a record of the chosen metric; not recorded
  std::string reason;                //!< of a run that is not ok
  std::vector<std::string> command;  //!< filled in
  std::string log;                   //!< relative to the output directory
  std::string metrics_file;          //!< relative to the output directory

  [[nodiscard]] record to_record() const;
  //! Throws nlohmann's exceptions for a record that is not a run.
  [[nodiscard]] static run from_record(record const& line);
};

//! Fills status, value, totals and reason from what the process did. `end_text`: empty for exit status 0, else how it
//! ended; `wall_seconds` stands in for seconds that the program did not write.
void conclude(run& run, std::filesystem::path const& metrics_file, std::string_view metric, pick choice,
              std::string const& end_text, double wall_seconds);

//! `{spec}`, `{seed}` and `{metrics}` filled in. With `shell`, the arguments become one command line for `sh -c`, with
//! the filled-in values quoted.
[[nodiscard]] std::vector<std::string> fill_in(std::span<std::string const> command, bool shell, std::string_view spec,
                                               std::uint64_t seed, std::string_view metrics_file);

//! A file name for the run of an arm: readable, and different for different arms.
[[nodiscard]] std::string run_name(std::string_view arm, std::uint64_t seed);

//! The last `lines` lines of a text file, at most 4 KiB of them and as valid UTF-8 without control characters; empty if
//! it cannot be read.
[[nodiscard]] std::string last_lines(std::filesystem::path const& file, std::size_t lines);

}  // namespace gradwire::program
