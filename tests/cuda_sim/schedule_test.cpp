// Same seed, same schedule; and the devices behave as CUDA's do where gradwire relies on it.
#include <gtest/gtest.h>

#include <string>

#include "tests/cuda_sim/cuda_sim.hpp"
#include "tests/cuda_sim/faults.hpp"

namespace cuda_sim {
namespace {

std::string schedule_of(pace speed, std::uint64_t seed) {
  configure({.seed = seed, .pace = speed, .keep_schedule = true});
  static_cast<void>(run(plant::nothing));
  return schedule();
}

// Streams are numbered on; what counts is which one of the two it is.
std::string without_numbers(std::string const& text) {
  std::string first;
  std::string result;
  for (std::size_t at = 0; at < text.size();) {
    std::size_t const blank = text.find(' ', at);
    std::size_t const end = text.find('\n', at);
    std::string const number = text.substr(at, blank - at);
    if (first.empty()) first = number;
    result += (number == first ? "a" : "b") + text.substr(blank, end + 1 - blank);
    at = end + 1;
  }
  return result;
}

TEST(Schedule, IsTheSameForTheSameSeed) {
  for (pace const speed : {pace::eager, pace::lazy, pace::random, pace::uneven}) {
    std::string const once = without_numbers(schedule_of(speed, 5));
    EXPECT_FALSE(once.empty());
    EXPECT_EQ(without_numbers(schedule_of(speed, 5)), once);
  }
}

TEST(Schedule, DiffersBetweenSeeds) {
  std::string const once = without_numbers(schedule_of(pace::random, 1));
  bool differs = false;
  for (std::uint64_t seed = 2; seed < 10; ++seed) differs |= without_numbers(schedule_of(pace::random, seed)) != once;
  EXPECT_TRUE(differs);
}

}  // namespace
}  // namespace cuda_sim
