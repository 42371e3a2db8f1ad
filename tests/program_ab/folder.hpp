#pragma once

#include <unistd.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <sstream>
#include <string>
#include <string_view>

namespace gradwire::program {

//! A folder for one test, gone with it.
class temporary_folder {
 public:
  temporary_folder() {
    std::string name = (std::filesystem::temp_directory_path() / "gradwire_ab_XXXXXX").string();
    path_ = mkdtemp(name.data());
  }
  ~temporary_folder() {
    std::error_code ignored;
    std::filesystem::remove_all(path_, ignored);
  }
  temporary_folder(temporary_folder const&) = delete;
  temporary_folder& operator=(temporary_folder const&) = delete;

  [[nodiscard]] std::filesystem::path operator/(std::string_view name) const { return path_ / name; }
  std::filesystem::path write(std::string_view name, std::string_view text) const {
    std::ofstream{path_ / name, std::ios::binary} << text;
    return path_ / name;
  }
  [[nodiscard]] std::string read(std::string_view name) const {
    std::ostringstream text;
    text << std::ifstream{path_ / name, std::ios::binary}.rdbuf();
    return text.str();
  }

 private:
  std::filesystem::path path_;
};

}  // namespace gradwire::program
