#pragma once
//! A small set of parameters with gradients that any rank can compute for any other, so that tests know every sum.

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include <gradwire/dtype.hpp>
#include <gradwire/reducer.hpp>

namespace gradwire::test {

//! A whole number of 64ths in [-4, 4): sums of hundreds of them are exact in f32, single ones in f16 (10 bits), so
//! means over 2^k ranks are exact in any order of summation.
[[nodiscard]] inline float toy_gradient(std::size_t rank, std::size_t step, std::size_t tensor, std::size_t element) {
  std::uint64_t z = (rank + 1) * 0x9e3779b97f4a7c15u + (step + 1) * 0xbf58476d1ce4e5b9u +
                    (tensor + 1) * 0x94d049bb133111ebu + element * 0xd6e8feb86659fd93u;
  z = (z ^ (z >> 32)) * 0xd6e8feb86659fd93u;
  z = (z ^ (z >> 32)) * 0xd6e8feb86659fd93u;
  return static_cast<float>(static_cast<std::int64_t>(z >> 55) - 256) / 64.0F;
}

[[nodiscard]] inline double toy_mean(std::size_t ranks, std::size_t step, std::size_t tensor, std::size_t element) {
  double sum = 0;
  for (std::size_t rank = 0; rank < ranks; ++rank)
    sum += static_cast<double>(toy_gradient(rank, step, tensor, element));
  return sum / static_cast<double>(ranks);
}

inline void store(void* at, dtype type, std::size_t index, float value) {
  switch (type) {
    case dtype::f32: static_cast<float*>(at)[index] = value; return;
    case dtype::f16: static_cast<f16*>(at)[index] = to_f16(value); return;
    case dtype::bf16: static_cast<bf16*>(at)[index] = to_bf16(value); return;
  }
}

[[nodiscard]] inline float load(void const* at, dtype type, std::size_t index) {
  switch (type) {
    case dtype::f32: return static_cast<float const*>(at)[index];
    case dtype::f16: return to_float(static_cast<f16 const*>(at)[index]);
    case dtype::bf16: break;
  }
  return to_float(static_cast<bf16 const*>(at)[index]);
}

[[nodiscard]] inline std::size_t count_of(parameter const& of) {
  std::size_t count = 1;
  for (std::size_t const extent : of.shape) count *= extent;
  return count;
}

//! A scalar, a vector, an empty tensor, odd sizes and matrices.
[[nodiscard]] inline std::vector<parameter> toy_parameters(dtype type = dtype::f32) {
  std::vector<parameter> parameters;
  auto const add = [&](std::string name, std::vector<std::size_t> shape) {
    parameters.push_back({std::move(name), std::move(shape), type, nullptr});
  };
  add("scalar", {});
  add("layer0.weight", {33, 65});
  add("layer0.bias", {33});
  add("empty", {0, 4});
  add("layer1.weight", {64, 48});
  add("layer1.bias", {5});
  add("odd", {7, 11, 13});
  return parameters;
}

inline void fill_gradient(reducer& with, std::vector<parameter> const& parameters, std::size_t tensor, std::size_t rank,
                          std::size_t step) {
  for (std::size_t i = 0; i < count_of(parameters[tensor]); ++i) {
    store(with.gradient(tensor), parameters[tensor].type, i, toy_gradient(rank, step, tensor, i));
  }
}

//! Several buckets of the toy parameters, in several chunks.
[[nodiscard]] inline reducer_options small_buckets(char const* method) {
  return {.method = spec::parse(method),
          .min_numel = 64,
          .first_bucket_bytes = 256,
          .bucket_bytes = 6000,
          .chunk_bytes = 2500,
          .seed = 11};
}

//! A step as backward does it: gradients appear from the last parameter to the first.
inline void toy_step(reducer& with, std::vector<parameter> const& parameters, std::size_t rank, std::size_t step) {
  for (std::size_t tensor = parameters.size(); tensor-- > 0;) {
    fill_gradient(with, parameters, tensor, rank, step);
    with.mark_ready(tensor);
  }
  with.synchronize();
}

//! All gradients, one after another, as f32.
[[nodiscard]] inline std::vector<float> all_gradients(reducer& with, std::vector<parameter> const& parameters) {
  std::vector<float> result;
  for (std::size_t tensor = 0; tensor < parameters.size(); ++tensor) {
    for (std::size_t i = 0; i < count_of(parameters[tensor]); ++i) {
      result.push_back(load(with.gradient(tensor), parameters[tensor].type, i));
    }
  }
  return result;
}

//! All residuals, one after another.
[[nodiscard]] inline std::vector<float> all_residuals(reducer const& with, std::size_t parameters) {
  std::vector<float> result;
  for (std::size_t tensor = 0; tensor < parameters; ++tensor) {
    auto const residual = with.residual(tensor);
    result.insert(result.end(), residual.begin(), residual.end());
  }
  return result;
}

}  // namespace gradwire::test
