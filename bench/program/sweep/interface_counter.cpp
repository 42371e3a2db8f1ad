#include "program/sweep/interface_counter.hpp"

#include <algorithm>
#include <fstream>
#include <system_error>
#include <vector>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "program/common/context.hpp"

namespace gradwire::program::sweep {
namespace {

std::string names_under(std::filesystem::path const& root) {
  std::vector<std::string> names;
  std::error_code ignored;
  for (auto const& each : std::filesystem::directory_iterator{root, ignored}) {
    names.push_back(each.path().filename().string());
  }
  std::sort(names.begin(), names.end());
  return names.empty() ? "none is there" : fmt::format("use {}", fmt::join(names, ", "));
}

}  // namespace

interface_counter::interface_counter(std::string const& name, std::filesystem::path const& root)
    : file_{root / name / "statistics" / "tx_bytes"} {
  if (name.find('/') == std::string::npos && std::filesystem::exists(file_)) return;
  throw program_error{fmt::format("--count-interface {}: no such network interface; {}", name, names_under(root))};
}

std::uint64_t interface_counter::sent() const {
  std::uint64_t bytes = 0;
  if (std::ifstream{file_} >> bytes) return bytes;
  throw program_error{fmt::format("'{}' cannot be read any more: is the interface gone?", file_.string())};
}

}  // namespace gradwire::program::sweep
