#include "overlap/pipeline.hpp"

#include <algorithm>
#include <memory>
#include <utility>
#include <vector>

namespace gradwire::overlap {
namespace {

std::size_t exchanges(reduction const& how) { return (how.stages() - 1) / 2; }

reduction& method_at(chunk const& of, std::size_t step, std::size_t warmup_steps) {
  return step < warmup_steps ? *of.warmup : *of.method;
}

}  // namespace

pipeline::pipeline(model& of, exec const& on, std::chrono::milliseconds patience, timeline* record)
    : model_{of}, on_{on}, patience_{patience}, timeline_{record}, rollback_{of, on.memory} {}

exec pipeline::on_stream(stream_ref stream) const {
  exec result = on_;
  result.stream = stream;
  return result;
}

void pipeline::record(track row, std::string_view name, stream_ref stream, place at, std::size_t bytes,
                      std::function<void()> const& enqueue_work) {
  if (timeline_ == nullptr) {
    enqueue_work();
    return;
  }
  auto const begin = std::make_shared<timeline::clock::time_point>();
  enqueue(stream, [begin] { *begin = timeline::clock::now(); });
  enqueue_work();
  enqueue(stream, [=, into = timeline_] {
    into->add({row, name, at.step, at.bucket, at.chunk, bytes, *begin, timeline::clock::now()});
  });
}

// With chunks 1, 2, 3 and exchanges A, B the wire carries A1 | A2 B1 | A3 B2 | B3: while one chunk's first exchange is
// under way, the chunk before it is summed, and then takes the wire for its second one.
event pipeline::launch(bucket& of, std::size_t number, elements gradients, random_key key,
                       std::span<event const> producers) {
  wait(encode_.ref(), step_done_, no_timeout);  // the scratch of the reductions is in use until then
  for (event const& each : producers) wait(encode_.ref(), each, patience_);

  reduction_call const call{gradients, of.feedback ? model_.residuals().data() : nullptr, key};
  std::vector<event> local(of.chunks.size());  // behind the newest local stage of each chunk
  std::size_t most_exchanges = 0;
  for (std::size_t c = 0; c < of.chunks.size(); ++c) {
    reduction& how = method_at(of.chunks[c], key.step, of.warmup_steps);
    most_exchanges = std::max(most_exchanges, exchanges(how));
    encode(of.chunks[c], how, call, {key.step, number, c});
    local[c].record(encode_.ref());
  }
  for (std::size_t wave = 0; wave + 1 < of.chunks.size() + most_exchanges; ++wave) {
    for (std::size_t e = 0; e < most_exchanges && e <= wave; ++e) {
      std::size_t const c = wave - e;
      if (c >= of.chunks.size()) continue;
      reduction& how = method_at(of.chunks[c], key.step, of.warmup_steps);
      if (e < exchanges(how)) exchange(of.chunks[c], how, call, {key.step, number, c}, e, local[c]);
    }
  }
  event done;
  done.record(decode_.ref());
  return done;
}

void pipeline::encode(chunk& of, reduction& how, reduction_call const& call, place at) {
  if (of.copied) {
    record(track::encode, "copy in", encode_.ref(), at, 0,
           [&] { enqueue(encode_.ref(), [this, &how] { model_.copy_in(how.segments()); }); });
  }
  record(track::encode, "encode", encode_.ref(), at, 0, [&] {
    if (call.residual != nullptr && &how == of.method.get()) {
      enqueue(encode_.ref(), [this, &how] { rollback_.keep(how.segments()); });
    }
    how.enqueue(0, on_stream(encode_.ref()), call);
  });
}

void pipeline::exchange(chunk& of, reduction& how, reduction_call const& call, place at, std::size_t exchange,
                        event& local) {
  wait(wire_.ref(), local, no_timeout);
  record(track::wire, exchange == 0 ? "exchange" : "share", wire_.ref(), at, how.wire_bytes(),
         [&] { how.enqueue(2 * exchange + 1, on_stream(wire_.ref()), call); });
  event sent;
  sent.record(wire_.ref());

  stream_ref const stream = decode_.ref();
  bool const last = exchange + 1 == exchanges(how);
  wait(stream, sent, no_timeout);
  record(track::decode, last ? "decode" : "sum", stream, at, 0, [&] {
    if (exchange == 0 && !how.owner_residuals().empty()) {
      enqueue(stream, [this, &of] { rollback_.keep_owner(of); });
    }
    how.enqueue(2 * exchange + 2, on_stream(stream), call);
    if (last && model_.has_feedback()) {
      enqueue(stream, [this, &how, means = call.gradient] { rollback_.inspect(means, how.segments()); });
    }
  });
  local.record(stream);
  if (last && of.copied) {
    record(track::decode, "copy out", stream, at, 0,
           [&] { enqueue(stream, [this, &how] { model_.copy_out(how.segments()); }); });
  }
}

event pipeline::finish(std::vector<std::span<bucket>> buckets, std::size_t step) {
  if (model_.has_feedback()) {
    enqueue(decode_.ref(), [this, buckets = std::move(buckets), step] { rollback_.settle(buckets, step); });
  }
  step_done_.record(decode_.ref());
  return step_done_;
}

void pipeline::drain(std::chrono::milliseconds timeout) {
  for (host_stream* const stream : {&encode_, &wire_, &decode_}) synchronize(stream->ref(), timeout);
}

void pipeline::quiesce(std::chrono::milliseconds timeout) noexcept {
  for (host_stream* const stream : {&encode_, &wire_, &decode_}) {
    try {
      synchronize(stream->ref(), timeout);
    } catch (...) {
      // The failure that brought us here, or one that follows from it.
    }
  }
}

}  // namespace gradwire::overlap
