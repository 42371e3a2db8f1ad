#include <gradwire/codec.hpp>

#include <cuda_runtime.h>

#include <cstddef>
#include <cstdint>
#include <span>

#include "compressors/gradient.hpp"
#include "compressors/topk/payload.cuh"
#include "compressors/topk/select.cuh"
#include "core/cuda/launch.cuh"

namespace gradwire {
namespace topk {
namespace {

std::uint64_t damage() {
  static std::uint64_t const text = cuda::fault_text(
      "topk: the segment at byte ",
      " of a payload holds no k rising indices below its element count with finite values, or bits that are not used; "
      "these bytes did not come from topk with these parameters and this element count");
  return text;
}

void clear(exec const& on, cuda::device_buffer const& memory) {
  cuda::check(cudaMemsetAsync(memory.data(), 0, memory.size(), cuda::native(on.stream)), "clearing scratch");
}

// The wanted rank of every segment, in an array of kernel parameters: see freight.
__global__ void start_kernel(__grid_constant__ task_list const tasks, state* states) {
  for (unsigned i = threadIdx.x; i < tasks.count; i += blockDim.x) states[i] = {0, 0, tasks[i].shape.kept};
}

template <class T>
T* as(cuda::device_buffer const& memory) {
  return reinterpret_cast<T*>(memory.data());
}

//! Three digits, two launches each; then the ranks, and the payload. However many segments: ten launches.
template <class T>
void encode_from(exec const& on, param_values const& params, source<T> const& from, std::span<segment const> segments,
                 std::byte* payload) {
  plan const work{params, segments};
  if (work.tasks.empty()) return;
  auto const count = static_cast<unsigned>(work.tasks.size());
  shipped_tasks const tasks{on, work.tasks};
  cuda::device_buffer const states{count * sizeof(state), on};
  cuda::device_buffer const counts{std::size_t{count} * bins * sizeof(unsigned long long), on};
  cuda::device_buffer const kept{work.tiles * sizeof(std::uint32_t), on};
  cuda::device_buffer const sums{work.tiles * sizeof(before), on};
  cuda::device_buffer const indices{work.entries * sizeof(std::size_t), on};
  unsigned const grid = cuda::grid_for(on, work.tiles, policy::per_multiprocessor);
  auto* const found = as<state>(states);
  auto* const bin_counts = as<unsigned long long>(counts);

  clear(on, counts);
  cuda::launch(on, "topk: start", start_kernel, 1, policy::threads, tasks.view(), found);
  for (digit const& next : digits) {
    cuda::launch(on, "topk: count digits", count_digits_kernel<T>, grid, policy::threads, tasks.view(), work.tiles,
                 from, next, found, bin_counts);
    cuda::launch(on, "topk: choose a digit", choose_digit_kernel, count, policy::threads, next, &next == digits, found,
                 bin_counts);
  }
  cuda::launch(on, "topk: count tiles", count_tiles_kernel<T>, grid, policy::threads, tasks.view(), work.tiles, from,
               found, as<std::uint32_t>(kept));
  cuda::launch(on, "topk: add tiles", add_tiles_kernel, count, policy::threads, tasks.view(), as<std::uint32_t>(kept),
               as<before>(sums));
  cuda::launch(on, "topk: keep", keep_kernel<T>, grid, policy::threads, tasks.view(), work.tiles, from, found,
               as<before>(sums), as<std::size_t>(indices), payload);
  cuda::launch(on, "topk: write", write_kernel, cuda::grid_for(on, work.chunks, policy::per_multiprocessor),
               policy::threads, tasks.view(), work.chunks, found, as<std::size_t>(indices), payload);
}

void encode_with_feedback(exec const& on, param_values const& params, const_elements grad, float* residual,
                          std::span<segment const> segments, random_key, std::byte* payload) {
  with_type(grad, [&]<class T>(T const* in) {
    encode_from(on, params, source<T>{in, 1.0f, residual}, segments, payload);
  });
}

void encode(exec const& on, param_values const& params, const_elements in, std::span<segment const> segments,
            random_key key, std::byte* payload) {
  encode_with_feedback(on, params, in, nullptr, segments, key, payload);
}

template <bool Add>
void decode(exec const& on, param_values const& params, std::byte const* payload, std::span<segment const> segments,
            elements out, float scale) {
  plan const work{params, segments};
  if (work.tasks.empty()) return;
  auto const count = static_cast<unsigned>(work.tasks.size());
  cuda::fault_word const fault{cuda::fault_word_of(on.stream), damage()};
  shipped_tasks const tasks{on, work.tasks};
  cuda::device_buffer const contents{count * sizeof(content), on};
  cuda::device_buffer const ranks{work.bitmap * sizeof(unsigned long long), on};
  auto* const found = as<content>(contents);
  auto* const before_words = as<unsigned long long>(ranks);
  cuda::launch(on, "topk: index", index_kernel, count, policy::threads, tasks.view(), payload, found, before_words,
               fault);
  with_type(out, [&]<class T>(T* to) {
    cuda::launch(on, "topk: fill", fill_kernel<T, Add>, cuda::grid_for(on, work.tiles, policy::per_multiprocessor),
                 policy::threads, tasks.view(), work.tiles, found, to, scale);
    cuda::launch(on, "topk: scatter", scatter_kernel<T, Add>,
                 cuda::grid_for(on, work.chunks, policy::per_multiprocessor), policy::threads, tasks.view(),
                 work.chunks, payload, found, before_words, to, scale, fault);
  });
}

//! The sum is dense: it is added up in scratch, payload after payload, and selected from there.
void reduce_encode(exec const& on, param_values const& params, std::span<std::byte const* const> payloads, float scale,
                   float* residual, std::span<segment const> segments, random_key, std::byte* payload) {
  std::vector<segment> packed(segments.begin(), segments.end());
  std::size_t total = 0;
  for (segment& one : packed) {
    one.offset = total;
    total += one.count;
  }
  if (total == 0) return;
  cuda::device_buffer const sum{total * sizeof(float), on};
  clear(on, sum);
  for (std::byte const* const one : payloads) {
    decode<true>(on, params, one, packed, {sum.data(), dtype::f32}, 1.0f);
  }
  encode_from(on, params, source<float>{as<float const>(sum), scale, residual}, packed, payload);
}

constexpr codec_functions functions{encode, encode_with_feedback, decode<false>, decode<true>, reduce_encode};

}  // namespace
}  // namespace topk

namespace registry {

codec_functions const& topk_cuda() { return topk::functions; }

}  // namespace registry
}  // namespace gradwire
