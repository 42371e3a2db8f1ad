#include "program/common/json_lines.hpp"

#include <fcntl.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>

#include <fmt/format.h>

#include "program/common/context.hpp"

namespace gradwire::program {
namespace {

[[noreturn]] void fail(std::string_view what, std::string_view path, int reason) {
  throw program_error{fmt::format("cannot {} '{}': {}", what, path == "-" ? "standard output" : path,
                                  std::generic_category().message(reason))};
}

void write_all(int fd, std::string_view bytes, std::string_view path) {
  while (!bytes.empty()) {
    ssize_t const done = ::write(fd, bytes.data(), bytes.size());
    if (done >= 0) {
      bytes.remove_prefix(static_cast<std::size_t>(done));
    } else if (errno != EINTR) {
      fail("write to", path, errno);
    }
  }
}

}  // namespace

record optional_record(std::optional<double> const& value) { return value ? record(*value) : record(nullptr); }

json_lines::json_lines(std::string const& path, open_mode mode) : path_{path} {
  if (path.empty()) return;
  if (path == "-") {
    fd_ = STDOUT_FILENO;
    return;
  }
  int const how = mode == open_mode::append ? O_APPEND : O_TRUNC;
  fd_ = ::open(path.c_str(), O_WRONLY | O_CREAT | O_CLOEXEC | how, 0666);
  if (fd_ < 0) fail("open", path, errno);
}

json_lines::~json_lines() {
  if (fd_ >= 0 && path_ != "-") ::close(fd_);
}

void json_lines::write(record const& line) {
  if (fd_ < 0) return;
  std::string const text = line.dump() + "\n";
  std::scoped_lock const lock{mutex_};
  write_all(fd_, text, path_);
}

std::vector<record> read_json_lines(std::filesystem::path const& file) {
  std::string const text = read_file(file);
  std::vector<record> records;
  std::size_t number = 1;
  for (std::size_t begin = 0, end = 0; (end = text.find('\n', begin)) != std::string::npos; begin = end + 1, ++number) {
    std::string_view const line{text.data() + begin, end - begin};
    if (line.empty()) continue;
    try {
      records.push_back(record::parse(line));
    } catch (record::parse_error const& failure) {
      throw program_error{fmt::format("{}:{}: not a JSON record: {}", file.string(), number, failure.what())};
    }
  }
  return records;
}

void write_file(std::filesystem::path const& file, std::string_view bytes) {
  std::string const temporary = file.string() + "." + std::to_string(getpid()) + ".tmp";
  int const fd = ::open(temporary.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0666);
  if (fd < 0) fail("write", file.string(), errno);
  try {
    write_all(fd, bytes, file.string());
    if (fsync(fd) != 0 && errno != EINVAL && errno != EROFS) fail("write", file.string(), errno);
  } catch (...) {
    ::close(fd);
    unlink(temporary.c_str());
    throw;
  }
  ::close(fd);
  if (rename(temporary.c_str(), file.c_str()) != 0) {
    int const reason = errno;
    unlink(temporary.c_str());
    fail("write", file.string(), reason);
  }
}

std::string read_file(std::filesystem::path const& file) {
  int const fd = ::open(file.c_str(), O_RDONLY | O_CLOEXEC);
  if (fd < 0) fail("read", file.string(), errno);
  std::string text;
  std::vector<char> piece(std::size_t{1} << 16);
  for (;;) {
    ssize_t const got = ::read(fd, piece.data(), piece.size());
    if (got > 0) {
      text.append(piece.data(), static_cast<std::size_t>(got));
    } else if (got == 0) {
      break;
    } else if (errno != EINTR) {
      int const reason = errno;
      ::close(fd);
      fail("read", file.string(), reason);
    }
  }
  ::close(fd);
  return text;
}

}  // namespace gradwire::program
