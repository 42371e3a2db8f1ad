#include "compressors/registry.hpp"

#include <algorithm>
#include <atomic>
#include <list>
#include <mutex>
#include <string>
#include <utility>
#include <vector>

#include <gradwire/error.hpp>

#include "compressors/text.hpp"

namespace gradwire {
namespace {

using table = std::vector<codec_entry const*>;

std::string names(std::span<codec_entry const* const> entries) {
  std::string text;
  for (codec_entry const* const entry : entries) {
    if (!text.empty()) text += ", ";
    text += entry->name;
  }
  return text;
}

bool is_word(std::string_view text, std::string_view also) {
  auto const letter = [](char c) { return c >= 'a' && c <= 'z'; };
  auto const fits = [&](char c) { return letter(c) || (c >= '0' && c <= '9') || also.find(c) != also.npos; };
  return !text.empty() && letter(text.front()) && std::all_of(text.begin(), text.end(), fits);
}

bool is_name(std::string_view text) { return is_word(text, ""); }
bool is_key(std::string_view text) { return is_word(text, "_"); }

[[noreturn]] void refuse(codec_entry const& entry, std::string_view why) {
  throw error{errc::invalid_argument, join({"codec '", entry.name, "' cannot be registered: ", why})};
}

void check_key(codec_entry const& entry, codec_key const& key) {
  auto const refuse = [&](std::string_view why) { gradwire::refuse(entry, join({"key '", key.name, "' ", why})); };
  if (!is_key(key.name)) refuse("is no name: use lower-case letters, digits and _");
  if (key.kind == key_kind::choice) {
    if (key.choices.empty()) refuse("has no choices");
    bool const unset = key.preset != key.preset;
    if (!unset && !(key.preset >= 0 && key.preset < static_cast<double>(key.choices.size()))) {
      refuse("has a preset that is none of its choices");
    }
    return;
  }
  if (!(key.min <= key.max)) refuse("has no range: min must not be above max");
  if (key.preset < key.min || key.preset > key.max) refuse("has a preset outside its range");
}

void check_entry(codec_entry const& entry) {
  if (!is_name(entry.name)) refuse(entry, "the name must be lower-case letters and digits, a letter first");
  if (entry.wire_id < 128) refuse(entry, "wire ids under 128 belong to the tree: use 128 to 255");
  if (entry.summary.empty()) refuse(entry, "summary is missing");
  if (entry.keys.size() > param_values::capacity) {
    refuse(entry, join({"more than ", std::to_string(param_values::capacity), " keys"}));
  }
  for (std::size_t i = 0; i < entry.keys.size(); ++i) {
    check_key(entry, entry.keys[i]);
    for (std::size_t j = 0; j < i; ++j) {
      if (entry.keys[i].name == entry.keys[j].name) {
        refuse(entry, join({"key '", entry.keys[i].name, "' stands twice"}));
      }
    }
  }
  if (entry.traits == nullptr) refuse(entry, "traits is missing");
  if (entry.granule == nullptr) refuse(entry, "granule is missing");
  if (entry.encoded_bytes == nullptr) refuse(entry, "encoded_bytes is missing");
  if (entry.error_bound == nullptr) refuse(entry, "error_bound is missing");
  if (entry.reference.encode == nullptr) refuse(entry, "reference.encode is missing");
  if (entry.reference.decode == nullptr) refuse(entry, "reference.decode is missing");
}

void check_free(table const& taken, codec_entry const& entry) {
  for (codec_entry const* const other : taken) {
    if (other->name == entry.name) refuse(entry, "the name is taken");
    if (other->wire_id == entry.wire_id) {
      refuse(entry, join({"wire id ", std::to_string(entry.wire_id), " is taken by '", other->name, "'"}));
    }
  }
}

// Tables only ever grow, and every one handed out stays valid: a reader takes no lock and may keep its span.
struct tables {
  std::mutex mutex;
  std::list<table> all;
  std::atomic<table const*> current;

  tables() {
    table built_in;
    for (codec_entry const* const entry : registry::built_in()) {
      check_free(built_in, *entry);
      built_in.push_back(entry);
    }
    current = &all.emplace_back(std::move(built_in));
  }
};

tables& known() {
  static tables instance;
  return instance;
}

}  // namespace

std::span<codec_entry const* const> codecs() { return *known().current.load(std::memory_order_acquire); }

codec_entry const& find_codec(std::string_view name) {
  auto const entries = codecs();
  for (codec_entry const* const entry : entries) {
    if (entry->name == name) return *entry;
  }
  throw error{errc::invalid_argument, join({"unknown method '", name, "': use one of ", names(entries)})};
}

codec_entry const& find_codec(std::uint8_t wire_id) {
  auto const entries = codecs();
  for (codec_entry const* const entry : entries) {
    if (entry->wire_id == wire_id) return *entry;
  }
  std::string text;
  for (codec_entry const* const entry : entries) {
    if (!text.empty()) text += ", ";
    text += join({std::to_string(entry->wire_id), " (", entry->name, ")"});
  }
  throw error{errc::invalid_argument,
              join({"unknown codec wire id ", std::to_string(wire_id), ": this build knows ", text})};
}

void register_codec(codec_entry const& entry) {
  check_entry(entry);
  tables& tables = known();
  std::scoped_lock const lock{tables.mutex};
  table next = *tables.current.load(std::memory_order_relaxed);
  check_free(next, entry);
  next.push_back(&entry);
  tables.current.store(&tables.all.emplace_back(std::move(next)), std::memory_order_release);
}

}  // namespace gradwire
