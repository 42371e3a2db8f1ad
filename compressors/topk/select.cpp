#include "compressors/topk/select.hpp"

#include <algorithm>
#include <array>

namespace gradwire::topk {
namespace {

// One digit of a radix selection: finds the digit, at bits [shift, shift + width) of the magnitude, of the `wanted`-th
// largest among the values that agree with `prefix` above it. `wanted` becomes the rank among those with that digit.
template <unsigned Shift, unsigned Width>
std::uint32_t select_digit(std::span<float const> values, std::uint32_t prefix, std::size_t& wanted) noexcept {
  constexpr std::size_t bins = std::size_t{1} << Width;
  // Two tables: neighbours that fall into one bin do not wait for each other's store.
  std::array<std::array<std::size_t, bins>, 2> seen{};
  for (std::size_t i = 0; i < values.size(); ++i) {
    std::uint32_t const bits = magnitude(values[i]);
    bool const agrees = bits >> (Shift + Width) == prefix >> (Shift + Width);
    seen[i % 2][bits >> Shift & (bins - 1)] += agrees ? 1 : 0;
  }
  for (std::size_t bin = bins;;) {
    --bin;
    std::size_t const here = seen[0][bin] + seen[1][bin];
    if (here >= wanted) return prefix | static_cast<std::uint32_t>(bin) << Shift;
    wanted -= here;
  }
}

}  // namespace

cut find_cut(std::span<float const> values, std::size_t wanted) noexcept {
  std::uint32_t bits = select_digit<20, 11>(values, 0, wanted);
  bits = select_digit<10, 10>(values, bits, wanted);
  bits = select_digit<0, 10>(values, bits, wanted);
  return {bits, wanted};
}

selector::selector(std::size_t most_wanted, std::size_t most_count, std::pmr::memory_resource* memory)
    : memory_{(std::min(2 * most_wanted, most_count) + 2 * run_elements) * (sizeof(std::size_t) + sizeof(float)),
              memory},
      capacity_{memory_.size() / (sizeof(std::size_t) + sizeof(float))} {
  indices_ = memory_.as<std::size_t>().data();
  values_ = reinterpret_cast<float*>(memory_.data() + capacity_ * sizeof(std::size_t));
}

void selector::start(std::size_t wanted, std::uint32_t least) noexcept {
  size_ = 0;
  wanted_ = wanted;
  least_ = least;
}

bool selector::finish() noexcept {
  if (size_ < wanted_) return false;
  if (size_ > wanted_) prune();
  return true;
}

// Called with more than `wanted_` elements.
void selector::prune() noexcept {
  cut const at = find_cut({values_, size_}, wanted_);
  std::size_t ties = at.ties;
  std::size_t kept = 0;
  for (std::size_t i = 0; i < size_; ++i) {
    std::uint32_t const bits = magnitude(values_[i]);
    std::size_t const tie = bits == at.magnitude && ties > 0 ? 1 : 0;
    std::size_t const keep = bits > at.magnitude ? 1 : tie;
    indices_[kept] = indices_[i];
    values_[kept] = values_[i];
    kept += keep;
    ties -= tie;
  }
  size_ = kept;
  least_ = at.magnitude + 1;
}

}  // namespace gradwire::topk
