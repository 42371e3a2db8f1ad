#include "program/train/network.hpp"

#include <algorithm>
#include <cmath>
#include <limits>
#include <string>

#include "program/train/random.hpp"

namespace gradwire::program {
namespace {

using index = Eigen::Index;
using const_map = Eigen::Map<matrix const>;
using map = Eigen::Map<matrix>;

index signed_of(std::size_t n) { return static_cast<index>(n); }

weight uniform_weight(std::string name, std::vector<std::size_t> shape, float bound, random_stream random) {
  std::size_t count = 1;
  for (std::size_t const n : shape) count *= n;
  weight result{std::move(name), std::move(shape), std::vector<float>(count)};
  for (float& value : result.values) value = bound * (2 * random.uniform() - 1);
  return result;
}

std::vector<weight> dense_weights(std::string const& name, std::size_t outputs, std::size_t inputs, std::uint64_t seed,
                                  std::uint32_t id) {
  float const bound = std::sqrt(6.0f / static_cast<float>(inputs));
  std::vector<weight> result;
  result.push_back(
      uniform_weight(name + ".weight", {outputs, inputs}, bound, random_stream{seed, draw::initial_weights, 0, id}));
  result.push_back({name + ".bias", {outputs}, std::vector<float>(outputs, 0.0f)});
  return result;
}

const_map as_matrix(weight const& w) { return {w.values.data(), signed_of(w.shape[0]), signed_of(w.shape[1])}; }

// y = x·Wᵀ + b, shared by linear and convolution (on patches).
void affine(std::span<weight const> weights, Eigen::Ref<matrix const> const& x, Eigen::Ref<matrix> y) {
  y.noalias() = x * as_matrix(weights[0]).transpose();
  y.rowwise() += const_map{weights[1].values.data(), 1, y.cols()}.row(0);
}

void affine_gradients(std::span<weight const> weights, Eigen::Ref<matrix const> const& x,
                      Eigen::Ref<matrix const> const& d_y, std::span<float* const> gradients,
                      std::function<void(std::size_t)> const& done) {
  map{gradients[0], signed_of(weights[0].shape[0]), signed_of(weights[0].shape[1])}.noalias() += d_y.transpose() * x;
  done(0);
  map{gradients[1], 1, d_y.cols()} += d_y.colwise().sum();
  done(1);
}

class linear final : public layer {
 public:
  linear(std::string name, std::size_t inputs, std::size_t outputs)
      : name_{std::move(name)}, inputs_{inputs}, outputs_{outputs} {}

  [[nodiscard]] std::vector<weight> make_weights(std::uint64_t seed, std::uint32_t id) const override {
    return dense_weights(name_, outputs_, inputs_, seed, id);
  }
  void forward(std::span<weight const> weights, matrix const& in, matrix& out) override {
    out.resize(in.rows(), signed_of(outputs_));
    affine(weights, in, out);
  }
  void backward(std::span<weight const> weights, matrix const& in, matrix const&, matrix const& d_out, matrix* d_in,
                std::span<float* const> gradients, std::function<void(std::size_t)> const& done) override {
    affine_gradients(weights, in, d_out, gradients, done);
    if (d_in != nullptr) d_in->noalias() = d_out * as_matrix(weights[0]);
  }

 private:
  std::string name_;
  std::size_t inputs_;
  std::size_t outputs_;
};

class relu final : public layer {
 public:
  void forward(std::span<weight const>, matrix const& in, matrix& out) override {
    out.resize(in.rows(), in.cols());
    // Not a maximum: a NaN has to come through, so that a diverging run is seen.
    std::transform(in.data(), in.data() + in.size(), out.data(), [](float x) { return x < 0 ? 0.0f : x; });
  }
  void backward(std::span<weight const>, matrix const&, matrix const& out, matrix const& d_out, matrix* d_in,
                std::span<float* const>, std::function<void(std::size_t)> const&) override {
    if (d_in == nullptr) return;
    d_in->resize(out.rows(), out.cols());
    std::transform(out.data(), out.data() + out.size(), d_out.data(), d_in->data(),
                   [](float y, float d) { return y == 0 ? 0.0f : d; });
  }
};

class conv3x3 final : public layer {
 public:
  conv3x3(std::string name, std::size_t side, std::size_t channels_in, std::size_t channels_out)
      : name_{std::move(name)}, side_{signed_of(side)}, in_{signed_of(channels_in)}, out_{signed_of(channels_out)} {}

  [[nodiscard]] std::vector<weight> make_weights(std::uint64_t seed, std::uint32_t id) const override {
    return dense_weights(name_, static_cast<std::size_t>(out_), static_cast<std::size_t>(9 * in_), seed, id);
  }
  void forward(std::span<weight const> weights, matrix const& in, matrix& out) override {
    patches_.setZero(in.rows() * side_ * side_, 9 * in_);
    each_tap(in.rows(), [&](index row, index tap, index sample, index pixel) {
      patches_.row(row).segment(tap * in_, in_) = in.row(sample).segment(pixel * in_, in_);
    });
    out.resize(in.rows(), side_ * side_ * out_);
    affine(weights, patches_, map{out.data(), patches_.rows(), out_});
  }
  void backward(std::span<weight const> weights, matrix const& in, matrix const&, matrix const& d_out, matrix* d_in,
                std::span<float* const> gradients, std::function<void(std::size_t)> const& done) override {
    const_map const d_y{d_out.data(), patches_.rows(), out_};
    affine_gradients(weights, patches_, d_y, gradients, done);
    if (d_in == nullptr) return;
    d_patches_.noalias() = d_y * as_matrix(weights[0]);
    d_in->setZero(in.rows(), in.cols());
    each_tap(in.rows(), [&](index row, index tap, index sample, index pixel) {
      d_in->row(sample).segment(pixel * in_, in_) += d_patches_.row(row).segment(tap * in_, in_);
    });
  }

 private:
  // Calls f(patch row, tap 0..8, sample, input pixel) for every tap that lies inside the image.
  template <class F>
  void each_tap(index samples, F const& f) const {
    for (index sample = 0; sample < samples; ++sample) {
      for (index y = 0; y < side_; ++y) {
        for (index x = 0; x < side_; ++x) {
          index const row = (sample * side_ + y) * side_ + x;
          for (index dy = std::max<index>(y - 1, 0); dy <= std::min(y + 1, side_ - 1); ++dy) {
            for (index dx = std::max<index>(x - 1, 0); dx <= std::min(x + 1, side_ - 1); ++dx) {
              f(row, (dy - y + 1) * 3 + (dx - x + 1), sample, dy * side_ + dx);
            }
          }
        }
      }
    }
  }

  std::string name_;
  index side_;
  index in_;
  index out_;
  matrix patches_;
  matrix d_patches_;
};

class max_pool final : public layer {
 public:
  max_pool(std::size_t side, std::size_t channels) : side_{signed_of(side)}, channels_{signed_of(channels)} {}

  void forward(std::span<weight const>, matrix const& in, matrix& out) override {
    index const half = side_ / 2;
    out.resize(in.rows(), half * half * channels_);
    from_.resize(out.rows(), out.cols());
    for (index sample = 0; sample < in.rows(); ++sample) {
      for (index cell = 0; cell < half * half; ++cell) {
        index const corner = (cell / half * 2 * side_ + cell % half * 2) * channels_;
        for (index channel = 0; channel < channels_; ++channel) {
          index best = corner + channel;
          for (index const step : {channels_, side_ * channels_, (side_ + 1) * channels_}) {
            index const other = corner + channel + step;
            // The negation lets a NaN win.
            if (!(in(sample, other) <= in(sample, best))) best = other;
          }
          out(sample, cell * channels_ + channel) = in(sample, best);
          from_(sample, cell * channels_ + channel) = best;
        }
      }
    }
  }
  void backward(std::span<weight const>, matrix const& in, matrix const&, matrix const& d_out, matrix* d_in,
                std::span<float* const>, std::function<void(std::size_t)> const&) override {
    if (d_in == nullptr) return;
    d_in->setZero(in.rows(), in.cols());
    for (index sample = 0; sample < d_out.rows(); ++sample) {
      for (index i = 0; i < d_out.cols(); ++i) (*d_in)(sample, from_(sample, i)) += d_out(sample, i);
    }
  }

 private:
  index side_;
  index channels_;
  Eigen::Matrix<index, Eigen::Dynamic, Eigen::Dynamic, Eigen::RowMajor> from_;
};

class embedding final : public layer {
 public:
  embedding(std::string name, std::size_t rows, std::size_t width)
      : name_{std::move(name)}, rows_{rows}, width_{signed_of(width)} {}

  [[nodiscard]] std::vector<weight> make_weights(std::uint64_t seed, std::uint32_t id) const override {
    std::vector<weight> result;
    result.push_back(uniform_weight(name_ + ".weight", {rows_, static_cast<std::size_t>(width_)}, 1,
                                    random_stream{seed, draw::initial_weights, 0, id}));
    return result;
  }
  void forward(std::span<weight const> weights, matrix const& in, matrix& out) override {
    const_map const table = as_matrix(weights[0]);
    out.resize(in.rows(), in.cols() * width_);
    for (index sample = 0; sample < in.rows(); ++sample) {
      for (index i = 0; i < in.cols(); ++i) {
        out.row(sample).segment(i * width_, width_) = table.row(static_cast<index>(in(sample, i)));
      }
    }
  }
  void backward(std::span<weight const>, matrix const& in, matrix const&, matrix const& d_out, matrix*,
                std::span<float* const> gradients, std::function<void(std::size_t)> const& done) override {
    map table{gradients[0], signed_of(rows_), width_};
    for (index sample = 0; sample < in.rows(); ++sample) {
      for (index i = 0; i < in.cols(); ++i) {
        table.row(static_cast<index>(in(sample, i))) += d_out.row(sample).segment(i * width_, width_);
      }
    }
    done(0);
  }

 private:
  std::string name_;
  std::size_t rows_;
  index width_;
};

}  // namespace

std::vector<weight> layer::make_weights(std::uint64_t, std::uint32_t) const { return {}; }

std::unique_ptr<layer> make_linear(std::string name, std::size_t inputs, std::size_t outputs) {
  return std::make_unique<linear>(std::move(name), inputs, outputs);
}
std::unique_ptr<layer> make_relu() { return std::make_unique<relu>(); }
std::unique_ptr<layer> make_conv3x3(std::string name, std::size_t side, std::size_t channels_in,
                                    std::size_t channels_out) {
  return std::make_unique<conv3x3>(std::move(name), side, channels_in, channels_out);
}
std::unique_ptr<layer> make_max_pool(std::size_t side, std::size_t channels) {
  return std::make_unique<max_pool>(side, channels);
}
std::unique_ptr<layer> make_embedding(std::string name, std::size_t rows, std::size_t width) {
  return std::make_unique<embedding>(std::move(name), rows, width);
}

network::network(std::vector<std::unique_ptr<layer>> layers, std::uint64_t seed)
    : layers_{std::move(layers)}, outputs_(layers_.size()) {
  for (auto const& one : layers_) {
    first_weight_.push_back(weights_.size());
    for (weight& made : one->make_weights(seed, static_cast<std::uint32_t>(weights_.size()))) {
      weights_.push_back(std::move(made));
    }
  }
  first_weight_.push_back(weights_.size());
}

std::span<weight const> network::of(std::size_t layer) const {
  return std::span{weights_}.subspan(first_weight_[layer], first_weight_[layer + 1] - first_weight_[layer]);
}

matrix const& network::forward(matrix const& in) {
  matrix const* lower = &in;
  for (std::size_t i = 0; i < layers_.size(); ++i) {
    layers_[i]->forward(of(i), *lower, outputs_[i]);
    lower = &outputs_[i];
  }
  return *lower;
}

void network::backward(matrix const& in, matrix const& d_out, gradient_sink const& sink) {
  matrix const* d_upper = &d_out;
  for (std::size_t i = layers_.size(); i-- > 0;) {
    std::size_t const first = first_weight_[i];
    layers_[i]->backward(of(i), i == 0 ? in : outputs_[i - 1], outputs_[i], *d_upper, i == 0 ? nullptr : &d_lower_,
                         sink.gradients.subspan(first, of(i).size()),
                         [&](std::size_t weight) { sink.ready(first + weight); });
    d_upper_.swap(d_lower_);
    d_upper = &d_upper_;
  }
}

double cross_entropy(matrix const& logits, std::span<std::size_t const> labels, float scale, matrix* d_logits) {
  index const rows = logits.rows();
  if (d_logits != nullptr) d_logits->resize(rows, logits.cols());
  double total = 0;
  float const each = scale / static_cast<float>(rows);
  std::vector<float> powers(static_cast<std::size_t>(logits.cols()));
  for (index row = 0; row < rows; ++row) {
    float const* const line = logits.data() + row * logits.cols();
    float top = -std::numeric_limits<float>::infinity();
    for (std::size_t c = 0; c < powers.size(); ++c) top = line[c] > top ? line[c] : top;
    float sum = 0;
    for (std::size_t c = 0; c < powers.size(); ++c) sum += powers[c] = std::exp(line[c] - top);
    std::size_t const label = labels[static_cast<std::size_t>(row)];
    total += static_cast<double>(std::log(sum)) - static_cast<double>(line[label] - top);
    if (d_logits == nullptr) continue;
    float* const d_line = d_logits->data() + row * logits.cols();
    for (std::size_t c = 0; c < powers.size(); ++c) d_line[c] = each * (powers[c] / sum - (c == label ? 1.0f : 0.0f));
  }
  return total / static_cast<double>(rows);
}

double accuracy(matrix const& logits, std::span<std::size_t const> labels) {
  std::size_t right = 0;
  for (index row = 0; row < logits.rows(); ++row) {
    float const* const line = logits.data() + row * logits.cols();
    auto const best = static_cast<std::size_t>(std::max_element(line, line + logits.cols()) - line);
    if (best == labels[static_cast<std::size_t>(row)]) ++right;
  }
  return static_cast<double>(right) / static_cast<double>(labels.size());
}

}  // namespace gradwire::program
