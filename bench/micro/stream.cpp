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
constexpr std::size_t line = 64;
using bytes_tag = hn::CappedTag<std::uint8_t, line>;
using vector = hn::Vec<bytes_tag>;

std::uint8_t const* u8(std::byte const* p) { return reinterpret_cast<std::uint8_t const*>(p); }
std::uint8_t* u8(std::byte* p) { return reinterpret_cast<std::uint8_t*>(p); }

// Streams take turns after at least this many bytes: side by side, as in a loop that handles an element of each.
constexpr std::size_t turn_bytes = 256;
static_assert(turn_bytes % line == 0);

struct range {
  std::size_t begin;
  std::size_t end;
};

// How a stream moves on while another of `other` bytes does: the longer takes more in each turn, and what does not go
// into turns goes last.
struct pace {
  std::size_t step;  // bytes
  std::size_t size;  // bytes, whole lines

  pace(std::size_t bytes, std::size_t other) : step{turn_bytes}, size{bytes / line * line} {
    if (other >= turn_bytes && bytes > other) step *= bytes / other;
  }
  range turn(std::size_t i) const { return {std::min(i * step, size), std::min((i + 1) * step, size)}; }
  std::size_t turns() const { return size / step; }
};

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

vector dense_run(traffic const& what, range part, vector folded) {
  if (!what.write.empty()) {
    write_run(what.write.data(), part, folded);
  } else if (what.update.empty()) {
    folded = read_run(what.read.data(), part, folded);
  } else if (what.read.empty()) {
    update_run(what.update.data(), part, folded);
  } else if (what.update.size() == what.read.size()) {
    read_update_run<1>(what.read.data(), what.update.data(), part);
  } else {
    read_update_run<2>(what.read.data(), what.update.data(), part);
  }
  return folded;
}

vector payload_run(traffic const& what, range part, vector folded) {
  for (auto const& payload : what.read_payloads) folded = read_run(payload.data(), part, folded);
  if (!what.write_payload.empty()) write_run(what.write_payload.data(), part, folded);
  return folded;
}

std::uint8_t run(traffic const& what) {
  vector folded = hn::Set(bytes_tag{}, 1);
  std::size_t const elements = what.read.empty() ? what.update.size() + what.write.size() : what.read.size();
  std::size_t const payload = what.read_payloads.empty() ? what.write_payload.size() : what.read_payloads[0].size();
  pace const dense{elements, payload};
  pace const coded{payload, elements};
  std::size_t const turns = std::min(dense.turns(), coded.turns());
  for (std::size_t i = 0; i < turns; ++i) {
    folded = payload_run(what, coded.turn(i), folded);
    folded = dense_run(what, dense.turn(i), folded);
  }
  folded = payload_run(what, {std::min(turns * coded.step, coded.size), coded.size}, folded);
  folded = dense_run(what, {std::min(turns * dense.step, dense.size), dense.size}, folded);
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
