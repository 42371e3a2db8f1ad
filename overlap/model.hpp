#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <memory_resource>
#include <span>
#include <string>
#include <vector>

#include <gradwire/buffer.hpp>
#include <gradwire/codec.hpp>
#include <gradwire/reducer.hpp>
#include <gradwire/spec.hpp>

namespace gradwire::overlap {

//! A parameter with its method and its fixed place in memory.
struct placed_parameter {
  parameter given;
  std::size_t count = 0;
  spec method;
  std::size_t group = 0;            //!< equal for equal method and dtype: what may share a bucket
  std::size_t offset = 0;           //!< first element, in the arena of its dtype
  std::size_t residual_offset = 0;  //!< first element, in the residual arena; without meaning unless with feedback

  [[nodiscard]] std::size_t bytes() const noexcept { return count * size_of(given.type); }
  //! dtype, shape and method, e.g. "f32 [64,128] onebit(block=1024)+ef".
  [[nodiscard]] std::string text() const;
};

//! Whether gradients live in the model or come in buckets that somebody else laid out.
enum class gradient_home : std::uint8_t { model, outside };

//! The parameters and the memory of their gradients and residuals: one arena per dtype, one for the residuals. Nothing
//! in here ever moves, so buckets are no more than lists of segments.
class model {
 public:
  //! Throws errc::invalid_argument for a name that is empty or not unique. With gradients outside there are no arenas
  //! for them, and only what concerns parameters and residuals may be called.
  model(std::vector<parameter> parameters, reducer_options const& options, gradient_home home = gradient_home::model);

  [[nodiscard]] std::span<placed_parameter const> parameters() const noexcept { return parameters_; }
  //! The base of the buffer that segments of this dtype index.
  [[nodiscard]] elements arena(dtype type) noexcept;
  //! Element 0 of parameter i: the caller's memory or the arena's.
  [[nodiscard]] void* gradient(std::size_t index) noexcept;
  [[nodiscard]] std::span<float> residuals() noexcept { return residuals_.as<float>(); }
  //! Empty without feedback.
  [[nodiscard]] std::span<float> residual(std::size_t index) noexcept;
  [[nodiscard]] bool has_feedback() const noexcept { return residuals_.size() != 0; }
  //! The whole parameter.
  [[nodiscard]] segment whole(std::size_t index) const noexcept;
  void zero_gradients() noexcept;

  //! Between the caller's gradient and the arena; nothing for a gradient that lives in the arena.
  void copy_in(std::span<segment const> segments) noexcept;
  void copy_out(std::span<segment const> segments) noexcept;

 private:
  std::vector<placed_parameter> parameters_;
  std::array<buffer, 3> arenas_;  // by dtype
  buffer residuals_;
};

}  // namespace gradwire::overlap
