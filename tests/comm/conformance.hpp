#pragma once

#include <gtest/gtest.h>

#include <ostream>
#include <tuple>

#include "tests/comm/worlds.hpp"

namespace gradwire::test {

//! What every transport must do, for every world size. A new transport instantiates the three suites and has all tests:
//!
//!   INSTANTIATE_TEST_SUITE_P(Inproc, Conformance, testing::Combine(testing::Values(inproc_case()), world_sizes()));
//!   INSTANTIATE_TEST_SUITE_P(Inproc, OneWorld, testing::Values(inproc_case()));
//!   INSTANTIATE_TEST_SUITE_P(Inproc, Failure, testing::Values(inproc_case()));
class Conformance : public testing::TestWithParam<std::tuple<transport_case, std::size_t>> {
 protected:
  [[nodiscard]] static std::size_t size() { return std::get<1>(GetParam()); }
  static void run(std::function<void(communicator&)> const& body) { run_all(std::get<0>(GetParam()), size(), body); }
};

//! What one world size says for all.
class OneWorld : public testing::TestWithParam<transport_case> {};

//! What must hold when something goes wrong, with three ranks.
class Failure : public testing::TestWithParam<transport_case> {};

inline void PrintTo(transport_case const& transport, std::ostream* out) { *out << transport.name; }

[[nodiscard]] inline auto world_sizes() { return testing::Values<std::size_t>(1, 2, 3, 4, 7); }

}  // namespace gradwire::test
