#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "program/train/network.hpp"

namespace gradwire::program {

//! Images of handwritten digits: 64 standardised pixels each, and the digit.
struct digits_data {
  matrix train;
  matrix test;
  std::vector<std::size_t> train_labels;
  std::vector<std::size_t> test_labels;
  std::uint32_t checksum = 0;  //!< of the rows, unpacked
};

//! Parses rows of 64 pixels 0..16 and a label 0..9, separated by commas; gzip is recognised by its first bytes. Every
//! third row is for testing. Pixels get the mean 0 and the deviation 1 of the training rows (a pixel that hardly varies
//! is only centred). Throws program_error with `name`, the line and what is wrong.
[[nodiscard]] digits_data parse_digits(std::string_view bytes, std::string_view name);

//! The bytes behind gzip's wrapping, of all its members one after the other. Throws program_error: truncated, damaged,
//! or followed by something else.
[[nodiscard]] std::string gunzip(std::string_view bytes, std::string_view name);

[[nodiscard]] workload_factory load_digits(train_config const& config);
[[nodiscard]] workload_defaults digits_defaults(std::string const& model);

}  // namespace gradwire::program
