#pragma once

#include <chrono>
#include <cstddef>
#include <exception>
#include <mutex>
#include <optional>
#include <utility>

#include <gradwire/communicator.hpp>
#include <gradwire/stream.hpp>

#include "overlap/timeline.hpp"

namespace gradwire::overlap {

//! A point to wait for and how long that may take: each collective before it ends within the group's timeout.
struct bounded_event {
  event point;
  std::chrono::milliseconds timeout{};
};

//! What outlives the reducer when a caller's stream still waits for its last step.
struct shared_outcome {
  std::mutex mutex;
  std::exception_ptr failure;
  double exposed_seconds = 0;
  std::optional<timeline> record;

  std::mutex comm_mutex;         // of its own: abort() may take a while, and nobody in backward should wait for it
  communicator* comm = nullptr;  // null once the reducer is gone

  void rethrow_failure() {
    std::scoped_lock const lock{mutex};
    if (failure) std::rethrow_exception(failure);
  }
  //! What was left of step `step` behind backward.
  void add_exposed(std::size_t step, timeline::clock::time_point begin, timeline::clock::time_point end) {
    std::scoped_lock const lock{mutex};
    exposed_seconds += std::chrono::duration<double>{end - begin}.count();
    if (record) record->add({track::exposed, "exposed", step, timeline::none, timeline::none, 0, begin, end});
  }
  //! Keeps the first failure and lets the other ranks know.
  void fail(std::exception_ptr why) noexcept {
    {
      std::scoped_lock const lock{mutex};
      if (failure) return;
      failure = std::move(why);
    }
    std::scoped_lock const lock{comm_mutex};
    if (comm != nullptr) comm->abort();
  }
};

}  // namespace gradwire::overlap
