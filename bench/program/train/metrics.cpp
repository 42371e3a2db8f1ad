#include "program/train/metrics.hpp"

#include <filesystem>

namespace gradwire::program {
namespace {

// Leaves the start and what the resumed run will not write again.
void cut(std::string const& path, std::size_t step) {
  if (!std::filesystem::is_regular_file(path)) return;
  std::string kept;
  for (record const& line : read_json_lines(path)) {
    bool const start = line.value("event", "") == "start" && line.value("resumed_at", std::size_t{0}) <= step;
    if (start ||
        (line.contains("step") && line["step"].is_number_unsigned() && line["step"].get<std::size_t>() <= step)) {
      kept += line.dump() + "\n";
    }
  }
  write_file(path, kept);
}

}  // namespace

metrics_log::metrics_log(std::vector<std::string> const& paths, std::size_t resumed_at) {
  for (std::string const& path : paths) {
    if (path.empty()) continue;
    bool const keep = resumed_at > 0 && path != "-";
    if (keep) cut(path, resumed_at);
    files_.push_back(std::make_unique<json_lines>(path, keep ? open_mode::append : open_mode::truncate));
  }
}

void metrics_log::write(record const& line) {
  for (auto const& file : files_) file->write(line);
}

}  // namespace gradwire::program
