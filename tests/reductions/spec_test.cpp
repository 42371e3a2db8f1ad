#include <gradwire/spec.hpp>

#include <array>
#include <limits>
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include <gradwire/error.hpp>
#include <gradwire/reduction.hpp>

namespace gradwire {
namespace {

// The text of the error that `work` must throw, with its code checked.
template <class Work>
std::string refusal(Work work) {
  try {
    work();
  } catch (error const& failure) {
    EXPECT_EQ(failure.code(), errc::invalid_argument);
    return failure.what();
  }
  ADD_FAILURE() << "nothing was thrown";
  return {};
}

std::string refusal_of(std::string_view text) {
  return refusal([&] { static_cast<void>(spec::parse(text)); });
}

void expect_mentions(std::string const& text, std::vector<std::string> const& words) {
  for (std::string const& word : words)
    EXPECT_NE(text.find(word), std::string::npos) << "'" << word << "' in: " << text;
}

// An unbiased codec whose omega is its key: what quantisers with few levels are, without their arithmetic.
codec_entry const& noisy_codec() {
  static std::array<codec_key, 1> const keys{
      codec_key{.name = "omega", .kind = key_kind::real, .preset = 2, .max = 1e9, .help = "its omega"}};
  static codec_entry const entry = [] {
    codec_entry result = find_codec("none");
    result.name = "noisyexample";
    result.wire_id = 201;
    result.keys = keys;
    result.traits = [](param_values const& params) {
      codec_traits traits;
      traits.unbiased = true;
      traits.omega = params.real(0) < 1e8 ? params.real(0) : std::numeric_limits<double>::infinity();
      return traits;
    };
    return result;
  }();
  return entry;
}

class SpecWithNoisyCodec : public testing::Test {
 protected:
  static void SetUpTestSuite() { register_codec(noisy_codec()); }
};

TEST(Spec, ReadsMethodAndModifiersInAnyOrder) {
  for (char const* const text :
       {"onebit(block=1024)+ef+via(two_shot)+warmup(steps=500)", "onebit+warmup( steps = 500 )+via( two_shot )+ef",
        "  onebit + via(two_shot)+ef+warmup(steps=500) "}) {
    SCOPED_TRACE(text);
    spec const read = spec::parse(text);
    EXPECT_EQ(read.codec.entry().name, "onebit");
    EXPECT_TRUE(read.error_feedback);
    EXPECT_EQ(read.via, "two_shot");
    EXPECT_EQ(read.warmup_steps, 500U);
  }
}

TEST(Spec, TextIsCanonicalAndReadsBackAsItself) {
  EXPECT_EQ(spec::parse("none+via(auto)").text(), "none");
  EXPECT_EQ(spec::parse("none+warmup(steps=3)+via(two_shot)").text(), "none+via(two_shot)+warmup(steps=3)");
  for (char const* const text : {"none", "f16+ef", "onebit+ef", "topk(ratio=0.05)+ef+warmup(steps=10)"}) {
    std::string const canonical = spec::parse(text).text();
    EXPECT_EQ(spec::parse(canonical).text(), canonical);
  }
}

TEST(Spec, ListsTheModifiersForAnUnknownOne) {
  expect_mentions(refusal_of("none+momentum"), {"'momentum'", "ef", "via(REDUCTION)", "warmup(steps=N)"});
  expect_mentions(refusal_of("none+"), {"empty modifier", "ef"});
  expect_mentions(refusal_of(""), {"no method"});
  expect_mentions(refusal_of("none+ef(x=1)"), {"ef takes no arguments"});
}

TEST(Spec, ListsTheMethodsForAnUnknownOne) { expect_mentions(refusal_of("twobit+ef"), {"twobit", "none"}); }

TEST(Spec, ListsTheReductionsForAnUnknownVia) {
  expect_mentions(refusal_of("none+via(ring)"), {"via(ring)", "auto", "dense", "one_shot", "two_shot"});
  expect_mentions(refusal_of("none+via"), {"via", "two_shot"});
  expect_mentions(refusal_of("none+via(dense"), {"parenthesis"});
}

TEST(Spec, RefusesAModifierGivenTwice) {
  expect_mentions(refusal_of("onebit+ef+ef"), {"'ef'", "twice"});
  expect_mentions(refusal_of("none+via(dense)+via(auto)"), {"'via'", "twice"});
}

TEST(Spec, TellsTheRangeOfWarmupSteps) {
  for (char const* const text : {"none+warmup", "none+warmup()", "none+warmup(steps=0)", "none+warmup(steps=-1)",
                                 "none+warmup(steps=1.5)", "none+warmup(steps=99999999999999999999)"}) {
    SCOPED_TRACE(text);
    expect_mentions(refusal_of(text), {"from 1 to", "warmup(steps=500)"});
  }
  expect_mentions(refusal_of("none+warmup(step=4)"), {"'step'", "steps"});
}

TEST(Spec, RefusesFeedbackAroundAMethodThatLosesNothing) {
  expect_mentions(refusal_of("none+ef"), {"loses nothing", "leave +ef away"});
}

TEST(Spec, RefusesDenseForPayloadsThatCannotBeAdded) {
  expect_mentions(refusal_of("onebit+via(dense)"), {"cannot add", "via(two_shot)"});
}

TEST(Spec, RefusesDenseWithFeedback) {
  expect_mentions(refusal_of("f16+ef+via(dense)"), {"residual", "via(two_shot)"});
}

TEST_F(SpecWithNoisyCodec, RefusesFeedbackFromOmegaOneUpwardsAndSaysWhy) {
  expect_mentions(refusal_of("noisyexample(omega=1.6)+ef"), {"omega = 1.6", "diverges", "Leave +ef away", "onebit+ef"});
  expect_mentions(refusal_of("noisyexample(omega=1)+ef"), {"omega = 1"});
  expect_mentions(refusal_of("noisyexample(omega=1000000000)+ef"), {"no bound"});
}

TEST_F(SpecWithNoisyCodec, TakesFeedbackBelowOmegaOne) {
  EXPECT_TRUE(spec::parse("noisyexample(omega=0.99)+ef").error_feedback);
}

TEST(Spec, NamesAutoFirstAmongTheReductions) {
  auto const names = reduction_names();
  EXPECT_EQ((std::vector<std::string_view>{names.begin(), names.end()}),
            (std::vector<std::string_view>{"auto", "dense", "one_shot", "two_shot"}));
}

TEST(Rule, ReadsEachKindOfCondition) {
  EXPECT_EQ(rule::parse("name~^layer\\.0=>f16").text(), "name~^layer\\.0=>f16");
  EXPECT_EQ(rule::parse(" ndim = 2 => none").text(), "ndim=2=>none");
  EXPECT_EQ(rule::parse("min_numel=4096=>f16+ef").text(), "min_numel=4096=>f16+ef");
}

TEST(Rule, CutsAtTheLastArrowBecauseAnExpressionMayHoldOne) {
  rule const read = rule::parse("name~a=>b=>none");
  EXPECT_EQ(read.condition, "name~a=>b");
  EXPECT_TRUE(read.matches({"xa=>by", {}}));
}

TEST(Rule, MatchesByNameAnywhere) {
  rule const embedding = rule::parse("name~embed(ding)?\\.weight$=>none");
  EXPECT_TRUE(embedding.matches({"model.embed.weight", {}}));
  EXPECT_FALSE(embedding.matches({"model.embed.weight.extra", {}}));
}

TEST(Rule, MatchesByDimensionsAndByElements) {
  std::array<std::size_t, 2> const matrix{64, 32};
  EXPECT_TRUE(rule::parse("ndim=2=>none").matches({"w", matrix}));
  EXPECT_TRUE(rule::parse("ndim=0=>none").matches({"scalar", {}}));
  EXPECT_FALSE(rule::parse("ndim=1=>none").matches({"w", matrix}));
  EXPECT_TRUE(rule::parse("min_numel=2048=>none").matches({"w", matrix}));
  EXPECT_FALSE(rule::parse("min_numel=2049=>none").matches({"w", matrix}));
  EXPECT_TRUE(rule::parse("min_numel=1=>none").matches({"scalar", {}}));
}

TEST(Rule, SaysWhatIsWrongWithABadOne) {
  auto const refusal_of_rule = [](std::string_view text) {
    return refusal([&] { static_cast<void>(rule::parse(text)); });
  };
  expect_mentions(refusal_of_rule("name~x"), {"no '=>'", "name~REGEX", "ndim=N", "min_numel=N"});
  expect_mentions(refusal_of_rule("shape=3=>none"), {"'shape=3'", "name~REGEX", "ndim=N", "min_numel=N"});
  expect_mentions(refusal_of_rule("ndim=two=>none"), {"whole number", "'two'"});
  expect_mentions(refusal_of_rule("name~([a-z=>none"), {"([a-z", "regular expression"});
  expect_mentions(refusal_of_rule("name~" + std::string(20000, 'a') + "=>none"), {"20000", "4096"});
  expect_mentions(refusal_of_rule("name~=>none"), {"empty"});
  expect_mentions(refusal_of_rule("ndim=2=>noone"), {"noone", "none"});
}

TEST(ChooseSpec, TakesTheFirstRuleThatMatchesThenTheDefaults) {
  spec const fallback = spec::parse("onebit+ef");
  std::vector<rule> const rules{rule::parse("name~special=>f16"), rule::parse("min_numel=4=>bf16"),
                                rule::parse("name~special=>none")};
  std::array<std::size_t, 2> const large{64, 64};
  std::array<std::size_t, 2> const small{31, 33};  // 1,023 elements
  std::array<std::size_t, 1> const vector{4096};
  std::array<std::size_t, 2> const empty{0, 64};
  EXPECT_EQ(choose_spec({"special", vector}, rules, fallback).text(), "f16");
  EXPECT_EQ(choose_spec({"other", vector}, rules, fallback).text(), "bf16");
  EXPECT_EQ(choose_spec({"w", large}, {}, fallback).text(), fallback.text());
  EXPECT_EQ(choose_spec({"w", small}, {}, fallback).text(), "none");
  EXPECT_EQ(choose_spec({"w", small}, {}, fallback, 1023).text(), fallback.text());
  EXPECT_EQ(choose_spec({"bias", vector}, {}, fallback).text(), "none");
  EXPECT_EQ(choose_spec({"scalar", {}}, {}, fallback, 0).text(), "none");
  EXPECT_EQ(choose_spec({"nothing", empty}, {}, fallback).text(), "none");
}

}  // namespace
}  // namespace gradwire
