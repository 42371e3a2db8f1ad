#include "overlap/buckets.hpp"

#include <algorithm>
#include <map>
#include <utility>

#include "comm/reductions/plan.hpp"

namespace gradwire::overlap {

std::vector<std::vector<std::size_t>> plan_buckets(std::span<bucket_item const> parameters,
                                                   std::span<std::size_t const> order, std::size_t first_bytes,
                                                   std::size_t bytes) {
  struct open_bucket {
    std::vector<std::size_t> members;
    std::size_t filled = 0;
    std::size_t limit = 0;
  };
  struct closed_bucket {
    std::size_t last = 0;  // position in `order` of the last member
    std::vector<std::size_t> members;
  };
  std::map<std::size_t, open_bucket> open;  // by group
  std::vector<closed_bucket> closed;
  for (std::size_t position = 0; position < order.size(); ++position) {
    bucket_item const& each = parameters[order[position]];
    open_bucket& into = open.try_emplace(each.group, open_bucket{{}, 0, first_bytes}).first->second;
    into.members.push_back(order[position]);
    into.filled += each.bytes;
    if (into.filled >= into.limit) {
      closed.push_back({position, std::move(into.members)});
      into = {{}, 0, bytes};
    }
  }
  std::vector<std::size_t> position_of(parameters.size());
  for (std::size_t position = 0; position < order.size(); ++position) position_of[order[position]] = position;
  for (auto& [group, rest] : open) {
    if (!rest.members.empty()) closed.push_back({position_of[rest.members.back()], std::move(rest.members)});
  }
  std::sort(closed.begin(), closed.end(), [](auto const& a, auto const& b) { return a.last < b.last; });

  std::vector<std::vector<std::size_t>> result;
  result.reserve(closed.size());
  for (closed_bucket& each : closed) result.push_back(std::move(each.members));
  return result;
}

std::vector<chunk> make_chunks(communicator& comm, model const& of, std::span<segment const> segments,
                               reducer_options const& options) {
  std::vector<chunk> result;
  if (segments.empty()) return result;
  placed_parameter const& first = of.parameters()[segments.front().tensor_id];
  spec const& method = first.method;
  dtype const type = first.given.type;
  std::size_t bytes = 0;
  for (segment const& each : segments) bytes += each.count * size_of(type);
  std::size_t const parts = std::max<std::size_t>(1, (bytes + options.chunk_bytes - 1) / options.chunk_bytes);
  for (auto const& part : reductions::cut_evenly(method.codec, segments, parts)) {
    if (part.empty()) continue;
    chunk cut;
    cut.method = make_reduction(comm, method, part, type, options.on.memory);
    if (method.warmup_steps != 0) {
      // Summed by the same hands as later on, so that what is equal on every transport is equal from step 0.
      bool const by_transport = cut.method->name() == "dense";
      cut.warmup = make_reduction(comm, spec::parse(by_transport ? "none" : "none+via(two_shot)"), part, type,
                                  options.on.memory);
    }
    cut.copied = std::any_of(part.begin(), part.end(), [&](segment const& each) {
      return of.parameters()[each.tensor_id].given.gradient != nullptr;
    });
    result.push_back(std::move(cut));
  }
  return result;
}

std::size_t count(bucket const& of, reducer_stats& totals) {
  std::size_t collectives = 0;
  for (chunk const& part : of.chunks) {
    reduction const& how = totals.steps < of.warmup_steps ? *part.warmup : *part.method;
    collectives += (how.stages() - 1) / 2;
    totals.wire_bytes += how.wire_bytes();
  }
  totals.collectives += collectives;
  return collectives;
}

std::vector<bucket> make_buckets(communicator& comm, model const& of, std::span<std::size_t const> order,
                                 reducer_options const& options) {
  std::vector<bucket_item> items;
  for (placed_parameter const& each : of.parameters()) items.push_back({each.group, each.bytes()});
  std::vector<bucket> result;
  for (auto& members : plan_buckets(items, order, options.first_bucket_bytes, options.bucket_bytes)) {
    // In the order of memory: what lies side by side stays so, whatever order backward has.
    std::sort(members.begin(), members.end(), [&](std::size_t a, std::size_t b) {
      return std::pair{of.parameters()[a].offset, a} < std::pair{of.parameters()[b].offset, b};
    });
    placed_parameter const& first = of.parameters()[members.front()];
    spec const& method = first.method;
    bucket made{.parameters = members,
                .type = first.given.type,
                .feedback = method.error_feedback,
                .warmup_steps = method.warmup_steps,
                .chunks = {},
                .pending = members.size()};
    std::vector<segment> segments;
    segments.reserve(members.size());
    for (std::size_t const index : members) segments.push_back(of.whole(index));
    made.chunks = make_chunks(comm, of, segments, options);
    result.push_back(std::move(made));
  }
  return result;
}

}  // namespace gradwire::overlap
