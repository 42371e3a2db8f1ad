// The collectives that host_communicator makes of others, over a transport that has nothing but the others.
#include <gtest/gtest.h>

#include <memory>

#include <gradwire/inproc.hpp>

#include "comm/host_communicator.hpp"
#include "tests/comm/conformance.hpp"

namespace gradwire::test {
namespace {

class plain_communicator final : public host_communicator {
 public:
  explicit plain_communicator(std::unique_ptr<communicator> inner)
      : host_communicator{inner->rank(), inner->size(), inner->timeout()}, inner_{std::move(inner)} {}

  [[nodiscard]] std::string_view transport() const noexcept override { return "plain"; }
  [[nodiscard]] comm_caps caps() const noexcept override { return {}; }
  void abort() noexcept override { inner_->abort(); }

 private:
  void do_all_gather(std::span<std::byte const> in, std::span<std::byte> out, sizes bytes) override {
    inner_->all_gather(in, out, bytes, {}).wait();
  }
  void do_all_to_all(std::span<std::byte const> in, sizes send_bytes, std::span<std::byte> out,
                     sizes recv_bytes) override {
    inner_->all_to_all(in, send_bytes, out, recv_bytes, {}).wait();
  }
  void do_send(std::span<std::byte const> in, std::size_t peer) override { inner_->send(in, peer, {}).wait(); }
  void do_recv(std::span<std::byte> out, std::size_t peer) override { inner_->recv(out, peer, {}).wait(); }
  std::unique_ptr<communicator> do_split(std::uint32_t color, std::uint32_t key) override {
    return std::make_unique<plain_communicator>(inner_->split(color, key));
  }

  std::unique_ptr<communicator> inner_;
};

class plain_world final : public world {
 public:
  plain_world(std::size_t size, std::chrono::milliseconds timeout)
      : world{size}, ends_{make_inproc_group(size, timeout)} {}
  std::unique_ptr<communicator> join(std::size_t rank) override {
    return std::make_unique<plain_communicator>(std::move(ends_[rank]));
  }

 private:
  std::vector<std::unique_ptr<communicator>> ends_;
};

transport_case plain_case() {
  return {"plain", [](std::size_t size, std::chrono::milliseconds timeout) {
            return std::make_unique<plain_world>(size, timeout);
          }};
}

INSTANTIATE_TEST_SUITE_P(Defaults, Conformance, testing::Combine(testing::Values(plain_case()), world_sizes()));
INSTANTIATE_TEST_SUITE_P(Defaults, OneWorld, testing::Values(plain_case()));

TEST(EvenParts, DifferByOneAtMostAndAddUp) {
  EXPECT_EQ(even_parts(7, 3), (std::vector<std::size_t>{3, 2, 2}));
  EXPECT_EQ(even_parts(2, 4), (std::vector<std::size_t>{1, 1, 0, 0}));
  EXPECT_EQ(even_parts(0, 2), (std::vector<std::size_t>{0, 0}));
}

TEST(NameRanks, ReadsLikeASentence) {
  EXPECT_EQ(name_ranks(std::vector<std::size_t>{2}), "rank 2");
  EXPECT_EQ(name_ranks(std::vector<std::size_t>{1, 3}), "ranks 1 and 3");
  EXPECT_EQ(name_ranks(std::vector<std::size_t>{1, 3, 4}), "ranks 1, 3 and 4");
}

}  // namespace
}  // namespace gradwire::test
