#pragma once

#include <filesystem>
#include <optional>
#include <string>

#include "program/common/end_at_once.hpp"

namespace gradwire::program {

//! A folder that one run at a time may fill. Made if it is not there; writing is tried before any work is done; a lock
//! file with this process's id keeps a second run out. A lock that a dead process left behind does not count.
class output_directory {
 public:
  //! `option` names it in texts. Throws program_error: it cannot be made or written to (with the reason), or the run
  //! that holds it (with its id).
  explicit output_directory(std::filesystem::path path, std::string const& option = "--out");
  ~output_directory();
  output_directory(output_directory const&) = delete;
  output_directory& operator=(output_directory const&) = delete;

  [[nodiscard]] std::filesystem::path const& path() const noexcept { return path_; }
  [[nodiscard]] std::filesystem::path operator/(std::filesystem::path const& name) const { return path_ / name; }

 private:
  std::filesystem::path path_;
  std::filesystem::path lock_;
  int fd_ = -1;
  std::optional<removed_at_end> registration_;
};

}  // namespace gradwire::program
