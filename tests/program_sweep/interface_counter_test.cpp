#include "program/sweep/interface_counter.hpp"

#include <stdlib.h>

#include <filesystem>
#include <fstream>
#include <string>

#include <gtest/gtest.h>

#include "program/common/context.hpp"

namespace gradwire::program::sweep {
namespace {

class InterfaceCounter : public testing::Test {
 protected:
  InterfaceCounter() {
    std::string name = (std::filesystem::temp_directory_path() / "gradwire-net-XXXXXX").string();
    if (mkdtemp(name.data()) != nullptr) root_ = name;
    std::filesystem::create_directories(root_ / "eth7" / "statistics");
    set("1234\n");
  }
  ~InterfaceCounter() override {
    std::error_code ignored;
    std::filesystem::remove_all(root_, ignored);
  }
  void set(char const* text) const { std::ofstream{root_ / "eth7" / "statistics" / "tx_bytes"} << text; }

  std::filesystem::path root_;
};

TEST_F(InterfaceCounter, ReadsTheBytesSentAfreshEachTime) {
  interface_counter const counter{"eth7", root_};
  EXPECT_EQ(counter.sent(), 1234U);
  set("18446744073709551615\n");
  EXPECT_EQ(counter.sent(), 18446744073709551615U);
}

TEST_F(InterfaceCounter, RefusesAnUnknownInterfaceAndNamesTheKnownOnes) {
  for (char const* const name : {"eth8", "../eth7", "eth7/.", ""}) {
    try {
      interface_counter const counter{name, root_};
      FAIL() << "accepted '" << name << "'";
    } catch (program_error const& failure) {
      EXPECT_NE(std::string{failure.what()}.find("use eth7"), std::string::npos) << failure.what();
    }
  }
}

TEST_F(InterfaceCounter, SaysWhenTheInterfaceIsGone) {
  interface_counter const counter{"eth7", root_};
  std::filesystem::remove_all(root_ / "eth7");
  EXPECT_THROW(static_cast<void>(counter.sent()), program_error);
}

}  // namespace
}  // namespace gradwire::program::sweep
