#include "overlap/timeline.hpp"

#include <array>
#include <cerrno>
#include <fstream>
#include <string>
#include <system_error>

#include <nlohmann/json.hpp>

#include <gradwire/error.hpp>

#include "compressors/text.hpp"

namespace gradwire::overlap {
namespace {

constexpr std::array<std::string_view, 5> row_names{"ready", "encode", "wire", "decode", "exposed"};

double microseconds(timeline::clock::duration since) {
  return std::chrono::duration<double, std::micro>{since}.count();
}

nlohmann::json name_event(char const* kind, std::size_t rank, std::size_t row, std::string const& name) {
  return {{"name", kind}, {"ph", "M"}, {"pid", rank}, {"tid", row}, {"args", {{"name", name}}}};
}

nlohmann::json arguments(timeline::span const& of) {
  nlohmann::json result{{"step", of.step}};
  if (of.bucket != timeline::none) result["bucket"] = of.bucket;
  if (of.chunk != timeline::none) result["chunk"] = of.chunk;
  if (of.row == track::wire) result["bytes"] = of.bytes;
  return result;
}

}  // namespace

void timeline::add(span const& what) {
  std::scoped_lock const lock{mutex_};
  spans_.push_back(what);
}

void timeline::write(std::filesystem::path const& file, std::size_t rank) const {
  nlohmann::json events = nlohmann::json::array();
  events.push_back(name_event("process_name", rank, 0, join({"rank ", std::to_string(rank)})));
  for (std::size_t row = 0; row < row_names.size(); ++row) {
    events.push_back(name_event("thread_name", rank, row, std::string{row_names[row]}));
    events.push_back(
        {{"name", "thread_sort_index"}, {"ph", "M"}, {"pid", rank}, {"tid", row}, {"args", {{"sort_index", row}}}});
  }
  {
    std::scoped_lock const lock{mutex_};
    std::size_t number = 0;
    for (span const& each : spans_) {
      nlohmann::json event{{"name", each.name},
                           {"cat", row_names[static_cast<std::size_t>(each.row)]},
                           {"pid", rank},
                           {"tid", static_cast<std::size_t>(each.row)},
                           {"ts", microseconds(each.begin.time_since_epoch())},
                           {"args", arguments(each)}};
      if (each.row == track::ready) {
        // Buckets fill at the same time, and complete events of one row must nest: these are asynchronous ones.
        event["ph"] = "b";
        event["id"] = ++number;
        events.push_back(event);
        event["ph"] = "e";
        event["ts"] = microseconds(each.end.time_since_epoch());
      } else {
        event["ph"] = "X";
        event["dur"] = microseconds(each.end - each.begin);
      }
      events.push_back(std::move(event));
    }
  }
  std::ofstream out{file};
  out << nlohmann::json{{"traceEvents", std::move(events)}, {"displayTimeUnit", "ms"}}.dump() << '\n';
  out.close();
  if (!out) {
    throw error{errc::invalid_argument,
                join({"cannot write the timeline to '", file.string(), "' (", std::generic_category().message(errno),
                      "): give a file in a folder that exists and can be written"})};
  }
}

}  // namespace gradwire::overlap
