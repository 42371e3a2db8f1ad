#include <gradwire/reducer.hpp>

#include <algorithm>
#include <chrono>
#include <exception>
#include <mutex>
#include <numeric>
#include <optional>
#include <utility>

#include <gradwire/error.hpp>
#include <gradwire/handshake.hpp>
#include <gradwire/reduction.hpp>

#include "compressors/text.hpp"
#include "overlap/buckets.hpp"
#include "overlap/configuration.hpp"
#include "overlap/model.hpp"
#include "overlap/outcome.hpp"
#include "overlap/pipeline.hpp"
#include "overlap/residuals.hpp"
#include "overlap/state.hpp"
#include "overlap/timeline.hpp"

namespace gradwire {
namespace {

using overlap::bounded_event;
using overlap::bucket;
using overlap::saved_state;
using overlap::shared_outcome;
using overlap::timeline;
using overlap::track;

}  // namespace

struct reducer::impl {
  impl(communicator& group, std::vector<parameter> parameters, reducer_options given)
      : comm{group}, options{overlap::checked(std::move(given))}, model{std::move(parameters), options} {
    require_equal_configuration(comm, overlap::configuration(model, options));
    outcome->comm = &comm;
    if (options.timeline) outcome->record.emplace();
    std::size_t const count = model.parameters().size();
    order.resize(count);
    std::iota(order.rbegin(), order.rend(), std::size_t{0});
    ready.resize(count);
    producers.resize(count);
    buckets = make_buckets(order);
    pipeline.emplace(model, options.on, comm.timeout(), outcome->record ? &*outcome->record : nullptr);
    for (auto const& each : model.parameters()) raw_bytes_per_step += dense_bytes(each.count, comm.size());
  }

  std::vector<bucket> make_buckets(std::span<std::size_t const> by) {
    std::vector<bucket> made = overlap::make_buckets(comm, model, by, options);
    bucket_of.assign(model.parameters().size(), 0);
    for (std::size_t b = 0; b < made.size(); ++b) {
      for (std::size_t const index : made[b].parameters) bucket_of[index] = b;
    }
    return made;
  }

  [[nodiscard]] bool failed() const {
    std::scoped_lock const lock{outcome->mutex};
    return outcome->failure != nullptr;
  }
  void rethrow_failure() const { outcome->rethrow_failure(); }
  [[nodiscard]] bool in_step() const { return !ready_order.empty() || next_bucket != 0; }

  void mark(std::size_t index, event producer);
  void launch_ready();
  void launch(std::size_t number);
  void wait_for_step(stream_ref stream);
  void end_step();
  void rebuild();
  void set_order(std::vector<std::size_t> next);
  [[nodiscard]] std::vector<std::uint32_t> agreed_order();

  communicator& comm;
  reducer_options options;
  overlap::model model;
  std::shared_ptr<shared_outcome> outcome = std::make_shared<shared_outcome>();
  int const exceptions_at_start = std::uncaught_exceptions();
  double raw_bytes_per_step = 0;

  std::mutex mutex;                // of all that follows
  std::size_t suspended = 0;       // no_sync guards alive
  std::vector<std::size_t> order;  // parameters as backward completes them
  bool rebuilt = false;            // `order` is that of the first backward
  std::vector<std::size_t> bucket_of;
  std::vector<bool> ready;
  std::vector<event> producers;
  std::vector<std::size_t> ready_order;                  // of this step
  std::vector<timeline::clock::time_point> first_ready;  // by bucket, with a timeline
  std::size_t next_bucket = 0;
  std::vector<bounded_event> launched;  // of this step
  reducer_stats totals;
  std::vector<bucket> buckets;
  std::optional<overlap::pipeline> pipeline;  // last: its streams use all of the above
};

void reducer::impl::mark(std::size_t index, event producer) {
  ready[index] = true;
  producers[index] = std::move(producer);
  ready_order.push_back(index);
  bucket& into = buckets[bucket_of[index]];
  if (outcome->record) {
    first_ready.resize(buckets.size());
    if (into.pending == into.parameters.size()) first_ready[bucket_of[index]] = timeline::clock::now();
  }
  --into.pending;
}

// In index order only, whatever order the buckets fill in.
void reducer::impl::launch_ready() {
  while (next_bucket < buckets.size() && buckets[next_bucket].pending == 0) launch(next_bucket++);
}

void reducer::impl::launch(std::size_t number) {
  bucket& of = buckets[number];
  if (outcome->record) {
    outcome->record->add(
        {track::ready, "ready", totals.steps, number, timeline::none, 0, first_ready[number], timeline::clock::now()});
  }
  std::vector<event> before;
  for (std::size_t const index : of.parameters) before.push_back(std::move(producers[index]));
  try {
    std::size_t const collectives = overlap::count(of, totals);
    event const done = pipeline->launch(of, number, model.arena(of.type), {options.seed, totals.steps}, before);
    launched.push_back({done, static_cast<int>(collectives + 1) * comm.timeout()});
  } catch (...) {
    // Backward must not see this: synchronize() reports it.
    outcome->fail(std::current_exception());
  }
}

// Waits for every bucket, so that a wait is bounded by what is in flight before it, then for the end of the step.
void reducer::impl::wait_for_step(stream_ref stream) {
  event const done = pipeline->finish({std::span{buckets}}, totals.steps);
  launched.push_back({done, comm.timeout()});
  auto const begin = std::make_shared<timeline::clock::time_point>();
  enqueue(stream, [begin] { *begin = timeline::clock::now(); });
  enqueue(stream, [=, shared = outcome, points = std::move(launched), step = totals.steps] {
    try {
      for (bounded_event const& each : points) each.point.wait(each.timeout);
    } catch (...) {
      shared->fail(std::current_exception());
      throw;
    }
    shared->add_exposed(step, *begin, timeline::clock::now());
  });
  launched.clear();
}

void reducer::impl::end_step() {
  std::fill(ready.begin(), ready.end(), false);
  for (bucket& each : buckets) each.pending = each.parameters.size();
  next_bucket = 0;
  ++totals.steps;
  totals.raw_bytes += raw_bytes_per_step;
  if (!rebuilt) rebuild();
  ready_order.clear();
}

// Rank 0's order for all, since ranks may take different branches.
std::vector<std::uint32_t> reducer::impl::agreed_order() {
  std::vector<std::uint32_t> agreed(ready_order.begin(), ready_order.end());
  event done;
  comm.broadcast(std::as_writable_bytes(std::span{agreed}), 0, pipeline->wire()).wait(pipeline->wire());
  done.record(pipeline->wire());
  done.wait(2 * comm.timeout());
  return agreed;
}

// Once, behind the first step.
void reducer::impl::rebuild() {
  rebuilt = true;
  if (order.empty()) return;
  pipeline->drain(2 * comm.timeout());
  std::vector<std::uint32_t> const agreed = agreed_order();
  std::vector<std::size_t> next(agreed.begin(), agreed.end());
  if (next == order) return;
  auto const runs = overlap::owner_runs(buckets);
  set_order(std::move(next));
  overlap::place_owner_runs(runs, buckets, model, comm.size());
}

void reducer::impl::set_order(std::vector<std::size_t> next) {
  buckets = make_buckets(next);
  order = std::move(next);
}

reducer::reducer(communicator& comm, std::vector<parameter> parameters, reducer_options options)
    : impl_{std::make_unique<impl>(comm, std::move(parameters), std::move(options))} {}

reducer::~reducer() {
  {
    // A failed step, or one that an exception cut short on this rank alone, would keep the other ranks waiting.
    bool const unwinding = std::uncaught_exceptions() > impl_->exceptions_at_start && impl_->in_step();
    if (unwinding || impl_->failed()) impl_->comm.abort();
  }
  impl_->pipeline.reset();
  std::scoped_lock const lock{impl_->outcome->comm_mutex};
  impl_->outcome->comm = nullptr;
}

void* reducer::gradient(std::size_t index) {
  expects(index < impl_->model.parameters().size(), "gradient(i): there is no parameter with this index");
  return impl_->model.gradient(index);
}

void reducer::zero_gradients() {
  std::scoped_lock const lock{impl_->mutex};
  expects(!impl_->in_step(), "zero_gradients() between mark_ready() and synchronize(): call synchronize() first");
  impl_->model.zero_gradients();
}

void reducer::mark_ready(std::size_t index, stream_ref stream) {
  std::scoped_lock const lock{impl_->mutex};
  if (index >= impl_->ready.size()) {
    throw error{errc::invalid_argument, join({"mark_ready(", std::to_string(index), "): there are ",
                                              std::to_string(impl_->ready.size()), " parameters"})};
  }
  if (impl_->suspended != 0 || impl_->failed()) return;
  if (impl_->ready[index]) {
    throw error{errc::invalid_argument,
                join({"gradient '", impl_->model.parameters()[index].given.name,
                      "' was marked ready twice in one step: accumulate under no_sync() and mark the last time only"})};
  }
  event producer;
  if (stream.handle != nullptr) producer.record(stream);
  impl_->mark(index, std::move(producer));
  impl_->launch_ready();
}

void reducer::synchronize(stream_ref stream) {
  std::scoped_lock const lock{impl_->mutex};
  expects(impl_->suspended == 0, "synchronize() under no_sync(): let the guard end first");
  try {
    impl_->rethrow_failure();
    event producer;
    if (stream.handle != nullptr) producer.record(stream);
    for (std::size_t const index : impl_->order) {
      if (!impl_->ready[index]) impl_->mark(index, producer);
      impl_->launch_ready();
    }
    impl_->rethrow_failure();
    impl_->wait_for_step(stream);
    impl_->end_step();
  } catch (...) {
    // The caller may free its gradients next, so nothing may still read or write them.
    impl_->outcome->fail(std::current_exception());
    impl_->pipeline->quiesce(impl_->comm.timeout());
    throw;
  }
}

reducer::no_sync_guard::no_sync_guard(reducer& owner) : owner_{owner} {
  std::scoped_lock const lock{owner_.impl_->mutex};
  expects(!owner_.impl_->in_step(), "no_sync() between mark_ready() and synchronize(): call synchronize() first");
  ++owner_.impl_->suspended;
}

reducer::no_sync_guard::~no_sync_guard() {
  std::scoped_lock const lock{owner_.impl_->mutex};
  --owner_.impl_->suspended;
}

reducer::no_sync_guard reducer::no_sync() { return no_sync_guard{*this}; }

reducer_stats reducer::stats() const {
  std::scoped_lock const lock{impl_->mutex, impl_->outcome->mutex};
  reducer_stats result = impl_->totals;
  result.exposed_seconds = impl_->outcome->exposed_seconds;
  result.buckets = impl_->buckets.size();
  return result;
}

std::span<float const> reducer::residual(std::size_t index) const {
  expects(index < impl_->model.parameters().size(), "residual(i): there is no parameter with this index");
  return impl_->model.residual(index);
}

std::vector<std::byte> reducer::save_state() const {
  std::scoped_lock const lock{impl_->mutex};
  expects(!impl_->in_step(), "save_state() between mark_ready() and synchronize(): call synchronize() first");
  impl_->rethrow_failure();
  impl_->pipeline->drain(2 * impl_->comm.timeout());
  saved_state state = overlap::capture(impl_->model, overlap::owner_runs(impl_->buckets));
  state.rank = impl_->comm.rank();
  state.ranks = impl_->comm.size();
  state.step = impl_->totals.steps;
  state.seed = impl_->options.seed;
  state.rebuilt = impl_->rebuilt;
  state.order = {impl_->order.begin(), impl_->order.end()};
  return overlap::write_state(state);
}

void reducer::load_state(std::span<std::vector<std::byte> const> states) {
  std::scoped_lock const lock{impl_->mutex};
  expects(!impl_->in_step(), "load_state() between mark_ready() and synchronize(): call synchronize() first");
  impl_->rethrow_failure();
  auto const read = overlap::read_states(states, impl_->model, impl_->comm.rank(), impl_->comm.size());
  saved_state const& first = read.front();
  impl_->pipeline->drain(2 * impl_->comm.timeout());
  impl_->set_order({first.order.begin(), first.order.end()});
  impl_->rebuilt = first.rebuilt;
  impl_->options.seed = first.seed;
  impl_->totals.steps = first.step;
  if (states.size() == impl_->comm.size()) {
    overlap::restore_residuals(first, impl_->model);
    overlap::place_owner_runs(first.owner_runs, impl_->buckets, impl_->model, first.ranks);
  } else {
    overlap::merge_residuals(read, impl_->model);
  }
}

void reducer::write_timeline(std::filesystem::path const& file) const {
  expects(impl_->outcome->record.has_value(), "write_timeline() needs reducer_options::timeline = true");
  impl_->outcome->record->write(file, impl_->comm.rank());
}

}  // namespace gradwire
