#include "program/train/quadratic.hpp"

#include <algorithm>
#include <array>
#include <cmath>
#include <span>

#include <fmt/format.h>

#include "program/common/context.hpp"
#include "program/train/random.hpp"

namespace gradwire::program {
namespace {

using point = std::span<float const>;

// ε of counter-examples 2 and 3; any value in (0, 1) shows the same.
constexpr double epsilon = 0.5;
// Beyond it a run counts as diverged.
constexpr double far_off = 1e12;

// A subgradient: at 0 one of its ends, as the counter-examples need.
double sign(double value) { return value >= 0 ? 1 : -1; }

double half_square_norm(point x) {
  double sum = 0;
  for (float const value : x) sum += static_cast<double>(value) * static_cast<double>(value);
  return sum / 2;
}

// x/4 on [−1, 1]; g = 4 with probability ¼, else −1: the mean is ¼, the mean of the signs −½.
double ce1_objective(point x) { return static_cast<double>(x[0]) / 4; }
void ce1_gradient(point, std::size_t, random_stream random, std::span<double> g) {
  g[0] = random.below(4) == 0 ? 4 : -1;
}

// ε|x₁ + x₂| + |x₁ − x₂| from (1, 1): every sign vector is ±(1, −1), so x₁ + x₂ stays 2 and f ≥ 2ε.
double ce2_objective(point x) {
  double const a = static_cast<double>(x[0]);
  double const b = static_cast<double>(x[1]);
  return epsilon * std::abs(a + b) + std::abs(a - b);
}
void ce2_gradient(point x, std::size_t, random_stream, std::span<double> g) {
  double const along = epsilon * sign(static_cast<double>(x[0]) + static_cast<double>(x[1]));
  double const across = sign(static_cast<double>(x[0]) - static_cast<double>(x[1]));
  g[0] = along + across;
  g[1] = along - across;
}

// ⟨a₁, x⟩² + ⟨a₂, x⟩² with a = ±(1, −1) + ε(1, 1); a step sees one of the two, twice. Signs again are ±(1, −1).
constexpr std::array<std::array<double, 2>, 2> ce3_a{{{1 + epsilon, -1 + epsilon}, {-1 + epsilon, 1 + epsilon}}};
double ce3_product(std::size_t i, point x) {
  return ce3_a[i][0] * static_cast<double>(x[0]) + ce3_a[i][1] * static_cast<double>(x[1]);
}
double ce3_objective(point x) {
  double const first = ce3_product(0, x);
  double const second = ce3_product(1, x);
  return first * first + second * second;
}
void ce3_gradient(point x, std::size_t, random_stream random, std::span<double> g) {
  std::size_t const i = random.below(2);
  for (std::size_t j = 0; j < 2; ++j) g[j] = 4 * ce3_product(i, x) * ce3_a[i][j];
}

// Three workers with f_i = ⟨a_i, x⟩² + ¼‖x‖², from (1, 1, 1): each worker's largest component points away from 0.
double ce4_product(std::size_t i, point x) {
  double sum = 0;
  for (std::size_t j = 0; j < 3; ++j) sum += (i == j ? -3.0 : 2.0) * static_cast<double>(x[j]);
  return sum;
}
double ce4_objective(point x) {
  double sum = half_square_norm(x) / 2;
  for (std::size_t i = 0; i < 3; ++i) sum += ce4_product(i, x) * ce4_product(i, x) / 3;
  return sum;
}
void ce4_gradient(point x, std::size_t rank, random_stream, std::span<double> g) {
  double const product = ce4_product(rank, x);
  for (std::size_t j = 0; j < 3; ++j) {
    g[j] = 2 * product * (rank == j ? -3.0 : 2.0) + static_cast<double>(x[j]) / 2;
  }
}

// ½‖x‖², exact gradients (ce5) or N(0, 100²) noise on the first coordinate (ce10).
void ce5_gradient(point x, std::size_t, random_stream, std::span<double> g) {
  std::copy(x.begin(), x.end(), g.begin());
}
void ce10_gradient(point x, std::size_t, random_stream random, std::span<double> g) {
  std::copy(x.begin(), x.end(), g.begin());
  g[0] += 100 * random.normal();
}

struct problem {
  std::string_view name;
  std::string_view about;
  std::size_t dimension;
  std::size_t ranks;  // by default
  bool fixed_ranks;
  std::size_t steps;
  double lr;
  float start;    // every coordinate; NaN: uniform in [−1, 1), the same for every seed
  float optimum;  // every coordinate
  bool box;       // the feasible set is [−1, 1] in every coordinate
  double (*objective)(point);
  // Worker `rank`'s stochastic gradient at x, all of g.
  void (*gradient)(point x, std::size_t rank, random_stream, std::span<double> g);
};

constexpr float scattered = std::numeric_limits<float>::quiet_NaN();

constexpr std::array<problem, 6> problems{{
    {"ce1", "1-D, stochastic: signs without feedback walk to the wrong end", 1, 1, false, 20000, 0.01, 0, -1, true,
     ce1_objective, ce1_gradient},
    {"ce2", "non-smooth: signs without feedback never leave a line", 2, 1, false, 8000, 0.0005, 1, 0, false,
     ce2_objective, ce2_gradient},
    {"ce3", "smooth, stochastic: signs without feedback never leave a line", 2, 1, false, 4000, 0.005, 1, 0, false,
     ce3_objective, ce3_gradient},
    {"ce4", "three unlike workers: top-1 without feedback diverges", 3, 3, true, 4000, 0.005, 1, 0, false,
     ce4_objective, ce4_gradient},
    {"ce5", "half the squared norm of 1,000 numbers: feedback around a noisy unbiased codec diverges", 1000, 1, false,
     1500, 0.02, scattered, 0, false, half_square_norm, ce5_gradient},
    {"ce10", "heavy noise on one coordinate of 100: signs win", 100, 1, false, 1000, 0.01, 1, 0, false,
     half_square_norm, ce10_gradient},
}};

problem const& find_problem(std::string const& name) {
  auto const* const found =
      std::find_if(problems.begin(), problems.end(), [&](problem const& one) { return one.name == name; });
  if (found == problems.end()) {
    throw program_error{fmt::format(
        "{}: use one of {} (gradwire train --help says what they show)",
        name.empty() ? "--workload quadratic needs --problem" : fmt::format("--problem '{}' is not known", name),
        fmt::join(quadratic_problem_names(), ", "))};
  }
  return *found;
}

class quadratic final : public workload {
 public:
  quadratic(problem const& what, std::size_t rank, std::uint64_t seed)
      : what_{what}, rank_{rank}, seed_{seed}, gradient_(what.dimension), sum_(what.dimension) {
    random_stream random{0, draw::initial_weights, 0, 0};
    x_.name = "x";
    x_.shape = {what.dimension};
    for (std::size_t i = 0; i < what.dimension; ++i) {
      x_.values.push_back(std::isnan(what.start) ? 2 * random.uniform() - 1 : what.start);
    }
  }

  [[nodiscard]] std::span<weight> weights() override { return {&x_, 1}; }

  double forward_backward(std::size_t first, std::size_t count, gradient_sink const& sink) override {
    std::fill(sum_.begin(), sum_.end(), 0.0);
    for (std::size_t i = 0; i < count; ++i) {
      what_.gradient(x_.values, rank_, random_stream{seed_, draw::noise, first + i, 0}, gradient_);
      for (std::size_t j = 0; j < sum_.size(); ++j) sum_[j] += gradient_[j];
    }
    double const scale = static_cast<double>(sink.scale) / static_cast<double>(count);
    for (std::size_t j = 0; j < sum_.size(); ++j) sink.gradients[0][j] += static_cast<float>(scale * sum_[j]);
    sink.ready(0);
    return what_.objective(x_.values);
  }

  [[nodiscard]] std::vector<metric> evaluate() override {
    return {{"objective", what_.objective(x_.values)}, {"distance", distance()}};
  }
  void project() override {
    if (!what_.box) return;
    for (float& value : x_.values) value = std::clamp(value, -1.0f, 1.0f);
  }
  [[nodiscard]] bool hopeless() const override { return !(distance() < far_off); }

 private:
  [[nodiscard]] double distance() const {
    double sum = 0;
    for (float const value : x_.values) {
      double const off = static_cast<double>(value) - static_cast<double>(what_.optimum);
      sum += off * off;
    }
    return std::sqrt(sum);
  }

  problem const& what_;
  std::size_t rank_;
  std::uint64_t seed_;
  weight x_;
  std::vector<double> gradient_;
  std::vector<double> sum_;
};

}  // namespace

std::vector<std::string> quadratic_problem_names() {
  std::vector<std::string> names;
  for (problem const& one : problems) names.emplace_back(one.name);
  return names;
}

std::string quadratic_problems() {
  std::string text;
  for (problem const& one : problems) text += fmt::format("  {}: {}\n", one.name, one.about);
  text.pop_back();
  return text;
}

workload_factory load_quadratic(train_config const& config) {
  problem const& what = find_problem(config.problem);
  if (!config.data.empty()) throw program_error{"--workload quadratic takes no --data"};
  if (what.fixed_ranks && config.world != what.ranks) {
    throw program_error{fmt::format("--problem {} is about {} workers, not {}: use --ranks {}", what.name, what.ranks,
                                    config.world, what.ranks)};
  }
  return [&what, seed = config.seed](std::size_t rank) { return std::make_unique<quadratic>(what, rank, seed); };
}

workload_defaults quadratic_defaults(std::string const& problem_name) {
  problem const& what = find_problem(problem_name);
  return {.ranks = what.ranks,
          .steps = what.steps,
          .batch = 1,
          .eval_every = what.steps / 40,
          .lr = what.lr,
          .optimizer = "sgd"};
}

}  // namespace gradwire::program
