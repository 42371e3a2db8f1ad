#pragma once

#include <cstddef>
#include <memory>
#include <span>
#include <string_view>
#include <vector>

#include <gradwire/communicator.hpp>
#include <gradwire/spec.hpp>

namespace gradwire {

//! The residual of the second quantisation that this rank holds for a run of elements that it owns, in units of the
//! mean.
struct owner_residual {
  std::uint32_t tensor_id = 0;
  std::size_t first = 0;            //!< index within the tensor
  std::size_t residual_offset = 0;  //!< where the same elements lie in the worker residual
  std::span<float> values;
};

//! One call's data.
struct reduction_call {
  elements gradient;  //!< base of the buffer that segments index; ends with the mean over ranks, equal on all ranks
  float* residual = nullptr;  //!< base of the worker residual; null without error feedback or elements
  random_key key;             //!< equal on all ranks; the reduction gives each rank and stage its own numbers
};

//! Averages a fixed list of segments over the ranks of a communicator, written once for every transport and device: an
//! alternation of local stages (0, 2, 4, … encode, sum, decode) and wire stages (1, 3, …, one collective each), so that
//! a scheduler can put them on streams of its own and overlap neighbouring chunks. Holds its scratch, allocated once,
//! and the owner residuals.
class reduction {
 public:
  virtual ~reduction() = default;

  [[nodiscard]] virtual std::string_view name() const noexcept = 0;  //!< "dense", "one_shot", "two_shot", …
  [[nodiscard]] virtual std::size_t stages() const noexcept = 0;     //!< odd
  //! Enqueues stage `index` on on.stream; does not synchronise. The caller orders stage i+1 behind stage i, and calls
  //! of the same reduction one behind the other. `call` is copied; what it points to lives until the last stage is
  //! done.
  virtual void enqueue(std::size_t index, exec const& on, reduction_call const& call) = 0;
  //! Bytes that this rank sends in one call.
  [[nodiscard]] virtual std::size_t wire_bytes() const noexcept = 0;
  [[nodiscard]] virtual std::span<segment const> segments() const noexcept = 0;
  //! Empty unless the reduction quantises twice with feedback.
  [[nodiscard]] virtual std::span<owner_residual const> owner_residuals() const noexcept = 0;
};

//! The method by name, or by the byte formulas for "auto": sums on the wire without feedback go dense; else one_shot
//! where no rank would send more than by two_shot (one quantisation instead of two); else two_shot.
//! `segments` have first = 0 or start at the codec's granule. Throws errc::invalid_argument that lists the reductions.
[[nodiscard]] std::unique_ptr<reduction> make_reduction(
    communicator& comm, spec const& method, std::span<segment const> segments, dtype type,
    std::pmr::memory_resource* memory = std::pmr::get_default_resource());

//! The names that `via(...)` takes, "auto" first.
[[nodiscard]] std::span<std::string_view const> reduction_names();

//! All stages on one stream, in order. Does not synchronise.
void all_reduce_mean(reduction& how, exec const& on, reduction_call const& call);

//! Bytes that a rank sends to average `count` numbers of `type` by the dense algorithm: 2(n−1)/n·size_of(type)·count.
[[nodiscard]] double dense_bytes(std::size_t count, std::size_t ranks, dtype type = dtype::f32);

}  // namespace gradwire
