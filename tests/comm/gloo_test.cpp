#include <gradwire/gloo.hpp>

#include "tests/comm/conformance.hpp"

namespace gradwire::test {
namespace {

class gloo_world final : public world {
 public:
  gloo_world(std::size_t size, std::chrono::milliseconds timeout, bool tcp)
      : world{size}, size_{size}, timeout_{timeout} {
    rendezvous_ = tcp ? "tcp://127.0.0.1:" + std::to_string(free_port()) : "file://" + folder_.path();
  }
  std::unique_ptr<communicator> join(std::size_t rank) override {
    return make_gloo({.rank = rank, .size = size_, .rendezvous = rendezvous_, .timeout = timeout_});
  }

 private:
  temporary_folder folder_;
  std::size_t size_;
  std::chrono::milliseconds timeout_;
  std::string rendezvous_;
};

transport_case gloo_over(bool tcp) {
  return {tcp ? "tcp" : "file", [tcp](std::size_t size, std::chrono::milliseconds timeout) {
            return std::make_unique<gloo_world>(size, timeout, tcp);
          }};
}

INSTANTIATE_TEST_SUITE_P(GlooFile, Conformance, testing::Combine(testing::Values(gloo_over(false)), world_sizes()));
INSTANTIATE_TEST_SUITE_P(GlooTcp, OneWorld, testing::Values(gloo_over(true)));
INSTANTIATE_TEST_SUITE_P(GlooFile, Failure, testing::Values(gloo_over(false)));
INSTANTIATE_TEST_SUITE_P(GlooTcp, Failure, testing::Values(gloo_over(true)));

TEST(Gloo, RefusesWhatIsNoInterfaceBeforeItMeetsAnyone) {
  temporary_folder const folder;
  try {
    static_cast<void>(
        make_gloo({.rank = 1, .size = 2, .rendezvous = "file://" + folder.path(), .interface = "no such interface"}));
    FAIL() << "was accepted";
  } catch (error const& why) {
    EXPECT_EQ(why.code(), errc::invalid_argument);
    EXPECT_NE(std::string{why.what()}.find("'no such interface' is neither"), std::string::npos) << why.what();
    EXPECT_NE(std::string{why.what()}.find("GRADWIRE_INTERFACE"), std::string::npos) << why.what();
  }
}

}  // namespace
}  // namespace gradwire::test
