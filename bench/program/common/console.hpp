#pragma once

#include <cstddef>
#include <cstdio>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <fmt/format.h>

namespace CLI {
class App;
}

namespace gradwire::program {

//! `--json FILE` and `--quiet`.
struct output_options {
  std::string json;  //!< empty: none; "-": standard output
  bool quiet = false;
};
//! `records`: what the JSON lines are, for --help.
void add_output_options(CLI::App& command, output_options& options, std::string const& records);

//! `--timeout SECONDS` (fractions are fine), into milliseconds.
void add_timeout_option(CLI::App& command, std::size_t& timeout_ms);

//! What people read: standard output, or standard error when JSON lines go to standard output; nothing with --quiet.
class console {
 public:
  explicit console(output_options const& options);
  template <class... T>
  void print(fmt::format_string<T...> format, T&&... values) {
    write(fmt::format(format, std::forward<T>(values)...));
  }
  void write(std::string_view text);

 private:
  std::FILE* to_;
};

//! To standard error. A failure (it is closed, its disk is full, its reader went away) is ignored: there is nobody to
//! tell, and the exit status says how the work ended.
void write_to_stderr(std::string_view text) noexcept;
//! "gradwire: TEXT" on standard error, as one line (see one_line). Does not fail.
void print_error(std::string_view text) noexcept;
//! `text` for a line of a terminal: control characters are escaped, and a very long text loses its middle.
[[nodiscard]] std::string one_line(std::string_view text);

enum class align : bool { left, right };

//! Columns for people, as wide as their widest cell.
class table {
 public:
  struct column {
    std::string title;
    align side = align::right;
  };
  explicit table(std::vector<column> columns) : columns_{std::move(columns)} {}
  //! As many cells as columns.
  void add(std::vector<std::string> cells);
  [[nodiscard]] std::string text() const;

 private:
  std::vector<column> columns_;
  std::vector<std::vector<std::string>> rows_;
};

//! A line that redraws itself on standard error; only on a terminal, and never with --quiet.
class progress {
 public:
  progress(output_options const& options, std::string title, std::size_t total);
  ~progress();
  progress(progress const&) = delete;
  progress& operator=(progress const&) = delete;
  //! Whether it draws at all.
  [[nodiscard]] bool on() const noexcept { return on_; }
  //! Draws at most ten times a second.
  void show(std::size_t done, std::string_view note = {});
  //! Clears the line so that other text can be written.
  void clear();

 private:
  bool on_;
  std::string title_;
  std::size_t total_;
  double drawn_at_ = -1;
  bool visible_ = false;
};

//! "512", "64K", "2M", "1.5G": powers of 1024, as nccl-tests takes them. Throws program_error naming `option`.
[[nodiscard]] std::size_t parse_bytes(std::string_view text, std::string_view option);
//! 1234567 -> "1.18 MiB".
[[nodiscard]] std::string format_bytes(double bytes);
//! 0.00123 -> "1.23 ms".
[[nodiscard]] std::string format_seconds(double seconds);

}  // namespace gradwire::program
