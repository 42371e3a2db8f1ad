// Data-parallel training of a small linear model, with gradients averaged by gradwire while backward still runs.
//
//   example_train_loop [SPEC]              four ranks as threads of this process; SPEC as in "onebit+ef" (the default)
//   torchrun or mpirun or srun ... example_train_loop [SPEC]     one rank of the world that the launcher made
//
// The lines that gradwire needs are marked with (gradwire).
#include <cmath>
#include <cstdio>
#include <exception>
#include <random>
#include <span>
#include <string>
#include <vector>

#include <gradwire/gradwire.hpp>  // (gradwire)

namespace {

constexpr std::size_t inputs = 64;
constexpr std::size_t outputs = 32;
constexpr std::size_t batch = 32;
constexpr std::size_t steps = 400;
constexpr float rate = 0.1F;

// y = W·x + b with the weights that training has to find.
struct teacher {
  std::vector<float> weight = std::vector<float>(outputs * inputs);
  std::vector<float> bias = std::vector<float>(outputs);

  teacher() {
    std::mt19937 random{1};
    std::normal_distribution<float> normal;
    for (float& each : weight) each = normal(random);
    for (float& each : bias) each = normal(random);
  }
};

// Adds the gradients of half the mean squared error over one batch of this rank's own data; returns that error.
float backward(teacher const& truth, std::span<float const> weight, std::span<float const> bias,
               std::span<float> weight_gradient, std::span<float> bias_gradient, std::mt19937& random) {
  std::normal_distribution<float> normal;
  float error = 0;
  std::vector<float> x(inputs);
  for (std::size_t sample = 0; sample < batch; ++sample) {
    for (float& each : x) each = normal(random);
    for (std::size_t o = 0; o < outputs; ++o) {
      float difference = bias[o] - truth.bias[o];
      for (std::size_t i = 0; i < inputs; ++i) {
        difference += (weight[o * inputs + i] - truth.weight[o * inputs + i]) * x[i];
      }
      difference /= static_cast<float>(batch);
      for (std::size_t i = 0; i < inputs; ++i) weight_gradient[o * inputs + i] += difference * x[i];
      bias_gradient[o] += difference;
      error += difference * difference * static_cast<float>(batch) / 2;
    }
  }
  return error;
}

bool train(gradwire::communicator& comm, std::string const& method) {
  teacher const truth;
  std::vector<float> weight(outputs * inputs);
  std::vector<float> bias(outputs);
  std::mt19937 random{static_cast<unsigned>(100 + comm.rank())};  // every rank sees data of its own

  std::vector<gradwire::parameter> const parameters{{"weight", {outputs, inputs}}, {"bias", {outputs}}};  // (gradwire)
  gradwire::reducer reducer{comm, parameters, {.method = gradwire::spec::parse(method)}};                 // (gradwire)
  std::span<float> const weight_gradient{static_cast<float*>(reducer.gradient(0)), weight.size()};        // (gradwire)
  std::span<float> const bias_gradient{static_cast<float*>(reducer.gradient(1)), bias.size()};            // (gradwire)

  float first = 0;
  float last = 0;
  for (std::size_t step = 0; step < steps; ++step) {
    reducer.zero_gradients();  // (gradwire)
    last = backward(truth, weight, bias, weight_gradient, bias_gradient, random);
    reducer.mark_ready(1);  // (gradwire) a real backward does this layer by layer, as each gradient is complete
    reducer.mark_ready(0);  // (gradwire)
    reducer.synchronize();  // (gradwire) from here on the gradients are the means over all ranks
    for (std::size_t i = 0; i < weight.size(); ++i) weight[i] -= rate * weight_gradient[i];
    for (std::size_t i = 0; i < bias.size(); ++i) bias[i] -= rate * bias_gradient[i];
    if (step == 0) first = last;
  }

  bool const learned = std::isfinite(last) && last < first / 10;
  if (comm.rank() == 0) {
    auto const stats = reducer.stats();
    std::printf("%s on %zu ranks over %s: error %.4g -> %.4g in %zu steps\n", method.c_str(), comm.size(),
                std::string{comm.transport()}.c_str(), static_cast<double>(first), static_cast<double>(last), steps);
    if (comm.size() > 1) {
      std::printf("%zu bytes sent by each rank, %.1f times fewer bytes than dense f32\n", stats.wire_bytes,
                  stats.raw_bytes / static_cast<double>(stats.wire_bytes));
    }
    if (!learned)
      std::fprintf(stderr, "the error did not fall to a tenth: try another method than %s\n", method.c_str());
  }
  return learned;
}

}  // namespace

int main(int argc, char** argv) {
  try {
    std::string const method = argc > 1 ? argv[1] : "onebit+ef";
    if (auto const launch = gradwire::detect_launch()) {  // (gradwire)
      auto const comm =
          gradwire::make_gloo({.rank = launch->rank, .size = launch->world, .rendezvous = launch->rendezvous});
      return train(*comm, method) ? 0 : 1;
    }
    bool learned = false;
    gradwire::run_ranks(4, [&](gradwire::communicator& comm) {  // (gradwire)
      bool const own = train(comm, method);
      if (comm.rank() == 0) learned = own;
    });
    return learned ? 0 : 1;
  } catch (std::exception const& failure) {
    std::fprintf(stderr, "example_train_loop: %s\n", failure.what());
    return 2;
  }
}
