#include "program/ab/runs.hpp"

#include <algorithm>
#include <cctype>
#include <fstream>

#include <fmt/format.h>

#include "program/common/context.hpp"

namespace gradwire::program {
namespace {

void set(record& line, char const* key, std::optional<double> const& value, bool whole) {
  if (!value) {
    line[key] = nullptr;
  } else if (whole && *value >= 0 && *value < 0x1p53) {
    line[key] = static_cast<std::uint64_t>(*value);
  } else {
    line[key] = *value;
  }
}

std::optional<double> get(record const& line, char const* key) {
  auto const& value = line.at(key);
  return value.is_null() ? std::nullopt : std::optional{value.get<double>()};
}

run_status status_from(std::string const& text) {
  for (auto const value : {run_status::ok, run_status::failed, run_status::diverged}) {
    if (text == to_string(value)) return value;
  }
  throw program_error{fmt::format("'{}' is not the status of a run: ok, failed or diverged", text)};
}

std::string replaced(std::string text, std::string_view from, std::string_view to) {
  for (auto at = text.find(from); at != text.npos; at = text.find(from, at + to.size())) {
    text.replace(at, from.size(), to);
  }
  return text;
}

// FNV-1a, http://www.isthe.com/chongo/tech/comp/fnv: only to tell file names apart.
std::uint32_t name_hash(std::string_view text) {
  std::uint32_t hash = 2166136261u;
  for (char const c : text) hash = (hash ^ static_cast<unsigned char>(c)) * 16777619u;
  return hash;
}

}  // namespace

std::string_view to_string(run_status value) noexcept {
  switch (value) {
    case run_status::ok: return "ok";
    case run_status::diverged: return "diverged";
    case run_status::failed: break;
  }
  return "failed";
}

record run::to_record() const {
  record line{{"event", "run"}, {"arm", arm}, {"seed", seed}, {"status", to_string(status)}};
  set(line, "value", value, false);
  set(line, "steps", steps, true);
  set(line, "seconds", seconds, false);
  set(line, "raw_bytes", raw_bytes, true);
  set(line, "wire_bytes", wire_bytes, true);
  if (!reason.empty()) line["reason"] = reason;
  line["log"] = log;
  line["metrics"] = metrics_file;
  line["command"] = command;
  return line;
}

run run::from_record(record const& line) {
  run result;
  result.arm = line.at("arm").get<std::string>();
  result.seed = line.at("seed").get<std::uint64_t>();
  result.status = status_from(line.at("status").get<std::string>());
  result.value = get(line, "value");
  result.steps = get(line, "steps");
  result.seconds = get(line, "seconds");
  result.raw_bytes = get(line, "raw_bytes");
  result.wire_bytes = get(line, "wire_bytes");
  result.reason = line.value("reason", "");
  result.log = line.at("log").get<std::string>();
  result.metrics_file = line.at("metrics").get<std::string>();
  result.command = line.at("command").get<std::vector<std::string>>();
  return result;
}

std::vector<std::string> fill_in(std::span<std::string const> command, bool shell, std::string_view spec,
                                 std::uint64_t seed, std::string_view metrics_file) {
  auto const quoted = [shell](std::string_view text) { return shell ? shell_word(text) : std::string{text}; };
  std::vector<std::string> result;
  for (std::string argument : command) {
    // The spec comes last: it is the only one that could contain a placeholder of its own.
    argument = replaced(std::move(argument), "{seed}", std::to_string(seed));
    argument = replaced(std::move(argument), "{metrics}", quoted(metrics_file));
    result.push_back(replaced(std::move(argument), "{spec}", quoted(spec)));
  }
  if (!shell) return result;
  return {"sh", "-c", fmt::format("{}", fmt::join(result, " "))};
}

std::string run_name(std::string_view arm, std::uint64_t seed) {
  std::string name;
  for (char const c : arm.substr(0, 80)) {
    bool const keep =
        std::isalnum(static_cast<unsigned char>(c)) != 0 || std::string_view{"_-+=."}.find(c) != std::string_view::npos;
    if (keep) {
      name += c;
    } else if (!name.ends_with('_')) {
      name += '_';
    }
  }
  if (name != arm) name += fmt::format("-{:08x}", name_hash(arm));
  return fmt::format("{}-seed{}", name, seed);
}

std::string last_lines(std::filesystem::path const& file, std::size_t lines) {
  std::ifstream in{file, std::ios::binary | std::ios::ate};
  if (!in) return {};
  auto const size = static_cast<std::streamoff>(in.tellg());
  auto const length = std::min<std::streamoff>(size, 4096);
  in.seekg(size - length);
  std::string bytes(static_cast<std::size_t>(length), '\0');
  in.read(bytes.data(), length);
  std::erase_if(bytes, [](unsigned char c) { return c < 32 && c != '\n' && c != '\t'; });
  bytes.erase(bytes.find_last_not_of("\n\t ") + 1);
  auto begin = bytes.size();
  for (std::size_t i = 0; i < lines && begin != bytes.npos && begin > 0; ++i) begin = bytes.rfind('\n', begin - 1);
  if (begin != bytes.npos && begin < bytes.size()) bytes.erase(0, bytes[begin] == '\n' ? begin + 1 : begin);
  // Through JSON: bytes that are not UTF-8 become U+FFFD.
  return record::parse(record{bytes}.dump(-1, ' ', false, record::error_handler_t::replace)).at(0).get<std::string>();
}

}  // namespace gradwire::program
