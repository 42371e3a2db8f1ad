#include "program/common/temporary_directory.hpp"

#include <stdlib.h>
#include <unistd.h>

#include <cerrno>
#include <cstdlib>
#include <string>
#include <system_error>

#include <fmt/format.h>

#include "program/common/context.hpp"

namespace gradwire::program {

temporary_directory::temporary_directory() {
  // Not temp_directory_path(), which says neither which variable is wrong nor what it holds.
  char const* const wanted = std::getenv("TMPDIR");  // NOLINT(concurrency-mt-unsafe): read only
  std::filesystem::path const parent = wanted == nullptr || *wanted == '\0' ? "/tmp" : wanted;
  std::string name = (parent / "gradwire-XXXXXX").string();
  if (mkdtemp(name.data()) == nullptr) {
    throw program_error{fmt::format("cannot make a temporary folder in '{}'{}: {}; set TMPDIR to a folder with room",
                                    parent.string(), wanted == nullptr ? "" : ", which TMPDIR names",
                                    std::generic_category().message(errno))};
  }
  path_ = name;
  registration_.emplace(path_);
}

temporary_directory::~temporary_directory() {
  std::error_code ignored;
  std::filesystem::remove_all(path_, ignored);
}

}  // namespace gradwire::program
