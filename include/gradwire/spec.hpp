#pragma once

#include <cstddef>
#include <span>
#include <string>
#include <string_view>

#include <gradwire/codec.hpp>

namespace gradwire {

//! How a bucket is averaged, in text `method{+modifier}`: "onebit(block=1024)+ef+via(two_shot)".
//! Modifiers: `ef` (error feedback), `via(REDUCTION)` (auto, dense, one_shot, two_shot), `warmup(steps=N)` (dense f32
//! for the first N steps).
struct spec {
  gradwire::codec codec;
  bool error_feedback = false;
  std::string via = "auto";
  std::size_t warmup_steps = 0;

  //! Throws errc::invalid_argument that lists what is allowed; also for combinations that are known to fail, such as
  //! error feedback around an unbiased codec with omega >= 1, with the reason and what to write instead.
  [[nodiscard]] static spec parse(std::string_view text);
  //! Canonical: equal texts mean equal specs.
  [[nodiscard]] std::string text() const;
};

//! What rules look at.
struct parameter_shape {
  std::string_view name;
  std::span<std::size_t const> shape;  //!< empty for a scalar
};

//! Elements of a tensor of this shape.
[[nodiscard]] std::size_t element_count(std::span<std::size_t const> shape) noexcept;

//! `condition=>spec`; condition: `name~REGEX` (ECMAScript, found anywhere in the name), `ndim=N`, or `min_numel=N` (at
//! least N elements).
struct rule {
  std::string condition;
  gradwire::spec spec;

  //! Throws errc::invalid_argument, which says what is wrong: the form, the condition, the regular expression, the
  //! spec.
  [[nodiscard]] static rule parse(std::string_view text);
  //! Throws errc::invalid_argument for a condition that parse() would refuse.
  [[nodiscard]] bool matches(parameter_shape const& parameter) const;
  [[nodiscard]] std::string text() const;
};

//! The first rule that matches decides; then parameters of one dimension or none and those under `min_numel` elements
//! get `none`; the rest get `fallback`.
[[nodiscard]] spec choose_spec(parameter_shape const& parameter, std::span<rule const> rules, spec const& fallback,
                               std::size_t min_numel = 1024);

}  // namespace gradwire
