#include <gradwire/gloo.hpp>

#include "tests/comm/conformance.hpp"

namespace gradwire::test {
namespace {

class gloo_world final : public world {
 public:
  gloo_world(std::size_t size, std::chrono::milliseconds timeout, bool tcp) : size_{size}, timeout_{timeout} {
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

}  // namespace
}  // namespace gradwire::test
