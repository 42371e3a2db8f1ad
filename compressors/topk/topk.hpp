#pragma once
//! What the reference loops and the fast path share: parameters, and writing and reading of payloads.

#include <cstddef>
#include <cstdint>
#include <limits>
#include <span>

#include <gradwire/codec.hpp>

#include "compressors/topk/format.hpp"

namespace gradwire::topk {

//! Elements kept of `count`: k, or ⌊ratio·count⌋, at least 1 and at most `count`; 0 of 0.
[[nodiscard]] std::size_t kept_of(param_values const& params, std::size_t count) noexcept;

[[nodiscard]] inline layout layout_of(param_values const& params, std::size_t count) noexcept {
  return layout_of(count, kept_of(params, count));
}

//! `indices` rise strictly; `values` are those of the input. Both are shape.kept long.
void write_payload(layout const& shape, std::byte* payload, std::span<std::size_t const> indices,
                   std::span<float const> values) noexcept;
void write_spoiled(layout const& shape, std::byte* payload) noexcept;

//! Walks over the kept elements of one payload in the order of their indices. Whatever the bytes are, it reads only the
//! payload and yields only rising indices below shape.count and values that encode can have written; everything else
//! throws errc::corrupt_payload.
class reader {
 public:
  static constexpr std::size_t end = std::numeric_limits<std::size_t>::max();

  reader(layout const& shape, std::byte const* payload);

  //! The segment decodes to NaN everywhere; there is nothing to walk over.
  [[nodiscard]] bool spoiled() const noexcept { return spoiled_; }
  //! `end` behind the last.
  [[nodiscard]] std::size_t index() const noexcept { return index_; }
  [[nodiscard]] float value() const noexcept { return value_; }

  void next() {
    if (taken_ == shape_.kept) {
      index_ = end;
      return;
    }
    // The constructor counted the ones, so one more is there.
    while (ones_ == 0) ones_ = load_word(payload_, ++word_);
    std::size_t const bit = 32 * (word_ - shape_.upper_at()) + static_cast<std::size_t>(std::countr_zero(ones_));
    ones_ &= ones_ - 1;
    std::size_t const low = wide_ ? load_low() : load_bits(payload_, shape_.low_at(), taken_ * width(), width());
    std::size_t const index = (bit - taken_) << width() | low;
    value_ = std::bit_cast<float>(load_word(payload_, shape_.values_at() + taken_));
    bool const rises = taken_ == 0 || index > index_;
    // -0 is never sent.
    bool const plain = magnitude(value_) < infinity_bits && std::bit_cast<std::uint32_t>(value_) != 0x80000000u;
    if (!rises || index >= shape_.count || !plain) refuse(index);
    index_ = index;
    ++taken_;
  }

 private:
  [[nodiscard]] unsigned width() const noexcept { return shape_.low_width; }

  //! The low bits of the next index in one load of eight bytes, which may reach into the bitmap behind them.
  [[nodiscard]] std::uint64_t load_low() const noexcept {
    std::size_t const at = taken_ * width();
    std::uint64_t bits;
    std::memcpy(&bits, payload_ + 4 * shape_.low_at() + at / 8, sizeof(bits));
    return bits >> at % 8 & ((std::uint64_t{1} << width()) - 1);
  }

  [[noreturn]] void refuse(std::size_t index) const;
  void check_spoiled() const;
  void check_counts() const;

  layout shape_;
  std::byte const* payload_;
  bool wide_;  //!< load_low() may be used: at most 57 bits, and two words of bitmap to reach into
  bool spoiled_;
  std::size_t taken_ = 0;
  std::size_t word_;
  std::uint32_t ones_ = 0;
  std::size_t index_ = end;
  float value_ = 0;
};

//! Calls work(segment, its layout, offset of its payload) for every segment that is not empty.
template <class F>
void for_each_segment(param_values const& params, std::span<segment const> segments, F&& work) {
  std::size_t at = 0;
  for (segment const& one : segments) {
    layout const shape = layout_of(params, one.count);
    if (one.count != 0) work(one, shape, at);
    at += shape.bytes();
  }
}

//! The fast path (fast.cpp); null where the reference loop is as fast.
extern codec_functions const fast;

}  // namespace gradwire::topk
