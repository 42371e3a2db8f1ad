#pragma once

#include <filesystem>
#include <mutex>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include <nlohmann/json.hpp>

namespace gradwire::program {

//! Keeps keys in the order they were written. NaN and infinities become null.
using record = nlohmann::ordered_json;
//! null when there is none.
[[nodiscard]] record optional_record(std::optional<double> const& value);

enum class open_mode : bool { truncate, append };

//! JSON lines: one record a line, each handed to the system whole before write() returns, so that a file is good up to
//! its last line whatever ends the process. Any thread may write.
class json_lines {
 public:
  json_lines() noexcept = default;  //!< writes nowhere
  //! `path`: a file, "-" for standard output, or empty for nowhere. Throws program_error that names the path and why.
  explicit json_lines(std::string const& path, open_mode mode = open_mode::truncate);
  ~json_lines();
  json_lines(json_lines const&) = delete;
  json_lines& operator=(json_lines const&) = delete;

  //! Throws program_error (a full disk, a closed pipe) that names the path and the reason.
  void write(record const& line);
  [[nodiscard]] bool open() const noexcept { return fd_ >= 0; }

 private:
  std::string path_;
  int fd_ = -1;
  std::mutex mutex_;
};

//! All records of a file. A last line without its newline (a writer that was killed) is left out. Throws program_error
//! that names file, line and what is wrong with it.
[[nodiscard]] std::vector<record> read_json_lines(std::filesystem::path const& file);

//! Writes a temporary file beside `file`, then renames it: readers see the old or the new bytes, nothing between.
//! Throws program_error that names the path and the reason.
void write_file(std::filesystem::path const& file, std::string_view bytes);
//! Throws program_error that names the path and the reason.
[[nodiscard]] std::string read_file(std::filesystem::path const& file);

}  // namespace gradwire::program
