#include "program/common/end_at_once.hpp"

#include <unistd.h>

#include <mutex>
#include <system_error>

#include "program/common/context.hpp"

namespace gradwire::program {
namespace {

struct paths {
  std::mutex mutex;
  std::list<std::filesystem::path> all;
};

paths& registered() {
  static paths the_paths;
  return the_paths;
}

}  // namespace

removed_at_end::removed_at_end(std::filesystem::path path) {
  std::scoped_lock const lock{registered().mutex};
  place_ = registered().all.insert(registered().all.end(), std::move(path));
}

removed_at_end::~removed_at_end() {
  std::scoped_lock const lock{registered().mutex};
  registered().all.erase(place_);
}

void end_at_once() noexcept {
  try {
    std::scoped_lock const lock{registered().mutex};
    for (auto const& path : registered().all) {
      std::error_code ignored;
      std::filesystem::remove_all(path, ignored);
    }
    _exit(static_cast<int>(exit_code::interrupted));
  } catch (std::exception const&) {  // out of memory for a name, or for the lock
    _exit(static_cast<int>(exit_code::interrupted));
  }
}

}  // namespace gradwire::program
