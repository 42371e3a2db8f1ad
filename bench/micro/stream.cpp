#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "bench/micro/stream.cpp"
#include <hwy/foreach_target.h>

#include "bench/micro/stream.hpp"

#include <algorithm>
#include <atomic>
#include <cstdint>

#include <hwy/highway.h>

HWY_BEFORE_NAMESPACE();
namespace gradwire::bench::HWY_NAMESPACE {
namespace {

namespace hn = hwy::HWY_NAMESPACE;
using bytes_tag = hn::ScalableTag<std::uint8_t>;
using vector = hn::Vec<bytes_tag>;

std::uint8_t const* u8(std::byte const* p) { return reinterpret_cast<std::uint8_t const*>(p); }
std::uint8_t* u8(std::byte* p) { return reinterpret_cast<std::uint8_t*>(p); }

// Elements pass in tiles, so that payloads, which are shorter, keep step with them.
constexpr std::size_t tile_bytes = 16384;
constexpr std::size_t line = 64;

struct range {
  std::size_t begin;
  std::size_t end;
};

// The part of a stream that belongs to one tile, in whole vectors.
range piece(std::size_t size, std::size_t tile, std::size_t tiles) {
  std::size_t const step = std::max(line, hn::Lanes(bytes_tag{}));
  std::size_t const lines = size / step;
  return {lines * tile / tiles * step, lines * (tile + 1) / tiles * step};
}

vector read_run(std::byte const* data, range part, vector folded) {
  bytes_tag const d;
  for (std::size_t i = part.begin; i < part.end; i += hn::Lanes(d))
    folded = hn::Xor(folded, hn::LoadU(d, u8(data) + i));
  return folded;
}

void write_run(std::byte* data, range part, vector folded) {
  bytes_tag const d;
  for (std::size_t i = part.begin; i < part.end; i += hn::Lanes(d)) hn::StoreU(folded, d, u8(data) + i);
}

void update_run(std::byte* data, range part, vector folded) {
  bytes_tag const d;
  for (std::size_t i = part.begin; i < part.end; i += hn::Lanes(d)) {
    hn::StoreU(hn::Xor(folded, hn::LoadU(d, u8(data) + i)), d, u8(data) + i);
  }
}

template <std::size_t Ratio>
void read_update_run(std::byte const* in, std::byte* data, range part) {
  bytes_tag const d;
  std::size_t const lanes = hn::Lanes(d);
  for (std::size_t i = part.begin; i < part.end; i += lanes) {
    auto const read = hn::LoadU(d, u8(in) + i);
    for (std::size_t j = 0; j < Ratio; ++j) {
      std::uint8_t* const at = u8(data) + i * Ratio + j * lanes;
      hn::StoreU(hn::Xor(read, hn::LoadU(d, at)), d, at);
    }
  }
}

std::uint8_t run(traffic const& what) {
  bytes_tag const d;
  vector folded = hn::Set(d, 1);
  std::size_t const longest = std::max({what.read.size(), what.update.size(), what.write.size(), std::size_t{1}});
  std::size_t const tiles = (longest + tile_bytes - 1) / tile_bytes;
  for (std::size_t t = 0; t < tiles; ++t) {
    for (auto const& payload : what.read_payloads) {
      folded = read_run(payload.data(), piece(payload.size(), t, tiles), folded);
    }
    range const read = piece(what.read.size(), t, tiles);
    if (what.update.empty()) {
      folded = read_run(what.read.data(), read, folded);
    } else if (what.read.empty()) {
      update_run(what.update.data(), piece(what.update.size(), t, tiles), folded);
    } else if (what.update.size() == what.read.size()) {
      read_update_run<1>(what.read.data(), what.update.data(), read);
    } else {
      read_update_run<2>(what.read.data(), what.update.data(), read);
    }
    write_run(what.write.data(), piece(what.write.size(), t, tiles), folded);
    write_run(what.write_payload.data(), piece(what.write_payload.size(), t, tiles), folded);
  }
  return hn::GetLane(folded);
}

}  // namespace
}  // namespace gradwire::bench::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace gradwire::bench {
namespace {

HWY_EXPORT(run);

}  // namespace

std::size_t traffic::bytes() const noexcept {
  std::size_t total = read.size() + 2 * update.size() + write.size() + write_payload.size();
  for (auto const& payload : read_payloads) total += payload.size();
  return total;
}

void stream(traffic const& what) {
  static std::atomic<std::uint8_t> sink;  // what was only read must not look unused
  sink.store(HWY_DYNAMIC_DISPATCH(run)(what), std::memory_order_relaxed);
}

}  // namespace gradwire::bench
#endif
