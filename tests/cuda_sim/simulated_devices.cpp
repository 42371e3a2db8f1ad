#include <array>

#include "tests/compressors/cuda_device.hpp"
#include "tests/cuda_sim/cuda_sim.hpp"

namespace gradwire::test {
namespace {

class simulated final : public cuda_device {
 public:
  simulated(std::string name, cuda_sim::options const& options) : cuda_device{std::move(name)}, options_{options} {}
  void prepare() override { cuda_sim::configure(options_); }

 private:
  cuda_sim::options options_;
};

}  // namespace

std::span<device* const> devices() {
  static simulated lazy{"lazy_backward", {.seed = 2, .pace = cuda_sim::pace::lazy, .order = cuda_sim::order::backward}};
  static simulated random{
      "random", {.seed = 3, .pace = cuda_sim::pace::random, .order = cuda_sim::order::random, .closed = false}};
  static std::array<device*, 2> const all{&lazy, &random};
  return all;
}

}  // namespace gradwire::test
