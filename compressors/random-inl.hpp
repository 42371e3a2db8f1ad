//! core/random.hpp's blocks, several at a time. Included inside Highway's foreach_target, once for every target.
#if defined(GRADWIRE_RANDOM_INL_HPP) == defined(HWY_TARGET_TOGGLE)
#ifdef GRADWIRE_RANDOM_INL_HPP
#undef GRADWIRE_RANDOM_INL_HPP
#else
#define GRADWIRE_RANDOM_INL_HPP
#endif

#include <cstddef>
#include <cstdint>

#include <hwy/highway.h>

#include "core/random.hpp"

HWY_BEFORE_NAMESPACE();
namespace gradwire {
namespace HWY_NAMESPACE {

namespace hn = hwy::HWY_NAMESPACE;

#if HWY_TARGET != HWY_SCALAR

//! Writes random_block<Rounds>(key, tensor_id, first), …(first + 1), … `count` of them, four words each, and then up to
//! 7 more blocks: `words` has room for count rounded up to a multiple of 8.
template <unsigned Rounds>
HWY_INLINE void random_blocks(random_key key, std::uint32_t tensor_id, std::uint64_t first, std::size_t count,
                              std::uint32_t* words) {
  // A lane of 64 bits holds a word in its lower half; what is in the upper one does not matter. So a product of 32 by
  // 32 bits is one instruction, its upper half a shift away and its lower one already in place.
  hn::CappedTag<std::uint64_t, 8> const d;
  hn::RepartitionToNarrow<decltype(d)> const d32;
  using words_vector = hn::Vec<decltype(d)>;
  auto const set = [&](std::uint32_t word) { return hn::Set(d, std::uint64_t{word}); };
  auto const multiply = [&](words_vector a, words_vector b) {
    return hn::MulEven(hn::BitCast(d32, a), hn::BitCast(d32, b));
  };
  auto const xor3 = [](words_vector a, words_vector b, words_vector c) { return hn::Xor(hn::Xor(a, b), c); };
  words_vector const m0 = set(0xd2511f53u);
  words_vector const m1 = set(0xcd9e8d57u);
  words_vector const tensor = set(tensor_id);
  words_vector const step = set(static_cast<std::uint32_t>(key.step));
  words_vector const lower = set(0xffffffffu);
  words_vector k0[Rounds];
  words_vector k1[Rounds];
  for (std::uint32_t round = 0; round < Rounds; ++round) {
    k0[round] = set(static_cast<std::uint32_t>(key.seed) + round * 0x9e3779b9u);
    k1[round] = set(static_cast<std::uint32_t>(key.seed >> 32) + round * 0xbb67ae85u);
  }
  for (std::size_t i = 0; i < count; i += hn::Lanes(d)) {
    words_vector c0 = hn::Add(hn::Set(d, first + i), hn::Iota(d, 0));
    words_vector c1 = hn::ShiftRight<32>(c0);
    words_vector c2 = tensor;
    words_vector c3 = step;
    for (unsigned round = 0; round < Rounds; ++round) {
      words_vector const p0 = multiply(c0, m0);
      words_vector const p1 = multiply(c2, m1);
      c0 = xor3(hn::ShiftRight<32>(p1), c1, k0[round]);
      c2 = xor3(hn::ShiftRight<32>(p0), c3, k1[round]);
      c1 = p1;
      c3 = p0;
    }
    auto const pair = [&](words_vector even, words_vector odd) {
      return hn::Or(hn::And(even, lower), hn::ShiftLeft<32>(odd));
    };
    hn::StoreInterleaved2(pair(c0, c1), pair(c2, c3), d, reinterpret_cast<std::uint64_t*>(words + 4 * i));
  }
}

#endif

}  // namespace HWY_NAMESPACE
}  // namespace gradwire
HWY_AFTER_NAMESPACE();

#endif  // per-target include guard
