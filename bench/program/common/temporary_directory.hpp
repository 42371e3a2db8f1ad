#pragma once

#include <filesystem>
#include <optional>

#include "program/common/end_at_once.hpp"

namespace gradwire::program {

//! A folder of its own under TMPDIR (or /tmp), gone with what is in it when this object ends.
class temporary_directory {
 public:
  //! Throws program_error that names the path and the reason.
  temporary_directory();
  ~temporary_directory();
  temporary_directory(temporary_directory const&) = delete;
  temporary_directory& operator=(temporary_directory const&) = delete;

  [[nodiscard]] std::filesystem::path const& path() const noexcept { return path_; }
  [[nodiscard]] std::filesystem::path operator/(std::filesystem::path const& name) const { return path_ / name; }

 private:
  std::filesystem::path path_;
  std::optional<removed_at_end> registration_;
};

}  // namespace gradwire::program
