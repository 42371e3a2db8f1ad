#include "program/common/console.hpp"

#include <pthread.h>
#include <signal.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <charconv>
#include <chrono>
#include <cmath>
#include <system_error>

#include <CLI/CLI.hpp>

#include <gradwire/stream.hpp>

#include "program/common/context.hpp"
#include "program/common/numbers.hpp"

namespace gradwire::program {
namespace {

// Characters, not bytes: UTF-8 continuation bytes have no width.
std::size_t width(std::string_view text) {
  return static_cast<std::size_t>(
      std::count_if(text.begin(), text.end(), [](char c) { return (static_cast<unsigned char>(c) & 0xc0u) != 0x80u; }));
}

std::string padded(std::string_view cell, std::size_t to, align side) {
  std::string const space(to - std::min(to, width(cell)), ' ');
  return side == align::left ? std::string{cell} + space : space + std::string{cell};
}

double now() { return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count(); }

}  // namespace

void add_output_options(CLI::App& command, output_options& options, std::string const& records) {
  command.add_option("--json", options.json, "write JSON lines: " + records + "; - is standard output")
      ->type_name("FILE");
  command.add_flag("--quiet", options.quiet, "no table and no progress");
}

void add_timeout_option(CLI::App& command, std::size_t& timeout_ms) {
  command
      .add_option_function<double>(
          "--timeout", [&timeout_ms](double seconds) { timeout_ms = static_cast<std::size_t>(seconds * 1000); },
          "longest wait for another rank")
      ->type_name("SECONDS")
      ->default_str(fmt::format("{}", default_timeout.count() / 1000))
      ->transform(number_of_seconds(0.001, 1e6));
}

console::console(output_options const& options)
    : to_{options.quiet         ? nullptr
          : options.json == "-" ? stderr
                                : stdout} {}

void console::write(std::string_view text) {
  if (to_ == nullptr) return;
  if (to_ == stderr) return write_to_stderr(text);
  if (std::fwrite(text.data(), 1, text.size(), to_) != text.size() || std::fflush(to_) != 0) {
    throw program_error{"cannot write to standard output: " + std::generic_category().message(errno)};
  }
}

void write_to_stderr(std::string_view text) noexcept {
  // A pipe without a reader must not end the process by a signal: it has an exit status to give.
  sigset_t broken_pipe{};
  sigset_t before{};
  sigemptyset(&broken_pipe);
  sigaddset(&broken_pipe, SIGPIPE);
  pthread_sigmask(SIG_BLOCK, &broken_pipe, &before);
  while (!text.empty()) {
    ssize_t const done = ::write(STDERR_FILENO, text.data(), text.size());
    if (done >= 0) {
      text.remove_prefix(static_cast<std::size_t>(done));
    } else if (errno != EINTR) {
      break;
    }
  }
  timespec const now_or_never{};
  if (!text.empty() && errno == EPIPE) sigtimedwait(&broken_pipe, nullptr, &now_or_never);
  pthread_sigmask(SIG_SETMASK, &before, nullptr);
}

void print_error(std::string_view text) noexcept {
  try {
    write_to_stderr(fmt::format("gradwire: {}\n", one_line(text)));
  } catch (std::exception const&) {
    write_to_stderr("gradwire: out of memory\n");
  }
}

std::string one_line(std::string_view text) {
  constexpr std::size_t head = 900;
  constexpr std::size_t tail = 500;
  auto const continues = [&](std::size_t at) { return (static_cast<unsigned char>(text[at]) & 0xc0u) == 0x80u; };
  std::size_t cut = text.size();
  std::size_t resume = text.size();
  if (text.size() > head + tail + 100) {
    cut = head;
    resume = text.size() - tail;
    while (continues(cut)) --cut;  // not within a character
    while (resume < text.size() && continues(resume)) ++resume;
  }
  std::string line;
  for (std::size_t i = 0; i < text.size(); ++i) {
    if (i == cut) {
      line += fmt::format(" [{} bytes left out] ", resume - cut);
      i = resume;
      if (i == text.size()) break;
    }
    auto const c = static_cast<unsigned char>(text[i]);
    if (c == '\n') {
      line += "\\n";
    } else if (c < 0x20 || c == 0x7f) {
      line += fmt::format("\\x{:02x}", c);
    } else {
      line += text[i];
    }
  }
  return line;
}

void table::add(std::vector<std::string> cells) {
  cells.resize(columns_.size());
  rows_.push_back(std::move(cells));
}

std::string table::text() const {
  std::vector<std::size_t> widths;
  for (std::size_t c = 0; c < columns_.size(); ++c) {
    std::size_t most = width(columns_[c].title);
    for (auto const& row : rows_) most = std::max(most, width(row[c]));
    widths.push_back(most);
  }
  std::string result;
  auto const line = [&](auto const& cell) {
    std::string text;
    for (std::size_t c = 0; c < columns_.size(); ++c) {
      text += (c == 0 ? "" : "  ") + padded(cell(c), widths[c], columns_[c].side);
    }
    text.erase(text.find_last_not_of(' ') + 1);
    result += text + "\n";
  };
  line([&](std::size_t c) -> std::string const& { return columns_[c].title; });
  for (auto const& row : rows_) line([&](std::size_t c) -> std::string const& { return row[c]; });
  return result;
}

progress::progress(output_options const& options, std::string title, std::size_t total)
    : on_{!options.quiet && isatty(STDERR_FILENO) == 1}, title_{std::move(title)}, total_{total} {}

progress::~progress() { clear(); }

void progress::show(std::size_t done, std::string_view note) {
  if (!on_) return;
  double const time = now();
  if (time - drawn_at_ < 0.1 && done < total_) return;
  drawn_at_ = time;
  visible_ = true;
  constexpr std::size_t cells = 24;
  std::size_t const filled = total_ == 0 ? cells : std::min(done, total_) * cells / total_;
  std::string const bar = std::string(filled, '=') + std::string(cells - filled, ' ');
  write_to_stderr(fmt::format("\r\x1b[K{} [{}] {}/{} {}", title_, bar, done, total_, note));
}

void progress::clear() {
  if (!visible_) return;
  visible_ = false;
  write_to_stderr("\r\x1b[K");
}

std::size_t parse_bytes(std::string_view text, std::string_view option) {
  double number = 0;
  auto const [end, failure] = std::from_chars(text.data(), text.data() + text.size(), number);
  std::string_view unit{end, static_cast<std::size_t>(text.data() + text.size() - end)};
  if (unit.ends_with("iB")) unit.remove_suffix(2);
  if (unit.ends_with("B")) unit.remove_suffix(1);
  double const factor = unit.empty()                 ? 1
                        : unit == "K" || unit == "k" ? 0x1p10
                        : unit == "M" || unit == "m" ? 0x1p20
                        : unit == "G" || unit == "g" ? 0x1p30
                                                     : 0;
  if (failure != std::errc{} || factor == 0 || !(number >= 0) || number * factor > 0x1p53) {
    throw program_error{fmt::format("{}: '{}' is not a size: use bytes such as 4096, 64K, 25M or 1G", option, text)};
  }
  return static_cast<std::size_t>(std::llround(number * factor));
}

std::string format_bytes(double bytes) {
  if (bytes < 1024) return fmt::format("{:.0f} B", bytes);
  if (bytes < 0x1p20) return fmt::format("{:.4g} KiB", bytes / 0x1p10);
  if (bytes < 0x1p30) return fmt::format("{:.4g} MiB", bytes / 0x1p20);
  return fmt::format("{:.4g} GiB", bytes / 0x1p30);
}

std::string format_seconds(double seconds) {
  if (seconds < 1e-3) return fmt::format("{:.3g} µs", seconds * 1e6);
  if (seconds < 1) return fmt::format("{:.3g} ms", seconds * 1e3);
  if (seconds < 120) return fmt::format("{:.3g} s", seconds);
  return fmt::format("{:.0f} min {:02.0f} s", std::floor(seconds / 60), std::fmod(seconds, 60));
}

}  // namespace gradwire::program
