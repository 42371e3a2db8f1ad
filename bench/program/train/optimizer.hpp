#pragma once

#include <cstddef>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "program/train/workload.hpp"

namespace gradwire::program {

//! Element by element in f32, so that equal gradients keep equal weights equal on every rank.
class optimizer {
 public:
  optimizer() = default;
  virtual ~optimizer() = default;
  optimizer(optimizer const&) = delete;
  optimizer& operator=(optimizer const&) = delete;

  //! `gradients[i]` has as many elements as weights[i].
  virtual void step(std::span<weight> weights, std::span<float const* const> gradients) = 0;
  //! What later steps depend on besides `steps`, by buffer; for checkpoints.
  [[nodiscard]] virtual std::vector<std::vector<float>*> state() = 0;

  std::size_t steps = 0;  //!< taken so far
};

//! sgd: w −= lr·g. momentum: v = 0.9·v + g, w −= lr·v (Polyak's, as in PyTorch). adam: β = 0.9, 0.999, ε = 1e-8 (Kingma
//! and Ba, arXiv:1412.6980, algorithm 1). Throws program_error that lists them.
[[nodiscard]] std::unique_ptr<optimizer> make_optimizer(std::string_view name, double lr,
                                                        std::span<weight const> weights);

}  // namespace gradwire::program
