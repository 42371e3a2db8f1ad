#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>

#include <gradwire/spec.hpp>

#include "program/common/json_lines.hpp"

namespace gradwire::program::fidelity {

struct fidelity_options {
  std::size_t repeats = 16;  //!< encodings with random numbers of their own
  std::size_t steps = 0;     //!< of error feedback; 0: not looked at
  std::uint64_t seed = 1;
};

//! What a method does to one array x; D is what is decoded. Figures over repeats are means, max_abs_error the largest.
struct fidelity_result {
  std::string spec;
  std::size_t count = 0;
  std::size_t bytes = 0;  //!< of the payload
  double nmse = 0;        //!< ‖x − D‖² / ‖x‖²
  double bias = 0;        //!< mean of D − x over elements and repeats, relative to the rms of x
  //! ‖mean of D over repeats − x‖ / ‖x‖, less what the repeats' own noise adds to it: near 0 for an unbiased method,
  //! √nmse for a deterministic one.
  double element_bias = 0;
  std::optional<double> cosine;  //!< of the angle between x and D; empty when D is 0
  double max_abs_error = 0;
  //! ‖Σ sent − Σ x‖ / ‖Σ x‖ after options.steps steps with the same x, with error feedback where the spec has it.
  std::optional<double> sum_error;

  [[nodiscard]] double bits_per_element() const noexcept;
};

//! `x`: finite numbers, not all of them 0, one tensor. Throws errc::invalid_argument otherwise; what the spec says
//! about ranks (via) does not matter here.
[[nodiscard]] fidelity_result measure_fidelity(spec const& method, std::span<float const> x,
                                               fidelity_options const& options);

//! {"event":"fidelity", …}, as docs/cli.md has it.
[[nodiscard]] record to_record(fidelity_result const& result, std::string const& input,
                               fidelity_options const& options);

}  // namespace gradwire::program::fidelity
