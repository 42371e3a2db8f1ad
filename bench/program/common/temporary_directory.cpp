#include "program/common/temporary_directory.hpp"

#include <stdlib.h>
#include <unistd.h>

#include <cerrno>
#include <string>
#include <system_error>

#include <fmt/format.h>

#include "program/common/context.hpp"

namespace gradwire::program {

temporary_directory::temporary_directory() {
  std::string name = (std::filesystem::temp_directory_path() / "gradwire-XXXXXX").string();
  if (mkdtemp(name.data()) == nullptr) {
    throw program_error{fmt::format("cannot make a temporary folder '{}': {}; set TMPDIR to a folder with room", name,
                                    std::generic_category().message(errno))};
  }
  path_ = name;
}

temporary_directory::~temporary_directory() {
  std::error_code ignored;
  std::filesystem::remove_all(path_, ignored);
}

}  // namespace gradwire::program
