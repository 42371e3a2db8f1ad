#pragma once

#include <filesystem>
#include <list>

namespace gradwire::program {

//! While one lives, end_at_once() removes `path` and what is in it: for what a destructor would have removed.
class removed_at_end {
 public:
  explicit removed_at_end(std::filesystem::path path);
  ~removed_at_end();
  removed_at_end(removed_at_end const&) = delete;
  removed_at_end& operator=(removed_at_end const&) = delete;

 private:
  std::list<std::filesystem::path>::iterator place_;
};

//! Ends the process with the status of an interruption, whatever its threads wait for, without a destructor. Any
//! thread.
[[noreturn]] void end_at_once() noexcept;

}  // namespace gradwire::program
