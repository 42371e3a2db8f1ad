#include "program/common/output_directory.hpp"

#include <fcntl.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <string>
#include <system_error>

#include <fmt/format.h>

#include "program/common/context.hpp"

namespace gradwire::program {
namespace {

[[noreturn]] void fail(std::filesystem::path const& path, std::string const& option, std::string const& reason) {
  throw program_error{
      fmt::format("cannot use '{}' as output directory: {}; name another with {}", path.string(), reason, option)};
}

std::string message(int number) { return std::generic_category().message(number); }

// The lock is the kernel's (flock): it goes with the process however that ends. The file is for people.
std::string holder(int fd) {
  std::array<char, 32> text{};
  ssize_t const got = pread(fd, text.data(), text.size() - 1, 0);
  std::string id{text.data(), static_cast<std::size_t>(got > 0 ? got : 0)};
  id.erase(id.find_last_not_of("\n ") + 1);
  return id.empty() ? "another process" : "process " + id;
}

// The file may have been removed by its holder between open and flock; then the lock is on a file nobody sees.
bool still_there(int fd, std::filesystem::path const& path) {
  struct stat mine {};
  struct stat seen {};
  return fstat(fd, &mine) == 0 && stat(path.c_str(), &seen) == 0 && mine.st_ino == seen.st_ino &&
         mine.st_dev == seen.st_dev;
}

}  // namespace

output_directory::output_directory(std::filesystem::path path, std::string const& option)
    : path_{std::move(path)}, lock_{path_ / ".gradwire.lock"} {
  std::error_code failure;
  std::filesystem::create_directories(path_, failure);
  if (failure) fail(path_, option, failure.message());
  for (;;) {
    fd_ = open(lock_.c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0666);
    if (fd_ < 0) fail(path_, option, message(errno));
    if (flock(fd_, LOCK_EX | LOCK_NB) != 0) {
      int const reason = errno;
      std::string const who = holder(fd_);
      close(fd_);
      if (reason == EWOULDBLOCK) {
        throw program_error{fmt::format("'{}' is in use by {}: wait for it, or name another directory with {}",
                                        path_.string(), who, option)};
      }
      fail(path_, option, message(reason));
    }
    if (still_there(fd_, lock_)) break;
    close(fd_);
  }
  registration_.emplace(lock_);
  std::string const id = std::to_string(getpid()) + "\n";
  if (ftruncate(fd_, 0) != 0 || pwrite(fd_, id.data(), id.size(), 0) != static_cast<ssize_t>(id.size())) {
    int const reason = errno;
    unlink(lock_.c_str());
    close(fd_);
    fail(path_, option, message(reason));
  }
}

output_directory::~output_directory() {
  unlink(lock_.c_str());
  close(fd_);
}

}  // namespace gradwire::program
