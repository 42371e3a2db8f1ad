#include "program/ab/curves.hpp"

#include <algorithm>
#include <cmath>
#include <map>

namespace gradwire::program {
namespace {

// Sum and count of what was there.
struct mean_of {
  double sum = 0;
  std::size_t count = 0;

  void add(double value) {
    sum += value;
    ++count;
  }
  void add(std::optional<double> const& value) {
    if (value.has_value()) add(*value);
  }
  [[nodiscard]] std::optional<double> mean() const {
    return count > 0 ? std::optional{sum / static_cast<double>(count)} : std::nullopt;
  }
};

// What a run had sent and how long it had trained at the end of a step.
struct so_far {
  mean_of wire_bytes;
  mean_of seconds;
};

class running_totals {
 public:
  explicit running_totals(metrics const& run) : steps_{run.steps} {}
  // Steps must be asked for in ascending order.
  so_far const& at(double step) {
    for (; next_ < steps_.size() && steps_[next_].step <= step; ++next_) {
      total_.wire_bytes.add(steps_[next_].wire_bytes);
      total_.seconds.add(steps_[next_].seconds);
    }
    return total_;
  }

 private:
  std::vector<step_point> const& steps_;
  std::size_t next_ = 0;
  so_far total_;
};

class gathering {
 public:
  void add(double value, so_far const& total) {
    low_ = values_.count == 0 ? value : std::min(low_, value);
    high_ = values_.count == 0 ? value : std::max(high_, value);
    values_.add(value);
    if (total.wire_bytes.count > 0) wire_bytes_.add(total.wire_bytes.sum);
    if (total.seconds.count > 0) seconds_.add(total.seconds.sum);
  }
  [[nodiscard]] curve_point point(double step) const {
    return {step, *values_.mean(), low_, high_, values_.count, wire_bytes_.mean(), seconds_.mean()};
  }

 private:
  double low_ = 0;
  double high_ = 0;
  mean_of values_;
  mean_of wire_bytes_;
  mean_of seconds_;
};

std::vector<curve_point> points(std::map<double, gathering> const& by_step) {
  std::vector<curve_point> curve;
  curve.reserve(by_step.size());
  for (auto const& [step, gathered] : by_step) curve.push_back(gathered.point(step));
  return curve;
}

double last_step(std::span<metrics const> runs) {
  double last = 0;
  for (metrics const& run : runs) {
    for (step_point const& step : run.steps) last = std::max(last, step.step);
  }
  return last;
}

}  // namespace

std::vector<curve_point> eval_curve(std::span<metrics const> runs) {
  std::map<double, gathering> by_step;
  for (metrics const& run : runs) {
    std::vector<eval_point> evals = run.evals;
    std::ranges::stable_sort(evals, {}, &eval_point::step);
    running_totals totals{run};
    for (eval_point const& eval : evals) {
      so_far const& total = totals.at(eval.step);
      if (eval.value) by_step[eval.step].add(*eval.value, total);
    }
  }
  return points(by_step);
}

std::vector<curve_point> loss_curve(std::span<metrics const> runs, std::size_t bins) {
  double const width = std::max(1.0, std::ceil((last_step(runs) + 1) / static_cast<double>(bins)));
  auto const bin_of = [width](double step) { return std::max(0.0, std::floor(step / width)); };
  std::map<double, gathering> by_step;
  for (metrics const& run : runs) {
    std::map<double, mean_of> losses;
    std::map<double, double> ends;
    for (step_point const& step : run.steps) {
      double const bin = bin_of(step.step);
      losses[bin].add(step.loss);
      ends[bin] = std::max(ends[bin], step.step);
    }
    running_totals totals{run};
    for (auto const& [bin, loss] : losses) {
      so_far const& total = totals.at(ends[bin]);
      if (auto const mean = loss.mean()) by_step[ends[bin]].add(*mean, total);
    }
  }
  return points(by_step);
}

step_cost mean_step(std::span<metrics const> runs) {
  mean_of raw;
  mean_of wire;
  mean_of compute;
  mean_of exposed;
  for (metrics const& run : runs) {
    for (std::size_t i = run.steps.size() > 1 ? 1 : 0; i < run.steps.size(); ++i) {
      step_point const& step = run.steps[i];
      raw.add(step.raw_bytes);
      wire.add(step.wire_bytes);
      exposed.add(step.exposed_seconds);
      if (step.seconds) compute.add(*step.seconds - step.exposed_seconds.value_or(0));
    }
  }
  return {raw.mean(), wire.mean(), compute.mean(), exposed.mean()};
}

record to_record(std::span<curve_point const> curve) {
  record result = record::object();
  for (char const* const key : {"step", "mean", "low", "high", "seeds", "bytes", "seconds"}) {
    result[key] = record::array();
  }
  for (curve_point const& point : curve) {
    result["step"].push_back(point.step);
    result["mean"].push_back(point.mean);
    result["low"].push_back(point.low);
    result["high"].push_back(point.high);
    result["seeds"].push_back(point.seeds);
    result["bytes"].push_back(optional_record(point.wire_bytes));
    result["seconds"].push_back(optional_record(point.seconds));
  }
  return result;
}

record to_record(step_cost const& cost) {
  return {{"raw_bytes", optional_record(cost.raw_bytes)},
          {"wire_bytes", optional_record(cost.wire_bytes)},
          {"compute_seconds", optional_record(cost.compute_seconds)},
          {"exposed_seconds", optional_record(cost.exposed_seconds)}};
}

}  // namespace gradwire::program
