#pragma once
//! The kernels that codecs share which encode every block of a segment on its own: what blocks.hpp is on the CPU. A
//! team of threads takes a block into shared memory (a tile), looks at it as often as the codec has to, and leaves
//! there what was lost: gradient and residual are read from memory once and the residual is written once, 16 bytes at a
//! time. Only blocks of more than 8,192 elements do not fit and are read again, from the second-level cache.

#include <cuda_runtime.h>

#include <cstddef>
#include <cstdint>
#include <span>

#include <gradwire/codec.hpp>

#include "compressors/access.cuh"
#include "compressors/block.hpp"
#include "compressors/feedback/format.hpp"
#include "compressors/segments.cuh"
#include "compressors/team.cuh"
#include "core/cuda/faults.cuh"
#include "core/cuda/launch.cuh"
#include "core/cuda/shared.cuh"

namespace gradwire::device {

//! Four floats, so that a tile is aligned to 16 bytes.
struct alignas(16) quad {
  float values[4];
};

//! A team's shared memory: the block, or a piece of it, as floats; and bytes for what is made of it.
struct workplace {
  float* tile;
  std::uint32_t* staging;  //!< a byte for each float of the tile
};

[[nodiscard]] __device__ inline unsigned part_width(std::size_t rest, unsigned width) {
  return rest < width ? static_cast<unsigned>(rest) : width;
}

//! Calls work(i, n) for this thread's vectors of `Width` elements among `count`, the last one having n < Width.
template <unsigned Width, bool Wide, class F>
__device__ void for_each_vector(team<Wide> const& threads, unsigned count, F&& work) {
  for (unsigned i = threads.rank() * Width; i < count; i += team<Wide>::size * Width) {
    work(i, part_width(count - i, Width));
  }
}

// ---- What is encoded

//! Writes what was lost from the tile to the residual.
template <bool Wide>
__device__ void keep_loss(team<Wide> const& threads, float const* tile, unsigned count, float* residual) {
  for_each_vector<4>(threads, count, [&](unsigned i, unsigned n) {
    float x[4] = {};
    load_elements(x, tile + i, n);
    store_elements(residual + i, x, n);
  });
}

//! Gradients, with the residual added where there is one.
template <class T>
struct gradients {
  T const* in;
  float* residual;  //!< null: none

  template <class Coder>
  [[nodiscard]] __device__ bool usable(Coder const&, blocks::block const&, bool) const {
    return true;
  }

  template <bool Wide, class Coder>
  __device__ void fill(team<Wide> const& threads, Coder const&, blocks::block const& block, std::size_t at,
                       unsigned count, float* tile) const {
    constexpr unsigned width = per_vector<T>;
    for_each_vector<width>(threads, count, [&](unsigned i, unsigned n) {
      float x[width] = {};
      load_elements(x, in + block.gradient + at + i, n);
      if (residual != nullptr) {
        float kept[width] = {};
        load_elements(kept, residual + block.residual + at + i, n);
#pragma unroll
        for (unsigned j = 0; j < width; ++j) x[j] = feedback::add(kept[j], 1.0f, x[j]);
      }
      store_elements(tile + i, x, n);
    });
  }
};

//! The scaled sum of what several payloads decode to, with the residual added where there is one.
struct sums {
  payload_list payloads;
  float scale;
  float* residual;  //!< null: none
  cuda::fault_word fault;

  //! False when a payload's block has no numbers.
  template <class Coder>
  [[nodiscard]] __device__ bool usable(Coder const& coder, blocks::block const& block, bool reports) const {
    bool all = true;
    for (unsigned p = 0; p < payloads.count; ++p) {
      auto const received = coder.open(payloads[p] + block.payload, block.count);
      if (received.damaged && reports) fault.report(block.payload);
      all = all && received.finite && !received.damaged;
    }
    return all;
  }

  //! A thread's elements stay its own from payload to payload.
  template <bool Wide, class Coder>
  __device__ void fill(team<Wide> const& threads, Coder const& coder, blocks::block const& block, std::size_t at,
                       unsigned count, float* tile) const {
    for (unsigned p = 0; p < payloads.count; ++p) {
      auto const received = coder.open(payloads[p] + block.payload, block.count);
      for_each_vector<4>(threads, count, [&](unsigned i, unsigned n) {
        float x[4] = {};
        coder.levels(received, at + i, n, x);
        if (p != 0) {
          float sum[4] = {};
          load_elements(sum, tile + i, n);
#pragma unroll
          for (unsigned j = 0; j < 4; ++j) x[j] = sum[j] + x[j];
        }
        store_elements(tile + i, x, n);
      });
    }
    for_each_vector<4>(threads, count, [&](unsigned i, unsigned n) {
      float sum[4] = {};
      load_elements(sum, tile + i, n);
      float kept[4] = {};
      if (residual != nullptr) load_elements(kept, residual + block.residual + at + i, n);
#pragma unroll
      for (unsigned j = 0; j < 4; ++j) {
        sum[j] = residual == nullptr ? scale * sum[j] : feedback::add(kept[j], scale, sum[j]);
      }
      store_elements(tile + i, sum, n);
    });
  }
};

// ---- A block at work

//! A block's elements piece by piece, as often as a codec wants to look: usually one piece, which stays in the tile.
template <bool Wide, class Source, class Coder>
struct pieces {
  team<Wide> const& threads;
  Source const& source;
  Coder const& coder;
  blocks::block const& block;
  float* tile;

  //! Calls look(first element, elements) with the elements in the tile.
  template <class F>
  __device__ void operator()(F&& look) const {
    if (block.count <= team<Wide>::tile) return look(std::size_t{0}, static_cast<unsigned>(block.count));
    for (std::size_t at = 0; at < block.count; at += team<Wide>::tile) {
      unsigned const n = part_width(block.count - at, team<Wide>::tile);
      threads.sync();
      source.fill(threads, coder, block, at, n, tile);
      threads.sync();
      look(at, n);
    }
  }

  [[nodiscard]] __device__ bool keeps() const { return source.residual != nullptr; }
  //! The tile holds what was lost of n elements from `at` on.
  __device__ void keep(std::size_t at, unsigned n) const {
    threads.sync();
    keep_loss(threads, tile, n, source.residual + block.residual + at);
  }
};

//! Calls work(block) for every block of this team.
template <bool Wide, class Coder, class F>
__device__ void for_each_block(team<Wide> const& threads, part_list const& parts, std::size_t units, Coder const& coder,
                               F&& work) {
  std::size_t const stride = std::size_t{gridDim.x} * team<Wide>::per_thread_block;
  for (std::size_t unit = std::size_t{blockIdx.x} * team<Wide>::per_thread_block + threads.index(); unit < units;
       unit += stride) {
    part const& in = part_of(parts, unit);
    std::size_t const index = unit - in.unit;
    std::size_t const at = index * coder.size();
    std::size_t const rest = in.count - at;
    work(blocks::block{in.gradient + at, in.residual + at, in.payload + index * coder.bytes(coder.size()),
                       rest < coder.size() ? rest : coder.size(), in.first + at, in.tensor_id});
  }
}

template <class Coder, bool Wide, class Source>
__global__ void __launch_bounds__(block_policy::threads, block_policy::encode_blocks)
    encode_kernel(__grid_constant__ part_list const parts, std::size_t units, Coder coder,
                  __grid_constant__ Source const source, random_key key, std::byte* payload) {
  GW_SHARED_ARRAY(quad, tiles, block_policy::tile / 4);
  GW_SHARED_ARRAY(std::uint32_t, staging, block_policy::tile / 4);
  GW_SHARED_ARRAY(std::uint32_t, exchange, block_policy::warps);
  team<Wide> const threads{exchange};
  workplace const place{tiles[threads.index() * team<Wide>::tile / 4].values,
                        staging + threads.index() * team<Wide>::tile / 4};
  for_each_block(threads, parts, units, coder, [&](blocks::block const& block) {
    if (!source.usable(coder, block, threads.rank() == 0)) {
      return coder.write_spoiled(threads, block.count, payload + block.payload);
    }
    if (block.count <= team<Wide>::tile) {
      source.fill(threads, coder, block, 0, static_cast<unsigned>(block.count), place.tile);
      threads.sync();
    }
    pieces<Wide, Source, Coder> const elements{threads, source, coder, block, place.tile};
    coder.encode(threads, elements, block, key, payload + block.payload, place);
    threads.sync();  // the next block comes into the same tile
  });
}

template <class Coder, bool Wide, class T, bool Add>
__global__ void __launch_bounds__(block_policy::threads)
    decode_kernel(__grid_constant__ part_list const parts, std::size_t units, Coder coder, std::byte const* payload,
                  T* out, float scale, cuda::fault_word fault) {
  constexpr unsigned width = per_vector<T>;
  team<Wide> const threads{nullptr};
  for_each_block(threads, parts, units, coder, [&](blocks::block const& block) {
    auto const received = coder.open(payload + block.payload, block.count);
    if (received.damaged && threads.rank() == 0) fault.report(block.payload);
    bool const has_numbers = received.finite && !received.damaged;
    T* const to = out + block.gradient;
    for_each_vector<width>(threads, static_cast<unsigned>(block.count), [&](unsigned i, unsigned n) {
      float x[width] = {};
      float sum[width] = {};
      coder.levels(received, i, n, x);
      if constexpr (Add) load_elements(sum, to + i, n);
#pragma unroll
      for (unsigned j = 0; j < width; ++j) {
        float const value = Add ? feedback::add(sum[j], scale, x[j]) : scale * x[j];
        x[j] = has_numbers ? value : std::bit_cast<float>(Coder::nan_bits);
      }
      store_elements(to + i, x, n);
    });
  });
}

// ---- Launches

//! The functions of a codec from its work on one block. `Coder` is made from the parameters, is copied to the device
//! and has
//!   size(), bytes(count), nan_bits (what a spoiled block decodes to), damage() (the text for it, see fault_text)
//!   open(from, count): what a block of a payload holds, with `finite` and `damaged`; reads nothing past the block
//!   levels(received, at, n, x): n elements from `at` on, a multiple of the length of x
//!   encode(team, pieces, block, key, to, workplace), write_spoiled(team, count, to)
template <class Coder>
struct on_cuda {
  static bucket bucket_of(Coder const& coder, std::span<segment const> segments) {
    std::size_t const size = coder.size();
    return make_bucket(
        segments, [=](std::size_t count) { return (count + size - 1) / size; },
        [&](std::size_t count) {
          std::size_t const rest = count % size;
          return count / size * coder.bytes(size) + (rest == 0 ? 0 : coder.bytes(rest));
        });
  }

  //! Launches the kernel for warps or the one for thread blocks with a bucket's parts and units, the coder,
  //! `arguments`.
  template <class Narrow, class Wide, class... Arguments>
  static void run(exec const& on, char const* what, unsigned for_each_multiprocessor, Narrow narrow, Wide wide,
                  Coder const& coder, std::span<segment const> segments, Arguments const&... arguments) {
    bucket const work = bucket_of(coder, segments);
    if (work.units == 0) return;
    shipped_parts const parts{on, work.parts};
    if (coder.size() > block_policy::warp_tile) {
      cuda::launch(on, what, wide, cuda::grid_for(on, work.units, for_each_multiprocessor), block_policy::threads,
                   parts.view(), work.units, coder, arguments...);
    } else {
      std::size_t const blocks = (work.units + block_policy::warps - 1) / block_policy::warps;
      cuda::launch(on, what, narrow, cuda::grid_for(on, blocks, for_each_multiprocessor), block_policy::threads,
                   parts.view(), work.units, coder, arguments...);
    }
  }

  template <class Source>
  static void encode_from(exec const& on, char const* what, Coder const& coder, Source const& source,
                          std::span<segment const> segments, random_key key, std::byte* payload) {
    run(on, what, block_policy::encode_blocks, encode_kernel<Coder, false, Source>, encode_kernel<Coder, true, Source>,
        coder, segments, source, key, payload);
  }

  static void encode(exec const& on, param_values const& params, const_elements in, std::span<segment const> segments,
                     random_key key, std::byte* payload) {
    encode_with_feedback(on, params, in, nullptr, segments, key, payload);
  }

  static void encode_with_feedback(exec const& on, param_values const& params, const_elements grad, float* residual,
                                   std::span<segment const> segments, random_key key, std::byte* payload) {
    with_type(grad, [&]<class T>(T const* in) {
      encode_from(on, "encode by blocks", Coder{params}, gradients<T>{in, residual}, segments, key, payload);
    });
  }

  template <bool Add>
  static void decode(exec const& on, param_values const& params, std::byte const* payload,
                     std::span<segment const> segments, elements out, float scale) {
    cuda::fault_word const fault{cuda::fault_word_of(on.stream), Coder::damage()};
    with_type(out, [&]<class T>(T* to) {
      run(on, "decode by blocks", block_policy::decode_blocks, decode_kernel<Coder, false, T, Add>,
          decode_kernel<Coder, true, T, Add>, Coder{params}, segments, payload, to, scale, fault);
    });
  }

  static void reduce_encode(exec const& on, param_values const& params, std::span<std::byte const* const> payloads,
                            float scale, float* residual, std::span<segment const> segments, random_key key,
                            std::byte* payload) {
    shipped_payloads const sources{on, payloads};
    cuda::fault_word const fault{cuda::fault_word_of(on.stream), Coder::damage()};
    encode_from(on, "reduce_encode by blocks", Coder{params}, sums{sources.view(), scale, residual, fault}, segments,
                key, payload);
  }

  static constexpr codec_functions functions{encode, encode_with_feedback, decode<false>, decode<true>, reduce_encode};
};

}  // namespace gradwire::device
