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

namespace cuda_sim {

//! What is looked at of an argument. Padding may hold anything, an old pointer too: where it cannot be cleared, only
//! arguments that are pointers are looked at.
template <class T>
argument seen_of(T& one) {
#if defined(__has_builtin) && __has_builtin(__builtin_clear_padding)
  __builtin_clear_padding(&one);
  return {&one, sizeof one};
#else
  return {&one, std::is_pointer_v<T> ? sizeof one : 0};
#endif
}

}  // namespace cuda_sim

template <class... Parameters, class... Arguments>
cudaError_t cudaLaunchKernelEx(cudaLaunchConfig_t const* config, void (*kernel)(Parameters...),
                               Arguments&&... arguments) {
  auto const kept =
      std::make_shared<std::tuple<std::remove_cvref_t<Parameters>...>>(std::forward<Arguments>(arguments)...);
  std::vector<cuda_sim::argument> seen;
  std::apply([&](auto&... one) { (seen.push_back(cuda_sim::seen_of(one)), ...); }, *kept);
  return cuda_sim::launch(*config, reinterpret_cast<void const*>(kernel), seen, [=] { std::apply(kernel, *kept); });
}
