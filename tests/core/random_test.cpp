#include "core/random.hpp"

#include <gtest/gtest.h>

#include <array>
#include <set>

namespace gradwire {
namespace {

using words = std::array<std::uint32_t, 4>;

// Known answers of Philox4x32 from the authors' kat_vectors file (Random123; Salmon et al., SC 2011).
TEST(Philox, GivesTheAuthorsKnownAnswers) {
  EXPECT_EQ(random_block({.seed = 0, .step = 0}, 0, 0), (words{0x6627e8d5, 0xe169c58d, 0xbc57ac4c, 0x9b00dbd8}));
  EXPECT_EQ(random_block({.seed = ~0ULL, .step = ~0ULL}, ~0U, ~0ULL),
            (words{0x408f276d, 0x41c83b0e, 0xa20bc7c6, 0x6d5451fd}));
  // Counter 243f6a88 85a308d3 13198a2e 03707344, key a4093822 299f31d0: digits of pi.
  EXPECT_EQ(random_block({.seed = 0x299f31d0a4093822, .step = 0x03707344}, 0x13198a2e, 0x85a308d3243f6a88),
            (words{0xd16cfe09, 0x94fdcceb, 0x5001e420, 0x24126ea1}));
  EXPECT_EQ(random_block<7>({.seed = 0, .step = 0}, 0, 0), (words{0x5f6fb709, 0x0d893f64, 0x4f121f81, 0x4f730a48}));
  EXPECT_EQ(random_block<7>({.seed = ~0ULL, .step = ~0ULL}, ~0U, ~0ULL),
            (words{0x5207ddc2, 0x45165e59, 0x4d8ee751, 0x8c52f662}));
  EXPECT_EQ(random_block<7>({.seed = 0x299f31d0a4093822, .step = 0x03707344}, 0x13198a2e, 0x85a308d3243f6a88),
            (words{0x4dfccaba, 0x190a87f0, 0xc47362ba, 0xb6b5242a}));
}

TEST(Philox, SeedStepTensorAndBlockAllMatter) {
  std::set<words> seen{
      random_block({.seed = 1, .step = 1}, 1, 1),         random_block({.seed = 2, .step = 1}, 1, 1),
      random_block({.seed = 1, .step = 2}, 1, 1),         random_block({.seed = 1, .step = 1}, 2, 1),
      random_block({.seed = 1, .step = 1}, 1, 2),         random_block({.seed = 1ULL << 40, .step = 1}, 1, 1),
      random_block({.seed = 1, .step = 1}, 1, 1ULL << 40)};
  EXPECT_EQ(seen.size(), 7U);
}

// First outputs of SplitMix64 from seed 0, as its authors' reference program prints them (Vigna, splitmix64.c).
TEST(WithStage, IsSplitMix64) {
  EXPECT_EQ(with_stage({.seed = 0, .step = 7}, 0).seed, 0xe220a8397b1dcdafU);
  EXPECT_EQ(with_stage({.seed = 0, .step = 7}, 1).seed, 0x6e789e6aa1b965f4U);
  EXPECT_EQ(with_stage({.seed = 0, .step = 7}, 2).seed, 0x06c45d188009454fU);
  EXPECT_EQ(with_stage({.seed = 0, .step = 7}, 2).step, 7U);
}

}  // namespace
}  // namespace gradwire
