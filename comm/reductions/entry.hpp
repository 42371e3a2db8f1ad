#pragma once

#include <cstddef>
#include <memory>
#include <memory_resource>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include <gradwire/codec.hpp>
#include <gradwire/communicator.hpp>
#include <gradwire/reduction.hpp>

namespace gradwire::reductions {

//! What one reduction is built from.
struct setup {
  communicator& comm;
  gradwire::codec codec;
  bool feedback = false;
  std::vector<segment> segments;
  dtype type = dtype::f32;
  std::pmr::memory_resource* memory = std::pmr::get_default_resource();
};

//! A way to average a bucket, as data. One file in methods/ defines one; the registry is generated from the folder.
struct reduction_entry {
  std::string_view name;  //!< as in via(...)
  //! How often a value is rounded on its way; "auto" prefers fewer among methods that send equally much.
  std::size_t roundings = 0;
  //! Why `method` cannot go this way, with what to write instead; empty when it can.
  std::string (*refusal)(codec const& method, bool feedback) = nullptr;
  //! The most bytes that any of `ranks` ranks sends.
  std::size_t (*most_bytes)(codec const& method, std::span<segment const> segments, std::size_t ranks) = nullptr;
  std::unique_ptr<reduction> (*make)(setup) = nullptr;
};

//! By name.
[[nodiscard]] std::span<reduction_entry const* const> entries();
//! Throws errc::invalid_argument that lists the names; "auto" is none of them.
[[nodiscard]] reduction_entry const& find_entry(std::string_view name);

//! What all reductions have in common. Not movable: stages that are under way point into it.
class reduction_base : public reduction {
 public:
  explicit reduction_base(setup with);
  reduction_base(reduction_base const&) = delete;
  reduction_base& operator=(reduction_base const&) = delete;

  [[nodiscard]] std::span<segment const> segments() const noexcept final { return with_.segments; }
  [[nodiscard]] std::span<owner_residual const> owner_residuals() const noexcept override { return {}; }

 protected:
  //! Throws errc::invalid_argument when `call` does not fit what the reduction was made for.
  void check(reduction_call const& call) const;
  //! payload = Q(gradient), or with feedback Q(gradient + residual), with this rank's own random numbers.
  void encode_own(exec const& on, reduction_call const& call, std::span<std::byte> payload) const;
  [[nodiscard]] float one_over_ranks() const noexcept { return 1.0F / static_cast<float>(ranks_); }

  setup with_;
  std::size_t ranks_;
  std::size_t encoded_bytes_;  //!< of all segments, on one rank
};

//! Runs `task` behind what is enqueued on on.stream, with an exec whose stream is the null one. CPU only.
template <class Task>
void run_on_cpu(exec const& on, Task task) {
  exec inner = on;
  inner.stream = {};
  enqueue(on.stream, [inner, task = std::move(task)] { task(inner); });
}

}  // namespace gradwire::reductions
