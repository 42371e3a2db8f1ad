#include <gtest/gtest.h>

#include <algorithm>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <limits>
#include <memory_resource>
#include <utility>

#include <gradwire/buffer.hpp>
#include <gradwire/env.hpp>
#include <gradwire/error.hpp>
#include <gradwire/version.hpp>

namespace gradwire {
namespace {

// Counts what is out.
class counting_resource final : public std::pmr::memory_resource {
 public:
  std::size_t out = 0;
  std::size_t largest_alignment = 0;

 private:
  void* do_allocate(std::size_t bytes, std::size_t alignment) override {
    out += bytes;
    largest_alignment = std::max(largest_alignment, alignment);
    return std::pmr::new_delete_resource()->allocate(bytes, alignment);
  }
  void do_deallocate(void* data, std::size_t bytes, std::size_t alignment) override {
    out -= bytes;
    std::pmr::new_delete_resource()->deallocate(data, bytes, alignment);
  }
  [[nodiscard]] bool do_is_equal(memory_resource const& other) const noexcept override { return this == &other; }
};

TEST(Buffer, IsAlignedAndHasTheSizeAskedFor) {
  for (std::size_t const bytes : {1U, 63U, 64U, 65U, 4097U, 4U << 20, (4U << 20) + 1, 9'000'001U}) {
    buffer memory{bytes};
    EXPECT_EQ(memory.size(), bytes);
    EXPECT_EQ(memory.bytes().size(), bytes);
    EXPECT_EQ(reinterpret_cast<std::uintptr_t>(memory.data()) % 64, 0U);
    std::memset(memory.data(), 7, bytes);
    EXPECT_EQ(memory.as<float>().size(), bytes / 4);
  }
}

TEST(Buffer, OfMegabytesBeginsAtAHugePageUnlessTheMemoryIsTheCallers) {
  EXPECT_EQ(reinterpret_cast<std::uintptr_t>(buffer{4U << 20}.data()) % (2U << 20), 0U);
  counting_resource memory;
  { buffer const given{4U << 20, &memory}; }
  EXPECT_EQ(memory.largest_alignment, 64U);
}

TEST(Buffer, OfNothingHoldsNothing) {
  buffer const none;
  buffer const zero{0};
  EXPECT_EQ(none.data(), nullptr);
  EXPECT_EQ(zero.data(), nullptr);
  EXPECT_TRUE(zero.as<float>().empty());
}

TEST(Buffer, MovesTheMemoryAndGivesItBackOnce) {
  counting_resource memory;
  {
    buffer first{100, &memory};
    auto const* const data = first.data();
    buffer second{std::move(first)};
    EXPECT_EQ(second.data(), data);
    EXPECT_EQ(memory.out, 100U);
    buffer third{50, &memory};
    third = std::move(second);
    EXPECT_EQ(third.data(), data);
    EXPECT_EQ(third.size(), 100U);
  }
  EXPECT_EQ(memory.out, 0U);
}

TEST(Buffer, ThatDoesNotFitSaysHowLargeItWas) {
  auto const bytes = std::numeric_limits<std::size_t>::max() / 4;
  try {
    buffer const memory{bytes, std::pmr::null_memory_resource()};
    FAIL() << "was given";
  } catch (error const& why) {
    EXPECT_EQ(why.code(), errc::out_of_memory);
    EXPECT_NE(std::string{why.what()}.find(std::to_string(bytes)), std::string::npos) << why.what();
  }
}

TEST(Error, KnowsCodeTextAndPlace) {
  error const why{errc::timeout, "rank 2 did not come"};
  EXPECT_EQ(why.code(), errc::timeout);
  EXPECT_STREQ(why.what(), "rank 2 did not come");
  EXPECT_NE(std::string{why.where().file}.find("basics_test.cpp"), std::string::npos);
}

TEST(Error, EveryCodeHasItsName) {
  EXPECT_EQ(to_string(errc::invalid_argument), "invalid_argument");
  EXPECT_EQ(to_string(errc::corrupt_payload), "corrupt_payload");
  EXPECT_EQ(to_string(errc::mismatch), "mismatch");
  EXPECT_EQ(to_string(errc::unsupported), "unsupported");
  EXPECT_EQ(to_string(errc::out_of_memory), "out_of_memory");
  EXPECT_EQ(to_string(errc::cuda), "cuda");
  EXPECT_EQ(to_string(errc::communicator), "communicator");
  EXPECT_EQ(to_string(errc::timeout), "timeout");
  EXPECT_EQ(to_string(static_cast<errc>(99)), "unknown");
}

TEST(Expects, ThrowsTheTextAndTheCallersLine) {
  EXPECT_NO_THROW(expects(true, "never"));
  try {
    expects(false, "out is smaller than in");
    FAIL() << "did not throw";
  } catch (error const& why) {
    EXPECT_EQ(why.code(), errc::invalid_argument);
    EXPECT_STREQ(why.what(), "out is smaller than in");
    EXPECT_NE(std::string{why.where().file}.find("basics_test.cpp"), std::string::npos);
  }
}

TEST(Env, ReadsTheVariablesByName) {
  setenv("SLURM_PROCID", "7", 1);
  setenv("GRADWIRE_RENDEZVOUS", "", 1);
  unsetenv("SLURM_STEP_NODELIST");
  setenv("SLURM_JOB_NODELIST", "n[1-2]", 1);
  unsetenv("WORLD_SIZE");
  auto const values = env::read();
  EXPECT_EQ(values.slurm_rank, "7");
  EXPECT_EQ(values.rendezvous, "");  // set and empty is not unset
  EXPECT_EQ(values.slurm_nodes, "n[1-2]");
  EXPECT_EQ(values.world_size, std::nullopt);
  setenv("SLURM_STEP_NODELIST", "m1", 1);
  EXPECT_EQ(env::read().slurm_nodes, "m1");
}

TEST(Env, IsReadOnce) {
  auto const* const first = &env::get();
  setenv("RANK", "5", 1);
  EXPECT_EQ(&env::get(), first);
  EXPECT_NE(first->rank, "5");
}

TEST(Version, HasThreeNumbers) {
  std::string const text{version()};
  int dots = 0;
  for (char const c : text) dots += c == '.' ? 1 : 0;
  EXPECT_EQ(dots, 2) << text;
}

}  // namespace
}  // namespace gradwire
