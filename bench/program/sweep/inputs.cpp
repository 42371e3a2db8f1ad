#include "program/sweep/inputs.hpp"

#include <algorithm>
#include <array>
#include <cstring>

#include <fmt/format.h>
#include <boost/math/distributions/normal.hpp>

#include <gradwire/codec.hpp>
#include <gradwire/error.hpp>

#include "core/random.hpp"

namespace gradwire::program::sweep {

namespace {

// Philox gives 128 bits a block: eight elements of 16 bits each.
constexpr std::size_t elements_per_block = 8;

template <class Map>
void fill_from_words(std::uint64_t seed, std::size_t rank, std::size_t first, std::span<float> out, Map const& map) {
  random_key const key{seed, rank};
  std::array<std::uint32_t, 4> words{};
  for (std::size_t i = 0; i < out.size(); ++i) {
    std::size_t const index = first + i;
    std::size_t const lane = index % elements_per_block;
    if (i == 0 || lane == 0) words = random_block(key, 0, index / elements_per_block);
    out[i] = map((words[lane / 2] >> (16 * (lane % 2))) & 0xffffu);
  }
}

}  // namespace

void fill_elements(input_source const& input, std::size_t rank, std::size_t first, std::size_t count, elements out) {
  constexpr std::size_t piece_elements = 4096;
  std::array<float, piece_elements> piece{};
  auto* to = static_cast<std::byte*>(out.data);
  for (std::size_t at = 0; at < count; at += piece_elements) {
    auto const here = std::span{piece}.first(std::min(piece_elements, count - at));
    input.fill(rank, first + at, here);
    for (float const value : here) {
      if (out.type == dtype::f32) {
        std::memcpy(to, &value, sizeof value);
      } else {
        std::uint16_t const bits = out.type == dtype::f16 ? to_f16(value).bits : to_bf16(value).bits;
        std::memcpy(to, &bits, sizeof bits);
      }
      to += size_of(out.type);
    }
  }
}

float element_at(const_elements array, std::size_t index) {
  auto const* bytes = static_cast<std::byte const*>(array.data) + index * size_of(array.type);
  if (array.type == dtype::f32) {
    float value = 0;
    std::memcpy(&value, bytes, sizeof value);
    return value;
  }
  std::uint16_t bits = 0;
  std::memcpy(&bits, bytes, sizeof bits);
  return array.type == dtype::f16 ? to_float(f16{bits}) : to_float(bf16{bits});
}

float rounded_to(dtype type, float value) {
  if (type == dtype::f16) return to_float(to_f16(value));
  return type == dtype::bf16 ? to_float(to_bf16(value)) : value;
}

std::size_t significant_bits_of(dtype type) {
  switch (type) {
    case dtype::f32: return 24;
    case dtype::f16: return 11;
    case dtype::bf16: return 8;
  }
  throw error{errc::unsupported, fmt::format("dtype {}: not known here", static_cast<int>(type))};
}

gaussian_input::gaussian_input(std::uint64_t seed, dtype type) : seed_{seed}, quantiles_(std::size_t{1} << 16) {
  boost::math::normal_distribution<double> const normal;
  for (std::size_t i = 0; i < quantiles_.size(); ++i) {
    double const p = (static_cast<double>(i) + 0.5) / static_cast<double>(quantiles_.size());
    quantiles_[i] = rounded_to(type, static_cast<float>(boost::math::quantile(normal, p)));
  }
}

void gaussian_input::fill(std::size_t rank, std::size_t first, std::span<float> out) const {
  fill_from_words(seed_, rank, first, out, [this](std::uint32_t word) { return quantiles_[word]; });
}

exact_sum_input::exact_sum_input(std::uint64_t seed, std::size_t ranks, std::size_t significant_bits)
    : seed_{seed}, ranks_{ranks} {
  // |sum over ranks| <= ranks · ranks · largest, a whole number: exact when at most 2^significant_bits.
  std::size_t const limit = std::size_t{1} << significant_bits;
  largest_ = static_cast<std::uint32_t>(limit / (ranks * ranks));
  if (largest_ == 0) {
    throw error{errc::unsupported,
                fmt::format("no sums over {} ranks are exact in {} significant bits: verify with a wider --dtype or "
                            "fewer ranks",
                            ranks, significant_bits)};
  }
}

void exact_sum_input::fill(std::size_t rank, std::size_t first, std::span<float> out) const {
  std::uint32_t const span = 2 * largest_ + 1;
  fill_from_words(seed_, rank, first, out, [&](std::uint32_t word) {
    // 16 random bits spread over the whole span by multiplication.
    auto const number = static_cast<std::int64_t>((std::uint64_t{word} * span) >> 16) - std::int64_t{largest_};
    return static_cast<float>(number * static_cast<std::int64_t>(ranks_));
  });
}

}  // namespace gradwire::program::sweep
