#include <algorithm>
#include <cmath>
#include <string>

#include <fmt/format.h>

#include "program/ab/runs.hpp"
#include "program/common/context.hpp"

namespace gradwire::program {
namespace {

// Python's json.dumps writes NaN, Infinity and -Infinity, which are not JSON; null has their meaning here.
std::string without_nan(std::string_view line) {
  std::string result;
  bool in_string = false;
  for (std::size_t i = 0; i < line.size(); ++i) {
    if (in_string && line[i] == '\\' && i + 1 < line.size()) {
      result += line[i++];
    } else if (line[i] == '"') {
      in_string = !in_string;
    } else if (!in_string) {
      bool replaced = false;
      for (std::string_view const word : {"NaN", "-NaN", "Infinity", "-Infinity"}) {
        if (!line.substr(i).starts_with(word)) continue;
        result += "null";
        i += word.size() - 1;
        replaced = true;
        break;
      }
      if (replaced) continue;
    }
    result += line[i];
  }
  return result;
}

std::optional<double> number(record const& line, char const* key) {
  auto const found = line.find(key);
  if (found == line.end() || !found->is_number()) return std::nullopt;
  auto const value = found->get<double>();
  return std::isfinite(value) ? std::optional{value} : std::nullopt;
}

std::string text(record const& line, char const* key) {
  auto const found = line.find(key);
  return found != line.end() && found->is_string() ? found->get<std::string>() : std::string{};
}

void add(std::optional<double>& total, std::optional<double> const& value) {
  if (value) total = total.value_or(0) + *value;
}

void add_record(metrics& result, record const& line, std::string_view metric) {
  std::string const event = text(line, "event");
  if (event == "step") {
    result.steps.push_back({number(line, "step").value_or(static_cast<double>(result.steps.size() + 1)),
                            number(line, "loss"), number(line, "seconds"), number(line, "exposed_seconds"),
                            number(line, "raw_bytes"), number(line, "wire_bytes")});
  } else if (event == "eval") {
    std::string const name = text(line, "metric");
    if (name == metric) {
      result.evals.push_back(
          {number(line, "step").value_or(static_cast<double>(result.evals.size() + 1)), number(line, "value")});
    } else if (std::ranges::find(result.other_metrics, name) == result.other_metrics.end()) {
      result.other_metrics.push_back(name);
    }
  } else if (event == "end") {
    result.end_status = text(line, "status");
    result.step_count = number(line, "steps");
    result.seconds = number(line, "seconds");
    result.raw_bytes = number(line, "raw_bytes");
    result.wire_bytes = number(line, "wire_bytes");
  }
}

void total_up(metrics& result) {
  metrics sums;
  for (step_point const& step : result.steps) {
    add(sums.seconds, step.seconds);
    add(sums.raw_bytes, step.raw_bytes);
    add(sums.wire_bytes, step.wire_bytes);
  }
  if (!result.steps.empty()) sums.step_count = static_cast<double>(result.steps.size());
  if (!result.step_count) result.step_count = sums.step_count;
  if (!result.seconds) result.seconds = sums.seconds;
  if (!result.raw_bytes) result.raw_bytes = sums.raw_bytes;
  if (!result.wire_bytes) result.wire_bytes = sums.wire_bytes;
}

std::optional<double> chosen(std::vector<eval_point> const& evals, pick choice) {
  if (choice == pick::last) return evals.back().value;
  std::optional<double> best;
  for (eval_point const& eval : evals) {
    if (!eval.value) continue;
    bool const improves = !best || (choice == pick::best_higher ? *eval.value > *best : *eval.value < *best);
    if (improves) best = eval.value;
  }
  return best;
}

std::string missing_metric(metrics const& found, std::string_view metric) {
  if (found.other_metrics.empty()) {
    return fmt::format(
        "it wrote no eval record; expected are lines like "
        "{{\"event\":\"eval\",\"step\":50,\"metric\":\"{}\",\"value\":0.9}}",
        metric);
  }
  return fmt::format("it wrote no eval record of '{}', only of {}: choose one with --metric", metric,
                     fmt::join(found.other_metrics, ", "));
}

}  // namespace

metrics metrics::read(std::filesystem::path const& file, std::string_view metric) {
  std::string const bytes = read_file(file);
  metrics result;
  std::size_t line_number = 0;
  for (std::size_t begin = 0; begin < bytes.size();) {
    auto const newline = bytes.find('\n', begin);
    bool const whole = newline != bytes.npos;
    std::string_view const line{bytes.data() + begin, (whole ? newline : bytes.size()) - begin};
    begin += line.size() + 1;
    ++line_number;
    if (line.find_first_not_of(" \t\r") == line.npos) continue;
    auto const parsed = record::parse(without_nan(line), nullptr, false);
    if (parsed.is_object()) {
      add_record(result, parsed, metric);
    } else if (whole) {
      throw program_error{fmt::format("{}:{}: not a JSON record", file.string(), line_number)};
    }
  }
  total_up(result);
  return result;
}

void conclude(run& run, std::filesystem::path const& metrics_file, std::string_view metric, pick choice,
              std::string const& end_text, double wall_seconds) {
  run.status = run_status::failed;
  run.value.reset();
  run.seconds = wall_seconds;
  metrics found;
  if (std::filesystem::exists(metrics_file)) {
    try {
      found = metrics::read(metrics_file, metric);
    } catch (program_error const& failure) {
      run.reason = failure.what();
      return;
    }
  }
  run.steps = found.step_count;
  run.raw_bytes = found.raw_bytes;
  run.wire_bytes = found.wire_bytes;
  if (found.seconds) run.seconds = found.seconds;
  if (found.end_status == "diverged") {
    run.status = run_status::diverged;
    run.reason = "it diverged: its loss or its gradients were no longer finite";
  } else if (!end_text.empty()) {
    run.reason = end_text;
  } else if (!std::filesystem::exists(metrics_file)) {
    run.reason = "it wrote no metrics file: {metrics} in the command is where it belongs";
  } else if (found.evals.empty()) {
    run.lacks_metric = true;
    run.reason = missing_metric(found, metric);
  } else if (auto const value = chosen(found.evals, choice)) {
    run.status = run_status::ok;
    run.value = value;
  } else {
    run.status = run_status::diverged;
    run.reason = fmt::format("its {} is not a finite number", metric);
  }
}

}  // namespace gradwire::program
