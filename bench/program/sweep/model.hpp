#pragma once

#include <cstddef>
#include <span>
#include <string_view>
#include <vector>

#include <gradwire/codec.hpp>
#include <gradwire/dtype.hpp>
#include <gradwire/spec.hpp>

#include "program/sweep/inputs.hpp"

namespace gradwire::program::sweep {

//! What comparing one result with the model gave.
struct tally {
  std::size_t wrong = 0;  //!< elements that differ from the model (a NaN equals a NaN)
  double error2 = 0;      //!< Σ (result − true mean)², the mean in f64
  double norm2 = 0;       //!< Σ (true mean)²
  //! ‖result − mean‖² / ‖mean‖²; 0 where both are 0, infinite where only the mean is.
  [[nodiscard]] double nmse() const noexcept;
};

//! What a reduction must give, worked out serially and independently of the code that runs: the codec's reference
//! encode and decode, plain loops in rank order, residuals of its own. Only the definition is shared:
//!   one_shot  out = Σ_r (1/n)·D(Q(x_r + e_r))
//!   two_shot  c = (1/n)·Σ_r D(Q(x_r + e_r)) + o,  out = D(Q(c)),  o = c − D(Q(c))
//!   dense     out = the sum of exact-sum inputs, times 1/n
//! with e_r the worker residual of rank r and o the owner residual, both 0 without error feedback.
class reduction_model {
 public:
  //! `reduction` as reduction::name() gives it. The work may be dealt out: this is the part `share` of `shares`.
  //! Throws errc::unsupported for a reduction that has no model here.
  reduction_model(spec const& method, std::string_view reduction, std::size_t ranks, std::size_t count, dtype type,
                  std::size_t share = 0, std::size_t shares = 1);

  //! The next call: works out what inputs from `input` under `key` must give, compares `result` (`count` elements of
  //! the gradient's type) with it and moves the residuals on. For dense, wrong only means something with
  //! exact_sum_input.
  [[nodiscard]] tally check(input_source const& input, random_key key, void const* result);

  //! True when only exact_sum_input can be verified: the transport adds in an order of its own.
  [[nodiscard]] bool needs_exact_sums() const noexcept { return kind_ == kind::dense; }
  //! What exact_sum_input must leave room for.
  [[nodiscard]] std::size_t significant_bits() const;

 private:
  enum class kind { dense, one_shot, two_shot };
  struct residuals {
    std::vector<std::vector<float>> worker;  // by rank
    std::vector<float> owner;
  };

  void check_piece(input_source const& input, random_key key, segment piece, residuals* kept, void const* result,
                   tally& sum);
  void add(std::size_t rank, std::vector<float> const& values, float scale);
  void pass_through(random_key key, segment piece, std::vector<float>& x, std::vector<float>* residual);

  codec reference_;
  bool error_feedback_;
  kind kind_;
  std::size_t ranks_;
  std::size_t count_;
  dtype type_;
  std::size_t share_;
  std::size_t shares_;
  std::vector<residuals> residuals_;  // of this share's pieces, in order
  // Scratch of one piece.
  std::vector<float> x_;
  std::vector<float> decoded_;
  std::vector<float> expected_;
  std::vector<double> mean_;
  std::vector<std::byte> payload_;
};

}  // namespace gradwire::program::sweep
