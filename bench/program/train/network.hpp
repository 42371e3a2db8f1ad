#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include <Eigen/Core>

#include "program/train/workload.hpp"

namespace gradwire::program {

//! One sample a row. Images are height × width × channels, channels innermost.
using matrix = Eigen::Matrix<float, Eigen::Dynamic, Eigen::Dynamic, Eigen::RowMajor>;

//! One layer: a pure function of its input and its own weights.
class layer {
 public:
  layer() = default;
  virtual ~layer() = default;
  layer(layer const&) = delete;
  layer& operator=(layer const&) = delete;

  //! Uniform, scaled by fan-in (He et al. 2015, arXiv:1502.01852); `id` keys the random numbers.
  [[nodiscard]] virtual std::vector<weight> make_weights(std::uint64_t seed, std::uint32_t id) const;
  //! `weights` are those that make_weights gave, in its order.
  virtual void forward(std::span<weight const> weights, matrix const& in, matrix& out) = 0;
  //! Adds the gradients of the weights into `gradients` and calls `done` for each before it computes `d_in`, so that
  //! they travel meanwhile. `d_in` is null for the first layer. `in` and `out` are those of the forward before.
  virtual void backward(std::span<weight const> weights, matrix const& in, matrix const& out, matrix const& d_out,
                        matrix* d_in, std::span<float* const> gradients,
                        std::function<void(std::size_t)> const& done) = 0;
};

//! y = x·Wᵀ + b, W outputs × inputs.
[[nodiscard]] std::unique_ptr<layer> make_linear(std::string name, std::size_t inputs, std::size_t outputs);
[[nodiscard]] std::unique_ptr<layer> make_relu();
//! 3 × 3, zero padding, stride 1, on side × side images. W is channels out × (3·3·channels in).
[[nodiscard]] std::unique_ptr<layer> make_conv3x3(std::string name, std::size_t side, std::size_t channels_in,
                                                  std::size_t channels_out);
//! Maxima of 2 × 2; side is even.
[[nodiscard]] std::unique_ptr<layer> make_max_pool(std::size_t side, std::size_t channels);
//! Each number of a row is an index below `rows` (exact in f32); it becomes that row of the table.
[[nodiscard]] std::unique_ptr<layer> make_embedding(std::string name, std::size_t rows, std::size_t width);

//! Layers one behind the other.
class network {
 public:
  network(std::vector<std::unique_ptr<layer>> layers, std::uint64_t seed);

  [[nodiscard]] std::span<weight> weights() noexcept { return weights_; }
  //! The last layer's output; lives until the next call.
  [[nodiscard]] matrix const& forward(matrix const& in);
  //! `d_out` is the gradient of the loss at the output of the forward before. Its scale is the caller's; sink.scale is
  //! not applied.
  void backward(matrix const& in, matrix const& d_out, gradient_sink const& sink);

 private:
  [[nodiscard]] std::span<weight const> of(std::size_t layer) const;

  std::vector<std::unique_ptr<layer>> layers_;
  std::vector<weight> weights_;
  std::vector<std::size_t> first_weight_;  // by layer, and the end
  std::vector<matrix> outputs_;
  matrix d_upper_;
  matrix d_lower_;
};

//! Softmax and cross-entropy: returns the mean of −log p(label) over rows; `d_logits`, unless null, gets its gradient
//! times `scale`. A NaN or Inf logit gives a NaN loss.
double cross_entropy(matrix const& logits, std::span<std::size_t const> labels, float scale, matrix* d_logits);
//! Share of rows whose largest logit is the label's (the lowest index among equals).
[[nodiscard]] double accuracy(matrix const& logits, std::span<std::size_t const> labels);

}  // namespace gradwire::program
