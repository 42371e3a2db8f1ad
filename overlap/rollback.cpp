#include "overlap/rollback.hpp"

#include <algorithm>
#include <bit>
#include <cstring>

namespace gradwire::overlap {
namespace {

std::uint32_t bits_of(float value) noexcept { return std::bit_cast<std::uint32_t>(value); }
std::uint32_t bits_of(f16 value) noexcept { return value.bits; }
std::uint32_t bits_of(bf16 value) noexcept { return value.bits; }

// A number that is not finite has all exponent bits set. No early exit, so that the loop becomes vector instructions.
template <class T>
bool finite_run(void const* data, segment const& run, std::uint32_t exponent) noexcept {
  T const* const values = static_cast<T const*>(data) + run.offset;
  std::uint32_t spoiled = 0;
  for (std::size_t i = 0; i < run.count; ++i) spoiled |= (bits_of(values[i]) & exponent) == exponent ? 1U : 0U;
  return spoiled == 0;
}

bool finite(const_elements in, segment const& run) noexcept {
  switch (in.type) {
    case dtype::f32: return finite_run<float>(in.data, run, 0x7f800000U);
    case dtype::f16: return finite_run<f16>(in.data, run, 0x7c00U);
    case dtype::bf16: break;
  }
  return finite_run<bf16>(in.data, run, 0x7f80U);
}

void copy_runs(float const* from, float* to, std::span<segment const> segments) noexcept {
  for (segment const& each : segments) {
    if (each.count == 0) continue;
    std::memcpy(to + each.residual_offset, from + each.residual_offset, each.count * sizeof(float));
  }
}

}  // namespace

bool all_finite(const_elements in, std::span<segment const> segments) noexcept {
  return std::all_of(segments.begin(), segments.end(), [&](segment const& each) { return finite(in, each); });
}

rollback::rollback(model& of, std::pmr::memory_resource* memory)
    : model_{of}, shadow_{of.residuals().size_bytes(), memory} {}

void rollback::keep(std::span<segment const> segments) noexcept {
  copy_runs(model_.residuals().data(), shadow_.as<float>().data(), segments);
}

void rollback::keep_owner(chunk& of) const {
  of.owner_shadow.clear();
  for (owner_residual const& run : of.method->owner_residuals()) {
    of.owner_shadow.insert(of.owner_shadow.end(), run.values.begin(), run.values.end());
  }
}

void rollback::inspect(elements means, std::span<segment const> segments) noexcept {
  if (!spoiled_) spoiled_ = !all_finite(means, segments);
}

void rollback::settle(std::span<std::span<bucket> const> buckets, std::size_t step) noexcept {
  if (!spoiled_) return;
  spoiled_ = false;
  for (auto const& some : buckets) {
    for (bucket& each : some) {
      if (each.feedback && step >= each.warmup_steps) restore(each);
    }
  }
}

void rollback::restore(bucket& of) const noexcept {
  for (chunk& part : of.chunks) {
    copy_runs(shadow_.as<float>().data(), model_.residuals().data(), part.method->segments());
    float const* from = part.owner_shadow.data();
    for (owner_residual const& run : part.method->owner_residuals()) {
      std::copy_n(from, run.values.size(), run.values.begin());
      from += run.values.size();
    }
  }
}

}  // namespace gradwire::overlap
