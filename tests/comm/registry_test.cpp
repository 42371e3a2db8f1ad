#include <gtest/gtest.h>

#include <algorithm>
#include <string>

#include <gradwire/error.hpp>
#include <gradwire/transport.hpp>

namespace gradwire {
namespace {

TEST(Transports, AreSortedAndWhole) {
  auto const all = transports();
  EXPECT_TRUE(std::is_sorted(all.begin(), all.end(), [](auto const& a, auto const& b) { return a.name < b.name; }));
  for (transport_entry const& each : all) {
    EXPECT_FALSE(each.summary.empty()) << each.name;
    ASSERT_NE(each.unavailable, nullptr) << each.name;
    EXPECT_NE(each.make == nullptr, each.run == nullptr) << each.name << ": ranks are processes or threads";
  }
}

TEST(Transports, AreFoundByName) {
  EXPECT_EQ(find_transport("inproc").name, "inproc");
  try {
    static_cast<void>(find_transport("carrier_pigeon"));
    FAIL() << "was found";
  } catch (error const& unknown) {
    EXPECT_EQ(unknown.code(), errc::invalid_argument);
    EXPECT_NE(std::string{unknown.what()}.find("carrier_pigeon"), std::string::npos);
    EXPECT_NE(std::string{unknown.what()}.find("inproc"), std::string::npos);
  }
}

}  // namespace
}  // namespace gradwire
