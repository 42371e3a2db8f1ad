#include "program/sweep/model.hpp"

#include <algorithm>
#include <cmath>
#include <limits>
#include <utility>

#include <fmt/format.h>

#include <gradwire/error.hpp>

#include "core/random.hpp"

namespace gradwire::program::sweep {

namespace {

// Elements modelled at a time: small enough for the scratch to stay in cache, so that a sweep's memory is the data's.
constexpr std::size_t piece_elements = std::size_t{1} << 16;

}  // namespace

double tally::nmse() const noexcept {
  if (norm2 > 0) return error2 / norm2;
  return error2 > 0 ? std::numeric_limits<double>::infinity() : 0;
}

reduction_model::reduction_model(spec const& method, std::string_view reduction, std::size_t ranks, std::size_t count,
                                 dtype type, std::size_t share, std::size_t shares)
    : reference_{method.codec.entry(), method.codec.params(), implementation::reference},
      error_feedback_{method.error_feedback},
      ranks_{ranks},
      count_{count},
      type_{type},
      share_{share},
      shares_{shares} {
  if (reduction == "dense") {
    kind_ = kind::dense;
  } else if (reduction == "one_shot") {
    kind_ = kind::one_shot;
  } else if (reduction == "two_shot") {
    kind_ = kind::two_shot;
  } else {
    throw error{errc::unsupported, fmt::format("reduction {}: the sweep has no exact model to check its results by; "
                                               "use dense, one_shot or two_shot",
                                               reduction)};
  }
}

std::size_t reduction_model::significant_bits() const {
  // The sum passes through the gradient's type and through the type that the codec puts on the wire.
  dtype const wire = reference_.traits().sums_on_wire.value_or(type_);
  return std::min(significant_bits_of(type_), significant_bits_of(wire));
}

tally reduction_model::check(input_source const& input, random_key key, void const* result) {
  // A codec may only be cut at its granule; with granule 0 the segment is one piece.
  std::size_t const granule = kind_ == kind::dense ? 1 : reference_.granule();
  std::size_t const step =
      granule == 0 ? std::max<std::size_t>(count_, 1) : std::max<std::size_t>(piece_elements / granule, 1) * granule;
  tally sum;
  std::size_t own = 0;
  for (std::size_t first = share_ * step; first < count_; first += shares_ * step, ++own) {
    if (error_feedback_ && own == residuals_.size()) {
      std::size_t const n = std::min(step, count_ - first);
      residuals_.push_back({std::vector<std::vector<float>>(ranks_, std::vector<float>(n)), std::vector<float>(n)});
    }
    segment const piece{.count = std::min(step, count_ - first), .first = first};
    check_piece(input, key, piece, error_feedback_ ? &residuals_[own] : nullptr, result, sum);
  }
  return sum;
}

void reduction_model::check_piece(input_source const& input, random_key key, segment piece, residuals* kept,
                                  void const* result, tally& sum) {
  std::size_t const n = piece.count;
  float const share = 1.0F / static_cast<float>(ranks_);
  x_.resize(n);
  expected_.resize(n);
  mean_.assign(n, 0);
  for (std::size_t rank = 0; rank < ranks_; ++rank) {
    input.fill(rank, piece.first, x_);
    for (std::size_t i = 0; i < n; ++i) mean_[i] += static_cast<double>(x_[i]);
    if (kind_ == kind::dense) {
      add(rank, x_, 1.0F);
      continue;
    }
    pass_through(with_stage(key, rank + 1), piece, x_, kept == nullptr ? nullptr : &kept->worker[rank]);
    add(rank, decoded_, kind_ == kind::one_shot ? share : 1.0F);
  }
  if (kind_ != kind::one_shot) {
    for (float& value : expected_) value *= share;
  }
  if (kind_ == kind::two_shot) {
    pass_through(with_stage(key, 0), piece, expected_, kept == nullptr ? nullptr : &kept->owner);
    std::swap(expected_, decoded_);
  }
  for (std::size_t i = 0; i < n; ++i) {
    float const expected = rounded_to(type_, expected_[i]);
    float const actual = element_at({result, type_}, piece.first + i);
    bool const equal = expected == actual || (std::isnan(expected) && std::isnan(actual));
    if (!equal) ++sum.wrong;
    double const mean = mean_[i] / static_cast<double>(ranks_);
    double const off = static_cast<double>(actual) - mean;
    sum.error2 += off * off;
    sum.norm2 += mean * mean;
  }
}

// expected_ (+)= scale·values in f32. The sum starts as the first rank's numbers, not as 0 plus them: a negative zero
// stays one.
void reduction_model::add(std::size_t rank, std::vector<float> const& values, float scale) {
  for (std::size_t i = 0; i < values.size(); ++i) {
    expected_[i] = rank == 0 ? scale * values[i] : expected_[i] + scale * values[i];
  }
}

// x += residual; decoded_ = D(Q(x)); residual = x − decoded_.
void reduction_model::pass_through(random_key key, segment piece, std::vector<float>& x, std::vector<float>* residual) {
  std::size_t const n = piece.count;
  if (residual != nullptr) {
    for (std::size_t i = 0; i < n; ++i) x[i] += (*residual)[i];
  }
  payload_.resize(reference_.encoded_bytes(n));
  decoded_.resize(n);
  reference_.encode({}, {x.data(), dtype::f32}, {&piece, 1}, key, payload_);
  reference_.decode({}, payload_, {&piece, 1}, {decoded_.data(), dtype::f32});
  if (residual != nullptr) {
    for (std::size_t i = 0; i < n; ++i) (*residual)[i] = x[i] - decoded_[i];
  }
}

}  // namespace gradwire::program::sweep
