#pragma once

#include <algorithm>
#include <bit>
#include <cstddef>
#include <cstdint>
#include <span>

#include <gradwire/buffer.hpp>

#include "compressors/topk/format.hpp"

namespace gradwire::topk {

//! Elements are offered in runs of at most this many, which stay in the first-level cache.
inline constexpr std::size_t run_elements = 2048;

//! The smallest magnitude among the `wanted` largest of `values`, and how many of those with exactly this magnitude are
//! among them. `wanted` is 1 to values.size().
struct cut {
  std::uint32_t magnitude;
  std::size_t ties;
};
[[nodiscard]] cut find_cut(std::span<float const> values, std::size_t wanted) noexcept;

//! Keeps the `wanted` elements of largest magnitude, ties to the lowest index, of elements that pass by once in the
//! order of their indices. Those that reach a threshold are put into a list of bounded length. When the list is full it
//! is cut back to the `wanted` best, which raises the threshold: the `wanted`-th best of a part bounds that of the
//! whole from below, and an element equal to it that comes later loses the tie. So the result is exact for any start,
//! and in random order wanted·(1 + ln(count/wanted)) elements enter the list; a start threshold near the final one
//! leaves little more than `wanted`.
class selector {
 public:
  //! For up to `most_wanted` elements of at most `most_count`.
  selector(std::size_t most_wanted, std::size_t most_count, std::pmr::memory_resource* memory);

  //! Forgets all. Elements under `least` (a magnitude) are never taken.
  void start(std::size_t wanted, std::uint32_t least) noexcept;

  //! Only elements whose magnitude, as a signed integer, is above this need be offered.
  [[nodiscard]] std::int32_t above() const noexcept { return static_cast<std::int32_t>(least_) - 1; }

  //! Takes elements base + 64·w + b of a run for all bits b of masks[w]; at(i) is element i. Returns whether all of
  //! them were finite; nothing may be expected of the list afterwards if not.
  template <class At>
  [[nodiscard]] bool take(std::size_t base, std::span<std::uint64_t const> masks, At const& at) noexcept {
    if (capacity_ - size_ < run_elements) prune();
    std::size_t size = size_;
    std::uint32_t largest = 0;
    for (std::uint64_t mask : masks) {
      for (; mask != 0; mask &= mask - 1) {
        std::size_t const index = base + static_cast<std::size_t>(std::countr_zero(mask));
        float const x = at(index);
        indices_[size] = index;
        values_[size] = x;
        largest = std::max(largest, magnitude(x));
        ++size;
      }
      base += 64;
    }
    size_ = size;
    return largest < infinity_bits;
  }

  //! Cuts the list to the best. False: fewer than `wanted` elements reached the start threshold.
  [[nodiscard]] bool finish() noexcept;

  //! In the order of the indices.
  [[nodiscard]] std::span<std::size_t const> indices() const noexcept { return {indices_, size_}; }
  [[nodiscard]] std::span<float const> values() const noexcept { return {values_, size_}; }

 private:
  void prune() noexcept;

  buffer memory_;
  std::size_t* indices_;
  float* values_;
  std::size_t capacity_;
  std::size_t size_ = 0;
  std::size_t wanted_ = 0;
  std::uint32_t least_ = 0;
};

}  // namespace gradwire::topk
