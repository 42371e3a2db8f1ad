#include <algorithm>
#include <set>
#include <string>
#include <thread>
#include <vector>

#include <gtest/gtest.h>

#include <gradwire/codec.hpp>
#include <gradwire/error.hpp>

namespace gradwire {
namespace {

std::string message(auto&& action) {
  try {
    action();
  } catch (error const& failure) {
    EXPECT_EQ(failure.code(), errc::invalid_argument);
    return failure.what();
  }
  ADD_FAILURE() << "nothing was thrown";
  return {};
}

bool contains(std::string const& text, std::string const& part) { return text.find(part) != std::string::npos; }

TEST(Registry, HasNamesAndWireIdsThatAreUnique) {
  std::set<std::string_view> names;
  std::set<int> ids;
  for (codec_entry const* const entry : codecs()) {
    EXPECT_TRUE(names.insert(entry->name).second) << entry->name;
    EXPECT_TRUE(ids.insert(entry->wire_id).second) << entry->name;
    EXPECT_EQ(&find_codec(entry->name), entry);
    EXPECT_EQ(&find_codec(entry->wire_id), entry);
  }
  EXPECT_TRUE(names.contains("none") && names.contains("f16") && names.contains("bf16"));
}

TEST(Registry, ListsTheKnownNamesWhenOneIsUnknown) {
  std::string const text = message([] { static_cast<void>(find_codec("two_bit")); });
  EXPECT_TRUE(contains(text, "'two_bit'") && contains(text, "none") && contains(text, "bf16")) << text;
  std::string const by_id = message([] { static_cast<void>(find_codec(std::uint8_t{77})); });
  EXPECT_TRUE(contains(by_id, "77") && contains(by_id, "1 (none)")) << by_id;
}

// A codec outside the tree: `none` under another name and id.
codec_entry outside(std::string_view name, std::uint8_t id) {
  codec_entry entry = find_codec("none");
  entry.name = name;
  entry.wire_id = id;
  return entry;
}

TEST(Registry, TakesACodecFromOutsideTheTreeAtRunTime) {
  static codec_entry const entry = outside("outside", 200);
  auto const before = codecs();
  std::vector<codec_entry const*> const kept(before.begin(), before.end());
  register_codec(entry);
  EXPECT_EQ(&find_codec("outside"), &entry);
  EXPECT_EQ(&find_codec(std::uint8_t{200}), &entry);
  EXPECT_EQ(codecs().back(), &entry);
  EXPECT_EQ(codec::parse("outside").text(), "outside");
  EXPECT_TRUE(std::equal(before.begin(), before.end(), kept.begin())) << "a span handed out earlier changed";
  EXPECT_TRUE(contains(message([] { register_codec(entry); }), "taken"));
}

TEST(Registry, RefusesAnEntryThatIsIncompleteAndSaysWhatIsMissing) {
  auto const refused = [](auto&& change) {
    codec_entry entry = outside("incomplete", 201);
    change(entry);
    return message([&] { register_codec(entry); });
  };
  EXPECT_TRUE(contains(refused([](auto& e) { e.name = "Upper"; }), "lower-case"));
  EXPECT_TRUE(contains(refused([](auto& e) { e.name = ""; }), "lower-case"));
  EXPECT_TRUE(contains(refused([](auto& e) { e.name = "none"; }), "taken"));
  EXPECT_TRUE(contains(refused([](auto& e) { e.wire_id = 1; }), "128"));
  EXPECT_TRUE(contains(refused([](auto& e) { e.summary = ""; }), "summary"));
  EXPECT_TRUE(contains(refused([](auto& e) { e.traits = nullptr; }), "traits"));
  EXPECT_TRUE(contains(refused([](auto& e) { e.granule = nullptr; }), "granule"));
  EXPECT_TRUE(contains(refused([](auto& e) { e.encoded_bytes = nullptr; }), "encoded_bytes"));
  EXPECT_TRUE(contains(refused([](auto& e) { e.error_bound = nullptr; }), "error_bound"));
  EXPECT_TRUE(contains(refused([](auto& e) { e.reference.encode = nullptr; }), "reference.encode"));
  EXPECT_TRUE(contains(refused([](auto& e) { e.reference.decode = nullptr; }), "reference.decode"));
  codec_key const upside_down{.name = "k", .kind = key_kind::integer, .preset = 2, .min = 3, .max = 1, .help = ""};
  EXPECT_TRUE(contains(refused([&](auto& e) { e.keys = {&upside_down, 1}; }), "'k'"));
  codec_key const outside_range{.name = "k", .kind = key_kind::real, .preset = 2, .min = 0, .max = 1, .help = ""};
  EXPECT_TRUE(contains(refused([&](auto& e) { e.keys = {&outside_range, 1}; }), "preset"));
  codec_key const no_choice{.name = "k", .kind = key_kind::choice, .preset = 0, .help = ""};
  EXPECT_TRUE(contains(refused([&](auto& e) { e.keys = {&no_choice, 1}; }), "choices"));
  std::vector<codec_key> const twice(
      2, {.name = "k", .kind = key_kind::real, .preset = 0, .min = 0, .max = 1, .help = ""});
  EXPECT_TRUE(contains(refused([&](auto& e) { e.keys = twice; }), "twice"));
  std::vector<codec_key> many(param_values::capacity + 1);
  EXPECT_TRUE(contains(refused([&](auto& e) { e.keys = many; }), "more than 8"));
}

TEST(Registry, IsReadWhileOthersRegister) {
  static std::vector<codec_entry> entries;
  static std::vector<std::string> names;
  for (int i = 0; i < 8; ++i) names.push_back("thread" + std::to_string(i));
  for (int i = 0; i < 8; ++i) {
    entries.push_back(outside(names[static_cast<std::size_t>(i)], static_cast<std::uint8_t>(210 + i)));
  }
  std::vector<std::thread> threads;
  for (codec_entry const& entry : entries) {
    threads.emplace_back([&entry] {
      for (int i = 0; i < 100; ++i) static_cast<void>(find_codec("bf16"));
      register_codec(entry);
      EXPECT_EQ(&find_codec(entry.name), &entry);
    });
  }
  for (std::thread& thread : threads) thread.join();
  for (codec_entry const& entry : entries) EXPECT_EQ(&find_codec(entry.wire_id), &entry);
}

}  // namespace
}  // namespace gradwire
