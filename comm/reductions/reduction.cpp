#include <gradwire/reduction.hpp>

#include <algorithm>
#include <utility>

#include <gradwire/error.hpp>

#include "comm/reductions/entry.hpp"
#include "core/random.hpp"

namespace gradwire {
namespace reductions {

reduction_entry const& find_entry(std::string_view name) {
  for (reduction_entry const* const entry : entries()) {
    if (entry->name == name) return *entry;
  }
  std::string known;
  for (std::string_view const each : reduction_names()) known += (known.empty() ? "" : ", ") + std::string{each};
  throw error{errc::invalid_argument, "unknown reduction '" + std::string{name} + "': via(...) takes " + known};
}

reduction_base::reduction_base(setup with)
    : with_{std::move(with)},
      ranks_{with_.comm.size()},
      encoded_bytes_{with_.codec.encoded_bytes(std::span<segment const>{with_.segments})} {}

void reduction_base::check(reduction_call const& call) const {
  if (call.gradient.type != with_.type) {
    throw error{errc::invalid_argument, "the reduction was made for " + std::string{to_string(with_.type)} +
                                            " gradients and was called with " +
                                            std::string{to_string(call.gradient.type)} + ": make one per dtype"};
  }
  bool const empty =
      std::all_of(with_.segments.begin(), with_.segments.end(), [](segment const& each) { return each.count == 0; });
  if (with_.feedback && !empty && call.residual == nullptr) {
    throw error{errc::invalid_argument,
                "the method of this reduction has error feedback, so reduction_call::residual " +
                    std::string{"must point to a residual buffer that starts with zeros"}};
  }
}

void reduction_base::encode_own(exec const& on, reduction_call const& call, std::span<std::byte> payload) const {
  random_key const key = with_stage(call.key, with_.comm.rank() + 1);
  if (with_.feedback) {
    with_.codec.encode_with_feedback(on, call.gradient, call.residual, with_.segments, key, payload);
  } else {
    with_.codec.encode(on, call.gradient, with_.segments, key, payload);
  }
}

}  // namespace reductions

namespace {

reductions::reduction_entry const& choose(spec const& method, std::span<segment const> segments, std::size_t ranks) {
  if (method.via != "auto") {
    reductions::reduction_entry const& named = reductions::find_entry(method.via);
    std::string const refusal = named.refusal(method.codec, method.error_feedback);
    if (!refusal.empty()) throw error{errc::invalid_argument, refusal};
    return named;
  }
  reductions::reduction_entry const* best = nullptr;
  std::size_t best_bytes = 0;
  for (reductions::reduction_entry const* const entry : reductions::entries()) {
    if (!entry->refusal(method.codec, method.error_feedback).empty()) continue;
    std::size_t const bytes = entry->most_bytes(method.codec, segments, ranks);
    if (best == nullptr || bytes < best_bytes || (bytes == best_bytes && entry->roundings < best->roundings)) {
      best = entry;
      best_bytes = bytes;
    }
  }
  if (best == nullptr) throw error{errc::unsupported, "no reduction of this build can average '" + method.text() + "'"};
  return *best;
}

void check_segments(codec const& method, std::span<segment const> segments) {
  std::size_t const granule = method.granule();
  for (segment const& each : segments) {
    if (granule == 0 ? each.first == 0 : each.first % granule == 0) continue;
    throw error{errc::invalid_argument,
                "a segment of tensor " + std::to_string(each.tensor_id) + " starts at its element " +
                    std::to_string(each.first) + ", but '" + method.text() + "' " +
                    (granule == 0 ? std::string{"works on whole tensors: start at 0"}
                                  : "works on blocks of " + std::to_string(granule) + ": start at a multiple of it")};
  }
}

}  // namespace

std::unique_ptr<reduction> make_reduction(communicator& comm, spec const& method, std::span<segment const> segments,
                                          dtype type, std::pmr::memory_resource* memory) {
  check_segments(method.codec, segments);
  return choose(method, segments, comm.size())
      .make({comm, method.codec, method.error_feedback, {segments.begin(), segments.end()}, type, memory});
}

std::span<std::string_view const> reduction_names() {
  static std::vector<std::string_view> const names = [] {
    std::vector<std::string_view> result{"auto"};
    for (reductions::reduction_entry const* const entry : reductions::entries()) result.push_back(entry->name);
    return result;
  }();
  return names;
}

void all_reduce_mean(reduction& how, exec const& on, reduction_call const& call) {
  for (std::size_t stage = 0; stage < how.stages(); ++stage) how.enqueue(stage, on, call);
}

double dense_bytes(std::size_t count, std::size_t ranks, dtype type) {
  if (ranks == 0) return 0;
  double const n = static_cast<double>(ranks);
  return 2 * (n - 1) / n * static_cast<double>(size_of(type)) * static_cast<double>(count);
}

}  // namespace gradwire
