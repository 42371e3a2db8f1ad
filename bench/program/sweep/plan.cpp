#include "program/sweep/plan.hpp"

#include <algorithm>
#include <optional>

#include <fmt/format.h>

#include <gradwire/error.hpp>
#include <gradwire/reduction.hpp>

#include "program/common/console.hpp"
#include "program/common/context.hpp"

namespace gradwire::program::sweep {
namespace {

constexpr std::string_view baseline_text = "none";

bool is_baseline(sweep_method const& method) {
  spec const& how = method.how;
  return how.codec.entry().name == baseline_text && !how.error_feedback && (how.via == "auto" || how.via == "dense");
}

sweep_method by_reduction(std::string const& text, std::string const& reduction) {
  sweep_method method{spec::parse(text), text};
  if (method.how.warmup_steps != 0) {
    throw program_error{fmt::format("--spec {}: a sweep measures the method itself; leave warmup(...) out", text)};
  }
  if (reduction == "auto" || method.how.via == reduction) return method;
  if (method.how.via != "auto") {
    throw program_error{
        fmt::format("--spec {} and --reduction {} say different things: leave via({}) or --reduction out", text,
                    reduction, method.how.via)};
  }
  method.how.via = reduction;
  method.label += fmt::format("+via({})", reduction);
  return method;
}

// Why the method cannot be measured here; the same on every rank, and nothing is sent.
std::optional<std::string> refusal(communicator& comm, spec const& method, dtype type) {
  try {
    static_cast<void>(make_reduction(comm, method, {}, type));
    return std::nullopt;
  } catch (error const& failure) {
    if (failure.code() != errc::invalid_argument && failure.code() != errc::unsupported) throw;
    return failure.what();
  }
}

}  // namespace

std::size_t sweep_plan::cases() const noexcept {
  return counts.size() * (collective == collective_kind::all_reduce ? methods.size() : 1);
}

std::size_t sweep_plan::spec_width() const {
  std::size_t width = 4;
  for (auto const& method : methods) width = std::max(width, method.label.size());
  return width;
}

std::vector<std::size_t> sweep_counts(std::size_t min_bytes, std::size_t max_bytes, std::size_t factor, dtype type) {
  if (factor < 2) {
    throw program_error{fmt::format("--factor {}: sizes would never reach --max-bytes; use 2 or more", factor)};
  }
  if (max_bytes < min_bytes) {
    throw program_error{fmt::format("--min-bytes {} is above --max-bytes {}: swap them", min_bytes, max_bytes)};
  }
  std::size_t const width = size_of(type);
  std::vector<std::size_t> counts;
  for (std::size_t bytes = min_bytes;; bytes = bytes == 0 ? width : bytes * factor) {
    if (bytes <= max_bytes && (counts.empty() || counts.back() != bytes / width)) counts.push_back(bytes / width);
    if (bytes > max_bytes / factor) return counts;  // the next one is above the maximum, perhaps above std::size_t
  }
}

std::vector<sweep_method> sweep_methods(std::vector<std::string> const& specs,
                                        std::vector<std::string> const& reductions) {
  auto const known = reduction_names();
  for (std::string const& reduction : reductions) {
    if (std::find(known.begin(), known.end(), reduction) != known.end()) continue;
    throw program_error{fmt::format("--reduction {}: not known; use {}", reduction, fmt::join(known, ", "))};
  }
  std::vector<sweep_method> methods;
  for (std::string const& text : specs) {
    for (std::string const& reduction : reductions) methods.push_back(by_reduction(text, reduction));
  }
  if (std::none_of(methods.begin(), methods.end(), is_baseline)) {
    methods.push_back({spec::parse(baseline_text), std::string{baseline_text}});
  }
  std::stable_partition(methods.begin(), methods.end(), is_baseline);
  std::vector<sweep_method> once;
  for (sweep_method& method : methods) {
    auto const same = [&](sweep_method const& other) { return other.how.text() == method.how.text(); };
    if (std::none_of(once.begin(), once.end(), same)) once.push_back(std::move(method));
  }
  return once;
}

void run_plan(communicator& comm, sweep_plan const& plan, std::function<void(case_result const&)> const& done,
              std::function<void(skipped_method const&)> const& skipped) {
  bool const first = comm.rank() == 0;
  if (plan.collective != collective_kind::all_reduce) {
    for (std::size_t const count : plan.counts) {
      case_result const result = measure_raw(comm, plan.collective, count, plan.options);
      if (first) done(result);
    }
    return;
  }
  for (auto const& [how, label] : plan.methods) {
    if (auto const reason = refusal(comm, how, plan.options.type)) {
      if (first) skipped({label, *reason});
      continue;
    }
    measure_options options = plan.options;
    if (is_baseline({how, label})) options.overlap = false;
    for (std::size_t const count : plan.counts) {
      case_result result = measure_all_reduce(comm, how, count, options);
      result.spec = label;
      if (first) done(result);
    }
  }
}

}  // namespace gradwire::program::sweep
