#pragma once
//! cudaLaunchKernelEx for the simulator: the arguments are kept with the launch, and what looks like a pointer in them
//! is looked at before the kernel runs.

#include <cstring>
#include <functional>
#include <memory>
#include <tuple>
#include <utility>
#include <vector>

namespace cuda_sim {

//! The bytes of one argument.
struct argument {
  void const* data;
  std::size_t bytes;
};

cudaError_t launch(cudaLaunchConfig_t const& config, void const* kernel, std::vector<argument> const& arguments,
                   std::function<void()> body);

}  // namespace cuda_sim

template <class... Parameters, class... Arguments>
cudaError_t cudaLaunchKernelEx(cudaLaunchConfig_t const* config, void (*kernel)(Parameters...),
                               Arguments&&... arguments) {
  auto const kept =
      std::make_shared<std::tuple<std::remove_cvref_t<Parameters>...>>(std::forward<Arguments>(arguments)...);
  std::vector<cuda_sim::argument> seen;
  std::apply([&](auto const&... one) { (seen.push_back({&one, sizeof one}), ...); }, *kept);
  return cuda_sim::launch(*config, reinterpret_cast<void const*>(kernel), seen, [=] { std::apply(kernel, *kept); });
}
