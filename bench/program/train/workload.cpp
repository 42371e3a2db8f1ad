#include "program/train/workload.hpp"

#include <filesystem>
#include <system_error>

#include <fmt/format.h>

#include "program/common/context.hpp"
#include "program/common/json_lines.hpp"
#include "program/train/digits.hpp"
#include "program/train/quadratic.hpp"
#include "program/train/text.hpp"

namespace gradwire::program {
namespace {

[[noreturn]] void refuse(std::string const& name) {
  throw program_error{fmt::format("--workload '{}' is not known: use digits, text or quadratic", name)};
}

}  // namespace

std::string read_data(std::string const& file) {
  std::error_code missing;
  auto const kind = std::filesystem::status(file, missing).type();
  if (!missing && kind != std::filesystem::file_type::regular) {
    throw program_error{fmt::format("--data '{}' is {}, not a regular file: every rank reads it from its beginning",
                                    file,
                                    kind == std::filesystem::file_type::directory ? "a directory"
                                    : kind == std::filesystem::file_type::fifo    ? "a pipe"
                                                                                  : "a device or socket")};
  }
  return read_file(file);
}

workload_factory load_workload(train_config const& config) {
  if (config.workload == "digits") return load_digits(config);
  if (config.workload == "text") return load_text(config);
  if (config.workload == "quadratic") return load_quadratic(config);
  refuse(config.workload);
}

workload_defaults defaults_of(std::string const& workload, std::string const& model, std::string const& problem) {
  if (workload == "digits") return digits_defaults(model);
  if (workload == "text") return text_defaults();
  if (workload == "quadratic") return quadratic_defaults(problem);
  refuse(workload);
}

}  // namespace gradwire::program
