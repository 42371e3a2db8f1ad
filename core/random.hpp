#pragma once

#include <array>
#include <cstdint>

#include <Random123/philox.h>

#include <gradwire/codec.hpp>
#include <gradwire/macros.hpp>

namespace gradwire {

//! Four random words for (seed, step, tensor, block): Philox4x32 (Salmon et al., SC 2011) with the seed as key and
//! (block low, block high, tensor, step) as counter. A pure function, so any thread may compute any block. Steps are
//! taken modulo 2^32. 10 rounds are the authors' choice for everybody, 7 the fewest that pass BigCrush (their table 2).
template <unsigned Rounds = 10>
[[nodiscard]] GW_HD inline std::array<std::uint32_t, 4> random_block(random_key key, std::uint32_t tensor_id,
                                                                     std::uint64_t block) {
  using generator = r123::Philox4x32_R<Rounds>;
  typename generator::ctr_type const counter{{static_cast<std::uint32_t>(block),
                                              static_cast<std::uint32_t>(block >> 32), tensor_id,
                                              static_cast<std::uint32_t>(key.step)}};
  typename generator::key_type const seed{
      {static_cast<std::uint32_t>(key.seed), static_cast<std::uint32_t>(key.seed >> 32)}};
  auto const words = generator{}(counter, seed);
  return {words[0], words[1], words[2], words[3]};
}

//! Gives a stage of a reduction (a rank's own encoding, the owner's second one) random numbers of its own. SplitMix64's
//! finaliser (Steele et al., OOPSLA 2014) over seed and stage.
[[nodiscard]] constexpr random_key with_stage(random_key key, std::uint64_t stage) noexcept {
  std::uint64_t z = key.seed + (stage + 1) * 0x9e3779b97f4a7c15u;
  z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9u;
  z = (z ^ (z >> 27)) * 0x94d049bb133111ebu;
  return {z ^ (z >> 31), key.step};
}

}  // namespace gradwire
