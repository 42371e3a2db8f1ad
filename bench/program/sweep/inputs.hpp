#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include <gradwire/dtype.hpp>

namespace gradwire::program::sweep {

//! What the ranks contribute: a pure function of rank and element index, so that any rank can work out what another one
//! sent. Values are exact in the gradient's type.
class input_source {
 public:
  virtual ~input_source() = default;
  //! Elements `first`, `first` + 1, … of rank `rank`.
  virtual void fill(std::size_t rank, std::size_t first, std::span<float> out) const = 0;
};

//! Elements `first` … `first` + `count` − 1 of rank `rank` as numbers of `type`, into out[0] ….
void fill_elements(input_source const& input, std::size_t rank, std::size_t first, std::size_t count, elements out);
//! Element `index` of an array of `type` with any alignment, as float.
[[nodiscard]] float element_at(const_elements array, std::size_t index);
//! The nearest number of `type`, as float.
[[nodiscard]] float rounded_to(dtype type, float value);
//! Of numbers of `type`: 24, 11 or 8.
[[nodiscard]] std::size_t significant_bits_of(dtype type);

//! Independent standard normal numbers on every rank (65,536 quantiles, picked by Philox), rounded to `type`.
class gaussian_input final : public input_source {
 public:
  gaussian_input(std::uint64_t seed, dtype type);
  void fill(std::size_t rank, std::size_t first, std::span<float> out) const override;

 private:
  std::uint64_t seed_;
  std::vector<float> quantiles_;
};

//! `ranks` times small whole numbers, made so that every partial sum and every mean is a whole number that fits in
//! `significant_bits`: then all orders of summation, with the division before or after, give the same bits. (The idea
//! of nccl-tests' verifiable inputs.)
class exact_sum_input final : public input_source {
 public:
  //! `significant_bits`: the fewest of all types that the sum passes through (see significant_bits_of()).
  //! Throws errc::unsupported when so many ranks leave no number but 0.
  exact_sum_input(std::uint64_t seed, std::size_t ranks, std::size_t significant_bits);
  void fill(std::size_t rank, std::size_t first, std::span<float> out) const override;

 private:
  std::uint64_t seed_;
  std::size_t ranks_;
  std::uint32_t largest_;  //!< numbers are ranks · (−largest … largest)
};

}  // namespace gradwire::program::sweep
