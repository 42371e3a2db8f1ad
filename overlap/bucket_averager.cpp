#include <gradwire/bucket_averager.hpp>

#include <algorithm>
#include <map>
#include <memory>
#include <mutex>
#include <numeric>
#include <optional>
#include <string>
#include <utility>

#include <gradwire/error.hpp>
#include <gradwire/handshake.hpp>

#include "compressors/text.hpp"
#include "overlap/buckets.hpp"
#include "overlap/configuration.hpp"
#include "overlap/model.hpp"
#include "overlap/outcome.hpp"
#include "overlap/pipeline.hpp"
#include "overlap/residuals.hpp"
#include "overlap/state.hpp"
#include "overlap/timeline.hpp"

namespace gradwire::overlap {

//! A bucket as it was handed over, and what it is made of: one part for each method in it.
struct handed_bucket {
  std::vector<bucket_slot> slots;
  dtype type = dtype::f32;
  std::vector<bucket> parts;
};

}  // namespace gradwire::overlap

namespace gradwire {

struct bucket_averager::impl {
  impl(communicator& group, std::vector<parameter> parameters, reducer_options given)
      : comm{group},
        options{overlap::checked(std::move(given))},
        model{(check_parameters(parameters), std::move(parameters)), options, overlap::gradient_home::outside} {
    require_equal_configuration(comm, overlap::configuration(model, options));
    outcome->comm = &comm;
    if (options.timeline) outcome->record.emplace();
    seen_in_step.resize(model.parameters().size());
    pipeline.emplace(model, options.on, comm.timeout(), outcome->record ? &*outcome->record : nullptr);
    for (auto const& each : model.parameters()) raw_bytes_per_step += dense_bytes(each.count, comm.size());
  }

  static void check_parameters(std::span<parameter const> parameters) {
    bool const outside = std::all_of(parameters.begin(), parameters.end(),
                                     [](parameter const& each) { return each.gradient == nullptr; });
    expects(outside, "bucket_averager: parameter::gradient must be null, since gradients come in buckets");
  }

  [[nodiscard]] bool in_step() const { return next != 0; }
  void rethrow_failure() const { outcome->rethrow_failure(); }

  void check_slots(elements memory, std::span<bucket_slot const> slots) const;
  overlap::handed_bucket& take(elements memory, std::span<bucket_slot const> slots);
  void forget_from(std::size_t number);
  [[nodiscard]] overlap::handed_bucket lay_out(dtype type, std::span<bucket_slot const> slots);
  void place_homeless(overlap::handed_bucket& into);
  [[nodiscard]] event watch(event const& point, std::chrono::milliseconds timeout, bool last);
  void end_step();
  void settle_down() const;
  [[nodiscard]] std::vector<overlap::saved_state::owner_run> owner_runs() const;

  communicator& comm;
  reducer_options options;
  overlap::model model;
  std::shared_ptr<overlap::shared_outcome> outcome = std::make_shared<overlap::shared_outcome>();
  double raw_bytes_per_step = 0;

  mutable std::mutex mutex;                                     // of all that follows
  std::vector<std::unique_ptr<overlap::handed_bucket>> handed;  // of the newest layout, in order
  std::vector<overlap::saved_state::owner_run> homeless;        // owner residuals whose parameters are in no bucket yet
  std::vector<bool> seen_in_step;
  std::size_t next = 0;  // bucket of this step
  reducer_stats totals;
  mutable std::optional<overlap::pipeline> pipeline;
  std::optional<host_stream> done{std::in_place, "gw-done"};
};

void bucket_averager::impl::check_slots(elements memory, std::span<bucket_slot const> slots) const {
  std::vector<bool> seen = seen_in_step;
  for (bucket_slot const& each : slots) {
    if (each.index >= seen.size()) {
      throw error{errc::invalid_argument, join({"average(): a slot names parameter ", std::to_string(each.index),
                                                ", and there are ", std::to_string(seen.size())})};
    }
    auto const& at = model.parameters()[each.index].given;
    if (at.type != memory.type) {
      throw error{errc::invalid_argument,
                  join({"average(): the bucket holds ", to_string(memory.type), " and '", at.name, "' is ",
                        to_string(at.type), ": hand over one bucket for each dtype"})};
    }
    if (seen[each.index]) {
      throw error{errc::invalid_argument,
                  join({"average(): the gradient of '", at.name, "' was handed over twice in one step"})};
    }
    seen[each.index] = true;
  }
}

// Owner residuals follow the parameters to wherever their new buckets put them.
void bucket_averager::impl::forget_from(std::size_t number) {
  settle_down();
  for (std::size_t b = number; b < handed.size(); ++b) {
    auto runs = overlap::owner_runs(handed[b]->parts);
    std::move(runs.begin(), runs.end(), std::back_inserter(homeless));
  }
  handed.resize(number);
}

overlap::handed_bucket bucket_averager::impl::lay_out(dtype type, std::span<bucket_slot const> slots) {
  overlap::handed_bucket made{{slots.begin(), slots.end()}, type, {}};
  std::map<std::size_t, std::vector<segment>> by_group;
  for (bucket_slot const& each : slots) {
    segment part = model.whole(each.index);
    part.offset = each.offset;
    by_group[model.parameters()[each.index].group].push_back(part);
  }
  for (auto& [group, segments] : by_group) {
    std::sort(segments.begin(), segments.end(), [](auto const& a, auto const& b) { return a.offset < b.offset; });
    spec const& method = model.parameters()[segments.front().tensor_id].method;
    made.parts.push_back({.parameters = {},
                          .type = type,
                          .feedback = method.error_feedback,
                          .warmup_steps = method.warmup_steps,
                          .chunks = overlap::make_chunks(comm, model, segments, options)});
  }
  return made;
}

void bucket_averager::impl::place_homeless(overlap::handed_bucket& into) {
  auto const elsewhere =
      std::partition(homeless.begin(), homeless.end(), [&](overlap::saved_state::owner_run const& run) {
        return std::none_of(into.slots.begin(), into.slots.end(),
                            [&](bucket_slot const& slot) { return slot.index == run.parameter; });
      });
  overlap::place_owner_runs({elsewhere, homeless.end()}, into.parts, model, comm.size());
  homeless.erase(elsewhere, homeless.end());
}

overlap::handed_bucket& bucket_averager::impl::take(elements memory, std::span<bucket_slot const> slots) {
  if (next < handed.size()) {
    overlap::handed_bucket& known = *handed[next];
    if (known.type == memory.type && std::equal(slots.begin(), slots.end(), known.slots.begin(), known.slots.end())) {
      return known;
    }
  }
  forget_from(next);
  handed.push_back(std::make_unique<overlap::handed_bucket>(lay_out(memory.type, slots)));
  place_homeless(*handed.back());
  return *handed.back();
}

// The point behind `point` at which a failure has been told to the other ranks.
event bucket_averager::impl::watch(event const& point, std::chrono::milliseconds timeout, bool last) {
  auto const begin = overlap::timeline::clock::now();
  enqueue(done->ref(), [=, this, shared = outcome, step = totals.steps] {
    try {
      point.wait(timeout);
    } catch (...) {
      shared->fail(std::current_exception());
      pipeline->quiesce(comm.timeout());  // whoever learns of it may free its buckets
      throw;
    }
    if (last) shared->add_exposed(step, begin, overlap::timeline::clock::now());
  });
  event result;
  result.record(done->ref());
  return result;
}

void bucket_averager::impl::end_step() {
  next = 0;
  std::fill(seen_in_step.begin(), seen_in_step.end(), false);
  ++totals.steps;
  totals.raw_bytes += raw_bytes_per_step;
}

void bucket_averager::impl::settle_down() const { pipeline->drain(2 * comm.timeout()); }

std::vector<overlap::saved_state::owner_run> bucket_averager::impl::owner_runs() const {
  auto result = homeless;
  for (auto const& each : handed) {
    auto runs = overlap::owner_runs(each->parts);
    std::move(runs.begin(), runs.end(), std::back_inserter(result));
  }
  return result;
}

bucket_averager::bucket_averager(communicator& comm, std::vector<parameter> parameters, reducer_options options)
    : impl_{std::make_unique<impl>(comm, std::move(parameters), std::move(options))} {}

bucket_averager::~bucket_averager() {
  bool const cut_short = [&] {
    std::scoped_lock const lock{impl_->mutex, impl_->outcome->mutex};
    return impl_->in_step() || impl_->outcome->failure != nullptr;
  }();
  if (cut_short) impl_->comm.abort();
  impl_->done.reset();
  impl_->pipeline.reset();
  std::scoped_lock const lock{impl_->outcome->comm_mutex};
  impl_->outcome->comm = nullptr;
}

event bucket_averager::average(elements memory, std::span<bucket_slot const> slots, bool last, stream_ref stream) {
  std::scoped_lock const lock{impl_->mutex};
  impl_->check_slots(memory, slots);
  try {
    impl_->rethrow_failure();
    overlap::handed_bucket& of = impl_->take(memory, slots);
    for (bucket_slot const& each : slots) impl_->seen_in_step[each.index] = true;
    event producer;
    if (stream.handle != nullptr) producer.record(stream);
    random_key const key{impl_->options.seed, impl_->totals.steps};
    std::size_t collectives = 0;
    event point;
    for (overlap::bucket& part : of.parts) {
      collectives += overlap::count(part, impl_->totals);
      point = impl_->pipeline->launch(part, impl_->next, memory, key, {&producer, 1});
    }
    ++impl_->next;
    if (last) {
      std::vector<std::span<overlap::bucket>> all;
      for (std::size_t b = 0; b < impl_->next; ++b) all.emplace_back(impl_->handed[b]->parts);
      point = impl_->pipeline->finish(std::move(all), impl_->totals.steps);
    }
    event result = impl_->watch(point, static_cast<int>(collectives + 1) * impl_->comm.timeout(), last);
    if (last) impl_->end_step();
    impl_->rethrow_failure();  // of an earlier bucket: its quiesce() may not have seen this one
    return result;
  } catch (...) {
    impl_->outcome->fail(std::current_exception());
    impl_->pipeline->quiesce(impl_->comm.timeout());
    throw;
  }
}

reducer_stats bucket_averager::stats() const {
  std::scoped_lock const lock{impl_->mutex, impl_->outcome->mutex};
  reducer_stats result = impl_->totals;
  result.exposed_seconds = impl_->outcome->exposed_seconds;
  result.buckets = impl_->handed.size();
  return result;
}

std::span<float const> bucket_averager::residual(std::size_t index) const {
  expects(index < impl_->model.parameters().size(), "residual(i): there is no parameter with this index");
  return impl_->model.residual(index);
}

std::vector<std::byte> bucket_averager::save_state() const {
  std::scoped_lock const lock{impl_->mutex};
  expects(!impl_->in_step(), "save_state() in the middle of a step: call it behind the bucket that is last");
  impl_->rethrow_failure();
  impl_->settle_down();
  overlap::saved_state state = overlap::capture(impl_->model, impl_->owner_runs());
  state.rank = impl_->comm.rank();
  state.ranks = impl_->comm.size();
  state.step = impl_->totals.steps;
  state.seed = impl_->options.seed;
  state.order.resize(impl_->model.parameters().size());
  std::iota(state.order.begin(), state.order.end(), 0U);
  return overlap::write_state(state);
}

void bucket_averager::load_state(std::span<std::vector<std::byte> const> states) {
  std::scoped_lock const lock{impl_->mutex};
  expects(!impl_->in_step(), "load_state() in the middle of a step: call it behind the bucket that is last");
  impl_->rethrow_failure();
  auto read = overlap::read_states(states, impl_->model, impl_->comm.rank(), impl_->comm.size());
  impl_->forget_from(0);
  impl_->homeless.clear();
  impl_->options.seed = read.front().seed;
  impl_->totals.steps = read.front().step;
  if (states.size() == impl_->comm.size()) {
    overlap::restore_residuals(read.front(), impl_->model);
    impl_->homeless = std::move(read.front().owner_runs);
  } else {
    overlap::merge_residuals(read, impl_->model);
  }
}

void bucket_averager::write_timeline(std::filesystem::path const& file) const {
  expects(impl_->outcome->record.has_value(), "write_timeline() needs reducer_options::timeline = true");
  impl_->outcome->record->write(file, impl_->comm.rank());
}

}  // namespace gradwire
