#pragma once

#include <cstddef>
#include <cstdint>
#include <numeric>
#include <utility>
#include <vector>

#include "program/train/random.hpp"

namespace gradwire::program {

//! An endless sequence of sample numbers, shuffled afresh for each pass over the data; element i depends on (seed, i)
//! alone, so every rank can find its own part, and a resumed run its place.
class sample_order {
 public:
  sample_order(std::size_t samples, std::uint64_t seed) : seed_{seed}, order_(samples) { shuffle(0); }

  [[nodiscard]] std::size_t operator[](std::size_t i) {
    if (std::size_t const pass = i / order_.size(); pass != pass_) shuffle(pass);
    return order_[i % order_.size()];
  }

 private:
  // Fisher and Yates.
  void shuffle(std::size_t pass) {
    std::iota(order_.begin(), order_.end(), std::size_t{0});
    random_stream random{seed_, draw::order, pass, 0};
    for (std::size_t i = order_.size(); i > 1; --i) std::swap(order_[i - 1], order_[random.below(i)]);
    pass_ = pass;
  }

  std::uint64_t seed_;
  std::vector<std::size_t> order_;
  std::size_t pass_ = 0;
};

}  // namespace gradwire::program
