#pragma once
//! The kernels of the codecs that send every element in a type of its own. Eight elements a thread: 16 bytes of the
//! shorter type, twice 16 of the longer one.

#include <cuda_runtime.h>

#include <cstddef>
#include <span>

#include <gradwire/codec.hpp>

#include "compressors/access.cuh"
#include "compressors/cast/format.hpp"
#include "compressors/feedback/format.hpp"
#include "compressors/segments.cuh"
#include "core/cuda/launch.cuh"

namespace gradwire::cast {

//! How the work is cut. The values are the usual ones for streaming kernels, 8 blocks of 256 threads filling a
//! multiprocessor of every architecture from sm_80 on; nobody has measured others on a GPU yet.
struct policy {
  static constexpr unsigned threads = 256;
  static constexpr unsigned per_thread = 8;
  static constexpr unsigned per_multiprocessor = 8;
  static constexpr std::size_t tile = std::size_t{threads} * per_thread;
};

using floats = float[policy::per_thread];

//! Calls work(part, first element, elements) for every thread's share of every tile.
template <class F>
__device__ void for_each_share(device::part_list const& parts, std::size_t units, F&& work) {
  for (std::size_t unit = blockIdx.x; unit < units; unit += gridDim.x) {
    device::part const& part = device::part_of(parts, unit);
    std::size_t const at = (unit - part.unit) * policy::tile + std::size_t{threadIdx.x} * policy::per_thread;
    if (at >= part.count) continue;
    std::size_t const rest = part.count - at;
    work(part, at, rest < policy::per_thread ? static_cast<unsigned>(rest) : policy::per_thread);
  }
}

//! Writes x[0] … x[n) to the payload and gives back what a receiver will read; zeros behind the last element of a part.
template <class Wire>
__device__ void send(std::byte* payload, device::part const& part, std::size_t at, unsigned n, floats& x) {
  alignas(16) Wire packed[policy::per_thread] = {};
#pragma unroll
  for (unsigned i = 0; i < policy::per_thread; ++i) {
    // One NaN for all: see pack().
    packed[i] = i < n ? (x[i] == x[i] ? device::narrow<Wire>(x[i]) : pack<Wire>(x[i])) : Wire{};
    x[i] = to_float(packed[i]);
  }
  std::byte* const to = payload + part.payload + at * sizeof(Wire);
  if (n == policy::per_thread) return device::store<sizeof packed>(to, packed);
  auto const* const bytes = reinterpret_cast<std::byte const*>(packed);
#pragma unroll
  for (unsigned i = 0; i < sizeof packed; ++i) {
    if (i < encoded_bytes<Wire>(n)) to[i] = bytes[i];
  }
}

template <class Wire>
__device__ void receive(floats& x, std::byte const* payload, device::part const& part, std::size_t at, unsigned n) {
  std::byte const* const from = payload + part.payload + at * sizeof(Wire);
  alignas(16) Wire packed[policy::per_thread];
  if (n == policy::per_thread) {
    device::load<sizeof packed>(packed, from);
  } else {
    auto* const bytes = reinterpret_cast<std::byte*>(packed);
#pragma unroll
    for (unsigned i = 0; i < sizeof packed; ++i) bytes[i] = i < n * sizeof(Wire) ? from[i] : std::byte{0};
  }
#pragma unroll
  for (unsigned i = 0; i < policy::per_thread; ++i) x[i] = to_float(packed[i]);
}

//! Sends x + the residual where there is one, which keeps what was lost.
template <class Wire>
__device__ void send_with_feedback(std::byte* payload, float* residual, device::part const& part, std::size_t at,
                                   unsigned n, floats& x, floats const& kept) {
  floats sent;
#pragma unroll
  for (unsigned i = 0; i < policy::per_thread; ++i) sent[i] = x[i];
  send<Wire>(payload, part, at, n, sent);
#pragma unroll
  for (unsigned i = 0; i < policy::per_thread; ++i) x[i] = feedback::residual(x[i], sent[i], kept[i]);
  device::store_elements(residual + part.residual + at, x, n);
}

template <class Wire, class T>
__global__ void __launch_bounds__(policy::threads)
    encode_kernel(__grid_constant__ device::part_list const parts, std::size_t units, T const* in, float* residual,
                  std::byte* payload) {
  for_each_share(parts, units, [&](device::part const& part, std::size_t at, unsigned n) {
    floats x = {};
    device::load_elements(x, in + part.gradient + at, n);
    if (residual == nullptr) return send<Wire>(payload, part, at, n, x);
    floats kept = {};
    device::load_elements(kept, residual + part.residual + at, n);
#pragma unroll
    for (unsigned i = 0; i < policy::per_thread; ++i) x[i] = x[i] + kept[i];
    send_with_feedback<Wire>(payload, residual, part, at, n, x, kept);
  });
}

template <class Wire, class T, bool Add>
__global__ void __launch_bounds__(policy::threads)
    decode_kernel(__grid_constant__ device::part_list const parts, std::size_t units, std::byte const* payload, T* out,
                  float scale) {
  for_each_share(parts, units, [&](device::part const& part, std::size_t at, unsigned n) {
    floats x;
    receive<Wire>(x, payload, part, at, n);
    floats sum = {};
    if constexpr (Add) device::load_elements(sum, out + part.gradient + at, n);
#pragma unroll
    for (unsigned i = 0; i < policy::per_thread; ++i) {
      x[i] = Add ? feedback::add(sum[i], scale, x[i]) : scale * x[i];
    }
    device::store_elements(out + part.gradient + at, x, n);
  });
}

template <class Wire>
__global__ void __launch_bounds__(policy::threads)
    reduce_kernel(__grid_constant__ device::part_list const parts, std::size_t units,
                  __grid_constant__ device::payload_list const payloads, float scale, float* residual,
                  std::byte* payload) {
  for_each_share(parts, units, [&](device::part const& part, std::size_t at, unsigned n) {
    floats sum;
    receive<Wire>(sum, payloads[0], part, at, n);
    for (unsigned p = 1; p < payloads.count; ++p) {
      floats x;
      receive<Wire>(x, payloads[p], part, at, n);
#pragma unroll
      for (unsigned i = 0; i < policy::per_thread; ++i) sum[i] += x[i];
    }
    if (residual == nullptr) {
#pragma unroll
      for (unsigned i = 0; i < policy::per_thread; ++i) sum[i] = scale * sum[i];
      return send<Wire>(payload, part, at, n, sum);
    }
    floats kept = {};
    device::load_elements(kept, residual + part.residual + at, n);
#pragma unroll
    for (unsigned i = 0; i < policy::per_thread; ++i) sum[i] = feedback::add(kept[i], scale, sum[i]);
    send_with_feedback<Wire>(payload, residual, part, at, n, sum, kept);
  });
}

//! The functions of a codec that sends every element as a `Wire`.
template <class Wire>
struct on_cuda {
  static device::bucket bucket_of(std::span<segment const> segments) {
    return device::make_bucket(
        segments, [](std::size_t count) { return (count + policy::tile - 1) / policy::tile; }, encoded_bytes<Wire>);
  }

  //! Launches `kernel` with the parts and units of a bucket, and then `arguments`.
  template <class Kernel, class... Arguments>
  static void run(exec const& on, char const* what, Kernel kernel, std::span<segment const> segments,
                  Arguments const&... arguments) {
    device::bucket const bucket = bucket_of(segments);
    if (bucket.units == 0) return;
    device::shipped_parts const parts{on, bucket.parts};
    cuda::launch(on, what, kernel, cuda::grid_for(on, bucket.units, policy::per_multiprocessor), policy::threads,
                 parts.view(), bucket.units, arguments...);
  }

  static void encode(exec const& on, param_values const& params, const_elements in, std::span<segment const> segments,
                     random_key key, std::byte* payload) {
    encode_with_feedback(on, params, in, nullptr, segments, key, payload);
  }

  static void encode_with_feedback(exec const& on, param_values const&, const_elements grad, float* residual,
                                   std::span<segment const> segments, random_key, std::byte* payload) {
    with_type(grad, [&]<class T>(T const* in) {
      run(on, "a cast's encode", encode_kernel<Wire, T>, segments, in, residual, payload);
    });
  }

  template <bool Add>
  static void decode(exec const& on, param_values const&, std::byte const* payload, std::span<segment const> segments,
                     elements out, float scale) {
    with_type(out, [&]<class T>(T* to) {
      run(on, "a cast's decode", decode_kernel<Wire, T, Add>, segments, payload, to, scale);
    });
  }

  static void reduce_encode(exec const& on, param_values const&, std::span<std::byte const* const> payloads,
                            float scale, float* residual, std::span<segment const> segments, random_key,
                            std::byte* payload) {
    device::shipped_payloads const sources{on, payloads};
    run(on, "a cast's reduce_encode", reduce_kernel<Wire>, segments, sources.view(), scale, residual, payload);
  }

  static constexpr codec_functions functions{encode, encode_with_feedback, decode<false>, decode<true>, reduce_encode};
};

}  // namespace gradwire::cast
