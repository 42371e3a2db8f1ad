#include "tests/cuda_sim/faults.hpp"

#include <cuda_runtime.h>

#include <cstddef>

#include "core/cuda/shared.cuh"

namespace cuda_sim {

constexpr unsigned threads = 64;
constexpr unsigned blocks = 4;
constexpr std::size_t elements = threads * blocks;

// Three rounds through shared memory: round r adds r of the thread 32 further on. Then every thread passes its sum to
// its neighbour in the warp, 3 in all, and twice that is written.
__global__ void rounds_kernel(float const* in, float* out, unsigned* word, plant fault) {
  GW_SHARED_ARRAY(float, cells, 64);
  unsigned const t = threadIdx.x;
  std::size_t const i = std::size_t{blockIdx.x} * blockDim.x + t;
  float sum = 0;
  for (int round = 0; round < 3; ++round) {
    cells[t] = in[i] + static_cast<float>(round);
    if (fault != plant::missing_barrier) __syncthreads();
    sum += cells[(t + 32) % 64];
    if (fault != plant::missing_loop_barrier) __syncthreads();
  }
  cells[t] = sum;
  if (fault != plant::missing_warp_sync) __syncwarp();
  sum += cells[(t & ~31u) | ((t + 1) & 31u)];
  if (fault == plant::blocks_write_one_word && t == 0) word[0] = blockIdx.x;
  if (fault == plant::spin_on_another_block && blockIdx.x == 0) {
    while (atomicAdd(&word[1], 0u) == 0) {
    }
  }
  if (fault == plant::spin_on_another_block) atomicAdd(&word[1], 1u);
  out[i] = sum;
}

__global__ void memory_kernel(float const* in, float* out, plant fault) {
  GW_SHARED_ARRAY(float, cells, 64);
  GW_SHARED_ARRAY(float, short_cells, 63);
  GW_SHARED_ARRAY(float, unwritten, 64);
  __shared__ float plain[64];
  unsigned const t = threadIdx.x;
  std::size_t const i = std::size_t{blockIdx.x} * blockDim.x + t;
  cells[t] = in[i];
  if (fault == plant::unwritten_shared_memory) cells[t] += unwritten[t];
  if (fault == plant::shared_array_overrun) short_cells[t] = 1;
  if (fault == plant::dynamic_shared_overrun) static_cast<float*>(shared_dynamic())[t + 1] = 1;
  plain[t + (fault == plant::plain_shared_overrun ? 1 : 0)] = 0;
  cells[t] += plain[t];
  if (fault == plant::global_write_past_end) out[i + 1] = 1;
  if (fault == plant::global_read_past_end) cells[t] += in[i + 1];
  if (fault == plant::misaligned_vector && t < 32) {
    cells[t] += reinterpret_cast<float4 const*>(in + 1)[t % 2].x * 0;
  }
  if (fault != plant::global_write_past_end) out[i] = cells[t] + 6;
}

__global__ void barrier_kernel(float* out, plant fault) {
  unsigned const t = threadIdx.x;
  if (fault == plant::divergent_barrier) {
    if (t < 32) {
      __syncthreads();
    } else {
      __syncthreads();
    }
  }
  if (fault == plant::barrier_after_return) {
    if (t == 7) return;
    __syncthreads();
  }
  if (fault == plant::lanes_missing && t % 32 < 16) static_cast<void>(__ballot_sync(0xffffffffu, 1));
  if (fault == plant::lane_left_out) static_cast<void>(__ballot_sync(0xfffffffeu, 1));
  if (fault == plant::shuffle_from_outside && t < 16) static_cast<void>(__shfl_sync(0xffffu, t, 20));
  out[std::size_t{blockIdx.x} * blockDim.x + t] = 6;
}

struct wrapped {
  float* out;
  float value;
};

__global__ void set_kernel(wrapped to) { to.out[std::size_t{blockIdx.x} * blockDim.x + threadIdx.x] = to.value; }
__global__ void copy_kernel(float const* from, float* to) {
  std::size_t const i = std::size_t{blockIdx.x} * blockDim.x + threadIdx.x;
  to[i] = from[i];
}

namespace {

template <class T>
T* device_array(std::size_t length) {
  void* memory = nullptr;
  static_cast<void>(cudaMalloc(&memory, length * sizeof(T)));
  return static_cast<T*>(memory);
}

cudaStream_t new_stream() {
  cudaStream_t stream = nullptr;
  static_cast<void>(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking));
  return stream;
}

cudaEvent_t new_event() {
  cudaEvent_t event = nullptr;
  static_cast<void>(cudaEventCreateWithFlags(&event, cudaEventDisableTiming));
  return event;
}

// What all programs start from.
struct bench {
  cudaStream_t stream = new_stream();
  cudaStream_t second = new_stream();
  float* in = device_array<float>(elements);
  float* out = device_array<float>(elements);
  unsigned* word = device_array<unsigned>(2);
  float* host = nullptr;
  cudaLaunchConfig_t config{};

  bench() {
    void* memory = nullptr;
    static_cast<void>(cudaHostAlloc(&memory, elements * sizeof(float), cudaHostAllocMapped));
    host = static_cast<float*>(memory);
    config.gridDim = dim3{blocks};
    config.blockDim = dim3{threads};
    config.stream = stream;
    static_cast<void>(cudaMemsetAsync(in, 0, elements * sizeof(float), stream));
    static_cast<void>(cudaMemsetAsync(word, 0, 2 * sizeof(unsigned), stream));
    static_cast<void>(cudaStreamSynchronize(stream));
  }
  ~bench() {
    for (void* const memory : {static_cast<void*>(in), static_cast<void*>(out), static_cast<void*>(word)}) {
      static_cast<void>(cudaFree(memory));
    }
    static_cast<void>(cudaFreeHost(host));
    static_cast<void>(cudaStreamDestroy(stream));
    static_cast<void>(cudaStreamDestroy(second));
  }
  bench(bench const&) = delete;
  bench& operator=(bench const&) = delete;

  void set(float* to, float value, cudaStream_t on) {
    config.stream = on;
    static_cast<void>(cudaLaunchKernelEx(&config, set_kernel, wrapped{to, value}));
    config.stream = stream;
  }
  void copy(float const* from, float* to, cudaStream_t on) {
    config.stream = on;
    static_cast<void>(cudaLaunchKernelEx(&config, copy_kernel, from, to));
    config.stream = stream;
  }
  void order(cudaStream_t before, cudaStream_t after) {
    cudaEvent_t const event = new_event();
    static_cast<void>(cudaEventRecord(event, before));
    static_cast<void>(cudaStreamWaitEvent(after, event, 0));
    static_cast<void>(cudaEventDestroy(event));
  }
};

void run_around(bench& b, plant fault) {
  float on_host[1] = {};
  switch (fault) {
    case plant::host_reads_device_memory: b.host[0] = *const_cast<float volatile*>(b.out); break;
    case plant::host_pointer_to_kernel: b.copy(on_host, b.out, b.stream); break;
    case plant::host_pointer_in_struct: b.set(on_host, 6, b.stream); break;
    case plant::memory_of_another_device: {
      static_cast<void>(cudaSetDevice(1));
      cudaStream_t const other = new_stream();
      b.copy(b.in, b.out, other);
      break;
    }
    case plant::stream_of_another_device:
      static_cast<void>(cudaSetDevice(1));
      b.set(b.out, 6, b.stream);
      break;
    case plant::default_stream: b.set(b.out, 6, nullptr); break;
    case plant::pageable_copy:
      static_cast<void>(cudaMemcpyAsync(on_host, b.out, sizeof(float), cudaMemcpyDeviceToHost, b.stream));
      break;
    case plant::copy_past_end:
      static_cast<void>(cudaMemcpyAsync(b.host, b.out + 1, elements * sizeof(float), cudaMemcpyDeviceToHost, b.stream));
      break;
    case plant::copy_the_wrong_way:
      static_cast<void>(cudaMemcpyAsync(b.out, b.in, sizeof(float), cudaMemcpyHostToDevice, b.stream));
      break;
    case plant::synchronize_in_capture:
      static_cast<void>(cudaStreamBeginCapture(b.stream, cudaStreamCaptureModeGlobal));
      static_cast<void>(cudaStreamSynchronize(b.stream));
      break;
    case plant::event_never_recorded: static_cast<void>(cudaStreamWaitEvent(b.stream, new_event(), 0)); break;
    default: break;
  }
}

// An allocation in the order of b.stream, used by b.second.
void run_allocation(bench& b, plant fault) {
  void* memory = nullptr;
  static_cast<void>(cudaMallocAsync(&memory, elements * sizeof(float), b.stream));
  auto* const x = static_cast<float*>(memory);
  if (fault != plant::use_before_allocation) b.order(b.stream, b.second);
  b.set(x, 6, b.second);
  if (fault == plant::use_before_allocation) static_cast<void>(cudaStreamSynchronize(b.second));
  b.order(b.second, b.stream);
  b.copy(x, b.out, b.stream);
  static_cast<void>(cudaFreeAsync(x, b.stream));
  if (fault == plant::freed_twice) static_cast<void>(cudaFreeAsync(x, b.stream));
  if (fault == plant::use_after_free) b.copy(x, b.out, b.stream);
}

// b.stream writes, b.second reads and writes in turn.
void run_streams(bench& b, plant fault) {
  b.set(b.in, 6, b.stream);
  if (fault != plant::consumer_does_not_wait) b.order(b.stream, b.second);
  b.copy(b.in, b.out, b.second);
  if (fault != plant::writer_overtakes_reader) b.order(b.second, b.stream);
  b.set(b.in, 7, b.stream);
  if (fault == plant::writer_overtakes_reader) static_cast<void>(cudaStreamSynchronize(b.stream));
  static_cast<void>(cudaMemcpyAsync(b.host, b.out, elements * sizeof(float), cudaMemcpyDeviceToHost, b.second));
  if (fault != plant::host_does_not_wait) static_cast<void>(cudaStreamSynchronize(b.second));
}

}  // namespace

std::vector<float> run(plant fault) {
  bench b;
  for (std::size_t i = 0; i < elements; ++i) b.host[i] = 0;
  if (fault >= plant::consumer_does_not_wait || fault == plant::nothing) {
    run_streams(b, fault);
    std::vector<float> const result(b.host, b.host + threads);
    if (fault != plant::nothing) return result;
    if (result != std::vector<float>(threads, 6.0f)) return result;
    b.set(b.in, 0, b.stream);
  }
  if (fault < plant::unwritten_shared_memory || fault == plant::spin_on_another_block) {
    static_cast<void>(cudaLaunchKernelEx(&b.config, rounds_kernel, b.in, b.out, b.word, fault));
  } else if (fault < plant::divergent_barrier) {
    b.config.dynamicSmemBytes = threads * sizeof(float);
    static_cast<void>(cudaLaunchKernelEx(&b.config, memory_kernel, b.in, b.out, fault));
  } else if (fault < plant::spin_on_another_block) {
    static_cast<void>(cudaLaunchKernelEx(&b.config, barrier_kernel, b.out, fault));
  } else if (fault >= plant::use_after_free && fault <= plant::freed_twice) {
    run_allocation(b, fault);
  } else {
    run_around(b, fault);
  }
  static_cast<void>(cudaMemcpyAsync(b.host, b.out, elements * sizeof(float), cudaMemcpyDeviceToHost, b.stream));
  unsigned* const last = reinterpret_cast<unsigned*>(b.host + threads);
  static_cast<void>(cudaMemcpyAsync(last, b.word, sizeof(unsigned), cudaMemcpyDeviceToHost, b.stream));
  static_cast<void>(cudaStreamSynchronize(b.stream));
  std::vector<float> result(b.host, b.host + threads);
  if (fault == plant::blocks_write_one_word) result.push_back(static_cast<float>(*last));
  return result;
}

}  // namespace cuda_sim
