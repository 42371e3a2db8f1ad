#include <gradwire/handshake.hpp>

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <optional>
#include <string_view>
#include <utility>
#include <vector>

#include <gradwire/error.hpp>

namespace gradwire {
namespace {

using fields_view = std::span<config_field const>;

// Fields as text: length-prefixed name and value, one after the other, so that no value can imitate another layout.
std::string serialise(fields_view fields) {
  std::string text;
  auto const put = [&](std::string const& value) {
    std::uint64_t const length = value.size();
    text.append(reinterpret_cast<char const*>(&length), sizeof length);
    text += value;
  };
  for (auto const& [name, value] : fields) {
    put(name);
    put(value);
  }
  return text;
}

std::vector<config_field> parse(std::string_view text) {
  std::vector<config_field> fields;
  auto const take = [&] {
    std::uint64_t length = 0;
    if (text.size() < sizeof length) throw error{errc::communicator, "a rank sent a configuration cut short"};
    std::memcpy(&length, text.data(), sizeof length);
    text.remove_prefix(sizeof length);
    if (text.size() < length) throw error{errc::communicator, "a rank sent a configuration cut short"};
    std::string value{text.substr(0, length)};
    text.remove_prefix(length);
    return value;
  };
  while (!text.empty()) {
    auto name = take();
    auto value = take();
    fields.push_back({std::move(name), std::move(value)});
  }
  return fields;
}

// FNV-1a, 64 bits (Fowler, Noll, Vo; draft-eastlake-fnv). Configurations differ by accident, not by malice.
std::uint64_t digest(std::string_view text) {
  std::uint64_t hash = 0xcbf29ce484222325u;
  for (char const c : text) hash = (hash ^ static_cast<unsigned char>(c)) * 0x100000001b3u;
  return hash;
}

std::vector<std::string> gather_texts(communicator& comm, std::string const& own,
                                      std::vector<std::size_t> const& sizes) {
  std::size_t total = 0;
  for (auto const size : sizes) total += size;
  std::string all(total, '\0');
  comm.all_gather(std::as_bytes(std::span{own}), std::as_writable_bytes(std::span{all}), sizes, {}).wait();
  std::vector<std::string> texts;
  std::size_t offset = 0;
  for (auto const size : sizes) {
    texts.push_back(all.substr(offset, size));
    offset += size;
  }
  return texts;
}

// Long values differ somewhere: shows the surroundings of the first difference, from a line or list entry's start.
std::string shorten(std::string const& value, std::string const& other) {
  constexpr std::size_t most = 120;
  if (value.size() <= most) return "'" + value + "'";
  auto const differs = static_cast<std::size_t>(
      std::mismatch(value.begin(), value.end(), other.begin(), other.end()).first - value.begin());
  auto const separator = differs == 0 ? std::string::npos : value.find_last_of(",;\n", differs - 1);
  auto begin = separator == std::string::npos ? 0 : separator + 1;
  if (differs - begin > most / 2) begin = differs - most / 2;
  auto const end = std::min(value.find_first_of(",;\n", std::max(differs, begin)), begin + most);
  auto text = value.substr(begin, end == std::string::npos ? most : end - begin);
  return std::string{begin == 0 ? "'" : "'… "} + text + (begin + text.size() < value.size() ? " …'" : "'");
}

std::string const* find(std::vector<config_field> const& fields, std::string const& name) {
  auto const at = std::find_if(fields.begin(), fields.end(), [&](auto const& field) { return field.name == name; });
  return at == fields.end() ? nullptr : &at->value;
}

std::string describe(std::vector<std::vector<config_field>> const& ranks, std::string const& name) {
  auto const* const first = find(ranks[0], name);
  std::string differing;
  std::string reference = first == nullptr ? "nothing" : "'" + *first + "'";
  for (std::size_t r = 1; r < ranks.size(); ++r) {
    auto const* const theirs = find(ranks[r], name);
    if (first != nullptr && theirs != nullptr && *first == *theirs) continue;
    if (first == nullptr && theirs == nullptr) continue;
    if (differing.empty() && first != nullptr) reference = shorten(*first, theirs == nullptr ? "" : *theirs);
    differing += ", rank " + std::to_string(r) + " has " +
                 (theirs == nullptr ? "nothing" : shorten(*theirs, first == nullptr ? "" : *first));
  }
  if (differing.empty()) return {};
  return "'" + name + "': rank 0 has " + reference + differing;
}

[[noreturn]] void throw_mismatch(std::vector<std::vector<config_field>> const& ranks) {
  std::vector<std::string> names;
  for (auto const& fields : ranks) {
    for (auto const& field : fields) {
      if (std::find(names.begin(), names.end(), field.name) == names.end()) names.push_back(field.name);
    }
  }
  std::string text;
  for (auto const& name : names) {
    auto const difference = describe(ranks, name);
    if (!difference.empty()) text += (text.empty() ? "" : "; ") + difference;
  }
  if (text.empty()) text = "the order of the fields";
  throw error{errc::mismatch,
              "the ranks' configurations differ in " + text + "; start all ranks with the same program and options"};
}

}  // namespace

void require_equal_configuration(communicator& comm, std::span<config_field const> fields) {
  auto const own = serialise(fields);
  struct summary {
    std::uint64_t digest = 0;
    std::uint64_t size = 0;
    bool operator==(summary const&) const = default;
  };
  summary const mine{digest(own), own.size()};
  std::vector<summary> all(comm.size());
  std::vector<std::size_t> const summary_bytes(comm.size(), sizeof(summary));
  comm.all_gather(std::as_bytes(std::span{&mine, 1}), std::as_writable_bytes(std::span{all}), summary_bytes, {}).wait();
  if (std::all_of(all.begin(), all.end(), [&](auto const& theirs) { return theirs == all[0]; })) return;

  std::vector<std::size_t> sizes;
  sizes.reserve(all.size());
  for (auto const& theirs : all) sizes.push_back(theirs.size);
  std::vector<std::vector<config_field>> ranks;
  ranks.reserve(all.size());
  for (auto const& text : gather_texts(comm, own, sizes)) ranks.push_back(parse(text));
  throw_mismatch(ranks);
}

}  // namespace gradwire
