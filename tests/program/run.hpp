#pragma once

#include <unistd.h>

#include <cstdlib>
#include <filesystem>
#include <sstream>
#include <stdexcept>
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include "program/common/context.hpp"
#include "program/common/json_lines.hpp"

namespace gradwire::program::testing {

//! A folder that goes with the test.
class temporary_folder {
 public:
  temporary_folder() {
    std::string name = (std::filesystem::temp_directory_path() / "gradwire-test-XXXXXX").string();
    if (mkdtemp(name.data()) == nullptr) throw std::runtime_error{"mkdtemp failed"};
    path_ = name;
  }
  ~temporary_folder() {
    std::error_code ignored;
    std::filesystem::remove_all(path_, ignored);
  }
  temporary_folder(temporary_folder const&) = delete;
  temporary_folder& operator=(temporary_folder const&) = delete;
  [[nodiscard]] std::string operator/(std::string const& name) const { return (path_ / name).string(); }

 private:
  std::filesystem::path path_;
};

struct outcome {
  int status = -1;
  std::string out;
  std::string err;
};

//! The whole program in this process.
inline outcome run(std::vector<std::string> const& arguments) {
  std::vector<char const*> argv{"gradwire"};
  for (std::string const& one : arguments) argv.push_back(one.c_str());
  ::testing::internal::CaptureStdout();
  ::testing::internal::CaptureStderr();
  outcome result;
  result.status = run_program(static_cast<int>(argv.size()), argv.data());
  result.out = ::testing::internal::GetCapturedStdout();
  result.err = ::testing::internal::GetCapturedStderr();
  return result;
}

//! "a b c" as arguments.
inline std::vector<std::string> words(std::string const& text) {
  std::istringstream stream{text};
  std::vector<std::string> result;
  for (std::string word; stream >> word;) result.push_back(word);
  return result;
}

inline std::vector<record> records(std::string const& lines) {
  std::istringstream stream{lines};
  std::vector<record> result;
  for (std::string line; std::getline(stream, line);) result.push_back(record::parse(line));
  return result;
}

//! Value of the last eval record of a metric; NaN without one.
inline double last_eval(std::vector<record> const& all, std::string const& metric) {
  double value = std::numeric_limits<double>::quiet_NaN();
  for (record const& one : all) {
    if (one["event"] == "eval" && one["metric"] == metric && one["value"].is_number()) value = one["value"];
  }
  return value;
}

}  // namespace gradwire::program::testing
