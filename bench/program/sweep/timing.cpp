#include "program/sweep/timing.hpp"

#include <algorithm>
#include <chrono>
#include <cstring>

#include <gradwire/buffer.hpp>

#include "program/common/interrupt.hpp"
#include "program/sweep/interface_counter.hpp"

namespace gradwire::program::sweep {
namespace {

constexpr std::size_t most_iterations = 50;
constexpr std::size_t fewest_iterations = 5;
constexpr double timed_budget_us = 1e6;
constexpr double warmup_budget_us = 0.5e6;

double timed_call(communicator& comm, std::function<void()> const& prepare, std::function<void()> const& call) {
  if (comm.rank() == 0) throw_if_interrupted();
  prepare();
  comm.barrier({}).wait();
  auto const begin = std::chrono::steady_clock::now();
  call();
  return std::chrono::duration<double, std::micro>(std::chrono::steady_clock::now() - begin).count();
}

template <class T>
T largest(communicator& comm, T value) {
  auto const all = gather(comm, value);
  return *std::max_element(all.begin(), all.end());
}

}  // namespace

timing time_calls(communicator& comm, measure_options const& options, std::function<void()> const& prepare,
                  std::function<void()> const& call) {
  bool const fixed = options.iterations.has_value();
  double warmup_us = 0;
  double last_us = 0;
  for (std::size_t i = 0; i < options.warmup && (fixed || warmup_us < warmup_budget_us); ++i) {
    last_us = largest(comm, timed_call(comm, prepare, call));
    warmup_us += last_us;
  }
  std::size_t iterations = most_iterations;
  if (fixed) {
    iterations = *options.iterations;
  } else if (last_us > 0) {
    double const fit = std::clamp(timed_budget_us / last_us, static_cast<double>(fewest_iterations),
                                  static_cast<double>(most_iterations));
    iterations = static_cast<std::size_t>(fit);
  }
  std::optional<interface_counter> counter;
  if (!options.counted_interface.empty()) counter.emplace(options.counted_interface);
  std::vector<double> times;
  times.reserve(iterations);
  std::uint64_t const sent_before = counter ? counter->sent() : 0;
  for (std::size_t i = 0; i < iterations; ++i) times.push_back(timed_call(comm, prepare, call));
  std::optional<std::size_t> interface_bytes;
  if (counter) {
    // A call ends when this rank has all it waits for; what it sent may still stand in a queue of the system. Once the
    // other ranks are past their calls, it is out.
    comm.barrier({}).wait();
    interface_bytes = largest(comm, (counter->sent() - sent_before) / iterations);
  }

  std::size_t const bytes = iterations * sizeof(double);
  std::vector<double> all(iterations * comm.size());
  std::vector<std::size_t> const sizes(comm.size(), bytes);
  comm.all_gather(std::as_bytes(std::span{times}), std::as_writable_bytes(std::span{all}), sizes, {}).wait();
  for (std::size_t begin = 0; begin < all.size(); begin += iterations) {
    for (std::size_t i = 0; i < iterations; ++i) times[i] = std::max(times[i], all[begin + i]);
  }
  return {iterations, percentile(times, 50), percentile(times, 99), interface_bytes};
}

case_result describe(communicator& comm, measure_options const& options, std::size_t count, std::size_t sent,
                     timing const& time) {
  auto const all_sent = gather(comm, sent);
  case_result done;
  done.transport = comm.transport();
  done.type = options.type;
  done.ranks = comm.size();
  done.count = count;
  done.iterations = time.iterations;
  done.time_us = time.p50_us;
  done.p99_us = time.p99_us;
  done.interface_bytes = time.interface_bytes;
  done.wire_bytes = *std::max_element(all_sent.begin(), all_sent.end());
  return done;
}

std::size_t replace_by_first_ranks(communicator& comm, std::span<std::byte> mine, std::size_t width) {
  constexpr std::size_t piece_bytes = std::size_t{4} << 20;
  buffer piece{std::min(piece_bytes, mine.size())};
  std::size_t differing = 0;
  for (std::size_t at = 0; at < mine.size(); at += piece_bytes) {
    auto const here = mine.subspan(at, std::min(piece_bytes, mine.size() - at));
    auto const theirs = piece.bytes().first(here.size());
    std::memcpy(theirs.data(), here.data(), here.size());
    comm.broadcast(theirs, 0, {}).wait();
    for (std::size_t i = 0; i < here.size(); i += width) {
      if (std::memcmp(&here[i], &theirs[i], width) != 0) ++differing;
    }
    std::memcpy(here.data(), theirs.data(), here.size());
  }
  return differing;
}

}  // namespace gradwire::program::sweep
