#include <array>
#include <limits>
#include <string>
#include <string_view>

#include <gtest/gtest.h>

#include <gradwire/codec.hpp>
#include <gradwire/error.hpp>

namespace gradwire {
namespace {

// A codec with a key of each kind; it is parsed and never run.
codec_entry make_sample() {
  static constexpr std::array<std::string_view, 2> modes{"plain", "fancy"};
  static constexpr std::array keys{
      codec_key{.name = "block", .kind = key_kind::integer, .preset = 256, .min = 32, .max = 4096, .help = ""},
      codec_key{.name = "share", .kind = key_kind::real, .min = 1e-6, .max = 1, .help = ""},
      codec_key{.name = "mode", .kind = key_kind::choice, .preset = 0, .choices = modes, .help = ""}};
  codec_entry entry = find_codec("none");
  entry.name = "sample";
  entry.wire_id = 199;
  entry.keys = keys;
  entry.check = [](param_values const& params) {
    if (params.integer(0) % 2 != 0) throw error{errc::invalid_argument, "sample: block must be even"};
  };
  return entry;
}

class Parse : public testing::Test {
 protected:
  static void SetUpTestSuite() {
    static codec_entry const entry = make_sample();
    register_codec(entry);
  }
};

void refuses(std::string_view text, std::string_view part) {
  try {
    static_cast<void>(codec::parse(text));
    ADD_FAILURE() << "'" << text << "' was accepted";
  } catch (error const& failure) {
    EXPECT_EQ(failure.code(), errc::invalid_argument);
    EXPECT_NE(std::string_view{failure.what()}.find(part), std::string_view::npos)
        << "'" << text << "' gave: " << failure.what() << "\nwithout: " << part;
  }
}

TEST_F(Parse, WritesTheCanonicalTextOfEveryKeyThatIsSet) {
  EXPECT_EQ(codec::parse("none").text(), "none");
  EXPECT_EQ(codec::parse("none()").text(), "none");
  EXPECT_EQ(codec::parse("sample").text(), "sample(block=256,mode=plain)");
  EXPECT_EQ(codec::parse(" sample ( mode = fancy ,\tshare=0.010 ) ").text(), "sample(block=256,share=0.01,mode=fancy)");
  EXPECT_EQ(codec::parse("sample(share=1e-6)").text(), "sample(block=256,share=1e-06,mode=plain)");
  EXPECT_EQ(codec::parse("sample(share=1)").text(), "sample(block=256,share=1,mode=plain)");
}

TEST_F(Parse, ReadsItsOwnText) {
  for (std::string_view const text : {"sample(share=0.3333333333333333,block=4096)", "sample(mode=fancy)", "bf16"}) {
    codec const once = codec::parse(text);
    EXPECT_EQ(codec::parse(once.text()).text(), once.text());
    EXPECT_EQ(codec::parse(once.text()).params().real(1) == once.params().real(1), once.params().given(1));
  }
}

TEST_F(Parse, RefusesWhatIsNoSpecAndSaysHowOneLooks) {
  refuses("", "names no method");
  refuses("   ", "names no method");
  refuses("(block=32)", "names no method");
  refuses("sample(block=64", "no closing parenthesis");
  refuses("sample block=64)", "not opened");
  refuses("sample(block=64))", "behind the closing parenthesis");
  refuses("sample(block=64) x", "behind the closing parenthesis");
  refuses("sample((block=64)", "inside the parentheses");
  refuses("sampel(block=64)", "unknown method 'sampel'");
  refuses("Sample", "unknown method 'Sample'");
}

TEST_F(Parse, RefusesUnknownKeysAndListsTheKnownOnesWithTheirRanges) {
  refuses("sample(blok=64)", "block=an integer from 32 to 4096; share=a number from 1e-06 to 1; mode=plain|fancy");
  refuses("none(block=64)", "it takes no keys");
  refuses("sample(block)", "not of the form key=value");
  refuses("sample(=64)", "not of the form key=value");
  refuses("sample(block=64,)", "not of the form key=value");
  refuses("sample(,block=64)", "not of the form key=value");
  refuses("sample(block=64,block=64)", "given twice");
}

TEST_F(Parse, RefusesValuesOutOfRangeAndSaysWhatIsAllowed) {
  refuses("sample(block=16)", "an integer from 32 to 4096");
  refuses("sample(block=4097)", "an integer from 32 to 4096");
  refuses("sample(block=-32)", "an integer from 32 to 4096");
  refuses("sample(block=99999999999999999999)", "out of range");
  refuses("sample(block=64.5)", "is no integer");
  refuses("sample(block=6x4)", "is no integer");
  refuses("sample(block=nan)", "is no integer");
  refuses("sample(block=)", "is empty");
  refuses("sample(block= )", "is empty");
  refuses("sample(block=64=64)", "is no integer");
  refuses("sample(share=nan)", "no finite number");
  refuses("sample(share=inf)", "no finite number");
  refuses("sample(share=-inf)", "no finite number");
  refuses("sample(share=1e400)", "out of range");
  refuses("sample(share=1e-400)", "out of range");
  refuses("sample(share=2)", "a number from 1e-06 to 1");
  refuses("sample(share=0.5.5)", "no finite number");
  refuses("sample(share=0x1)", "no finite number");
  refuses("sample(mode=Plain)", "plain|fancy");
  refuses("sample(mode=0)", "plain|fancy");
  refuses("sample(block=33)", "must be even");
}

TEST_F(Parse, KeepsItsErrorsShortWhateverItIsGiven) {
  try {
    static_cast<void>(codec::parse("sample(" + std::string(100'000, 'x') + "=1)"));
    FAIL();
  } catch (error const& failure) {
    EXPECT_LT(std::string_view{failure.what()}.size(), 500u);
  }
  refuses(std::string_view{"none\0x", 6}, "unknown method");
}

TEST_F(Parse, ChecksValuesThatNeverWereText) {
  codec_entry const& entry = find_codec("sample");
  param_values values{{256, 0.5, 1}};
  EXPECT_EQ(codec(entry, values).text(), "sample(block=256,share=0.5,mode=fancy)");
  auto const refused = [&](std::size_t key, double value) {
    param_values changed = values;
    changed.values[key] = value;
    EXPECT_THROW(static_cast<void>(codec(entry, changed)), error) << key << " = " << value;
  };
  refused(0, 31);
  refused(0, 64.5);
  refused(0, std::numeric_limits<double>::quiet_NaN());
  refused(1, 0);
  refused(1, std::numeric_limits<double>::infinity());
  refused(2, 2);
  refused(2, -1);
  values.values[1] = std::numeric_limits<double>::quiet_NaN();  // has no preset, so it may stay unset
  EXPECT_EQ(codec(entry, values).text(), "sample(block=256,mode=fancy)");
}

}  // namespace
}  // namespace gradwire
