#include <cmath>
#include <limits>
#include <map>
#include <set>

#include <gtest/gtest.h>

#include "embedded/digits_csv_gz.hpp"
#include "program/common/context.hpp"
#include "program/train/digits.hpp"
#include "program/train/network.hpp"
#include "program/train/optimizer.hpp"
#include "program/train/sample_order.hpp"

namespace gradwire::program {
namespace {

constexpr float not_a_number = std::numeric_limits<float>::quiet_NaN();

matrix random_matrix(Eigen::Index rows, Eigen::Index columns, std::uint32_t id) {
  random_stream random{7, draw::noise, 0, id};
  matrix result(rows, columns);
  for (Eigen::Index i = 0; i < result.size(); ++i) result.data()[i] = 2 * random.uniform() - 1;
  return result;
}

struct gradients_of {
  explicit gradients_of(network& net) {
    for (weight const& one : net.weights()) values.emplace_back(one.values.size(), 0.0f);
    for (auto& one : values) pointers.push_back(one.data());
  }
  std::vector<std::vector<float>> values;
  std::vector<float*> pointers;
  std::vector<std::size_t> order;
  [[nodiscard]] gradient_sink sink() {
    return {pointers, 1, [this](std::size_t i) { order.push_back(i); }};
  }
};

// Backward against central differences. Layers are smooth here, so the difference quotient errs by O(h²) of truncation
// and ~1e-7/h of rounding; h = 1e-2 balances both below 1e-3 for losses around 1.
void expect_true_gradients(std::vector<std::unique_ptr<layer>> layers, matrix const& in, std::size_t classes) {
  network net{std::move(layers), 3};
  std::vector<std::size_t> labels;
  for (Eigen::Index i = 0; i < in.rows(); ++i) labels.push_back(static_cast<std::size_t>(i) % classes);
  gradients_of found{net};
  matrix d_logits;
  cross_entropy(net.forward(in), labels, 1, &d_logits);
  net.backward(in, d_logits, found.sink());
  constexpr float h = 1e-2f;
  for (std::size_t w = 0; w < net.weights().size(); ++w) {
    std::vector<float>& values = net.weights()[w].values;
    for (std::size_t i = 0; i < values.size(); i += 1 + values.size() / 40) {
      float const before = values[i];
      values[i] = before + h;
      double const above = cross_entropy(net.forward(in), labels, 1, nullptr);
      values[i] = before - h;
      double const below = cross_entropy(net.forward(in), labels, 1, nullptr);
      values[i] = before;
      EXPECT_NEAR(static_cast<double>(found.values[w][i]), (above - below) / (2.0 * static_cast<double>(h)), 1e-3)
          << net.weights()[w].name << " " << i;
    }
  }
}

TEST(Network, GradientsOfLinearLayersAreDerivatives) {
  std::vector<std::unique_ptr<layer>> layers;
  layers.push_back(make_linear("a", 5, 7));
  layers.push_back(make_linear("b", 7, 3));
  expect_true_gradients(std::move(layers), random_matrix(6, 5, 0), 3);
}

TEST(Network, GradientsOfConvolutionsAreDerivatives) {
  std::vector<std::unique_ptr<layer>> layers;
  layers.push_back(make_conv3x3("a", 4, 2, 3));
  layers.push_back(make_conv3x3("b", 4, 3, 2));
  layers.push_back(make_linear("c", 32, 3));
  expect_true_gradients(std::move(layers), random_matrix(4, 32, 1), 3);
}

TEST(Network, GradientsOfAnEmbeddingAreDerivatives) {
  std::vector<std::unique_ptr<layer>> layers;
  layers.push_back(make_embedding("a", 5, 3));
  layers.push_back(make_linear("b", 6, 4));
  matrix in(5, 2);
  in << 0, 1, 1, 1, 4, 2, 3, 0, 2, 2;
  expect_true_gradients(std::move(layers), in, 4);
}

TEST(Network, HandsGradientsOverFromTheLastLayerToTheFirst) {
  std::vector<std::unique_ptr<layer>> layers;
  layers.push_back(make_linear("a", 3, 4));
  layers.push_back(make_relu());
  layers.push_back(make_linear("b", 4, 4));
  layers.push_back(make_linear("c", 4, 2));
  network net{std::move(layers), 1};
  matrix const in = random_matrix(2, 3, 2);
  gradients_of found{net};
  static_cast<void>(net.forward(in));
  net.backward(in, random_matrix(2, 2, 3), found.sink());
  EXPECT_EQ(found.order, (std::vector<std::size_t>{4, 5, 2, 3, 0, 1}));
}

TEST(Network, ConvolutionSumsTheNineNeighboursInsideTheImage) {
  auto const conv = make_conv3x3("a", 3, 1, 1);
  std::vector<weight> ones = conv->make_weights(0, 0);
  ones[0].values.assign(9, 1.0f);
  matrix in(1, 9);
  in << 1, 2, 3, 4, 5, 6, 7, 8, 9;
  matrix out;
  conv->forward(ones, in, out);
  matrix expected(1, 9);
  expected << 12, 21, 16, 27, 45, 33, 24, 39, 28;  // by hand: 1+2+4+5 = 12, …
  EXPECT_EQ(out, expected);
}

TEST(Network, PoolingTakesMaximaAndSendsTheGradientThere) {
  auto const pool = make_max_pool(2, 2);  // four pixels of two channels: one output of two channels
  matrix in(1, 8);
  in << 1, 8, 5, 2, 3, 4, -1, 6;
  matrix out;
  pool->forward({}, in, out);
  EXPECT_EQ(out, (matrix(1, 2) << 5, 8).finished());
  matrix d_in;
  pool->backward({}, in, out, (matrix(1, 2) << 10, 20).finished(), &d_in, {}, {});
  EXPECT_EQ(d_in, (matrix(1, 8) << 0, 20, 10, 0, 0, 0, 0, 0).finished());
}

TEST(Network, LetsANaNThroughSoThatADivergingRunIsSeen) {
  matrix in(1, 8);
  in << 1, 2, 3, not_a_number, -1, 5, 6, not_a_number;
  matrix out;
  make_relu()->forward({}, in, out);
  EXPECT_TRUE(std::isnan(out(0, 3)));
  EXPECT_EQ(out(0, 4), 0);
  make_max_pool(2, 2)->forward({}, in, out);
  EXPECT_TRUE(std::isnan(out(0, 1)));
  std::vector<std::size_t> const label{0};
  EXPECT_TRUE(std::isnan(cross_entropy((matrix(1, 2) << 1, not_a_number).finished(), label, 1, nullptr)));
}

TEST(Network, CrossEntropyOfEqualLogitsIsTheLogOfTheirNumber) {
  std::vector<std::size_t> const labels{0, 1};
  matrix d_logits;
  double const loss = cross_entropy(matrix::Constant(2, 2, 3.0f), labels, 2, &d_logits);
  EXPECT_NEAR(loss, std::log(2.0), 1e-6);
  // (p − 1[label]) / rows · scale, with p = ½.
  EXPECT_EQ(d_logits, (matrix(2, 2) << -0.5f, 0.5f, 0.5f, -0.5f).finished());
  EXPECT_EQ(accuracy((matrix(2, 2) << 1, 0, 1, 1).finished(), labels), 0.5);
}

TEST(Optimizer, TakesTheStepsOfTheirPapers) {
  // By hand, w = 1, gradient 2 twice, lr 0.5. sgd: 1 − 1 − 1. momentum: v = 2, then 0.9·2 + 2 = 3.8: 1 − 1 − 1.9.
  // adam: the first two corrected ratios are 1 for a constant gradient: 1 − 0.5 − 0.5.
  for (auto const& [name, expected] :
       std::map<std::string, float>{{"sgd", -1.0f}, {"momentum", -1.9f}, {"adam", 0.0f}}) {
    std::vector<weight> weights{{"w", {1}, {1.0f}}};
    auto const opt = make_optimizer(name, 0.5, weights);
    float const gradient = 2;
    std::vector<float const*> const gradients{&gradient};
    opt->step(weights, gradients);
    opt->step(weights, gradients);
    EXPECT_NEAR(weights[0].values[0], expected, 1e-5f) << name;
    EXPECT_EQ(opt->steps, 2u);
  }
  EXPECT_THROW(static_cast<void>(make_optimizer("lion", 1, {})), program_error);
}

TEST(SampleOrder, EachPassVisitsEverySampleOnceAndAnyPlaceCanBeAskedFirst) {
  sample_order forward{10, 5};
  std::vector<std::size_t> sequence;
  for (std::size_t i = 0; i < 30; ++i) sequence.push_back(forward[i]);
  for (std::size_t pass = 0; pass < 3; ++pass) {
    EXPECT_EQ(std::set<std::size_t>(sequence.begin() + static_cast<std::ptrdiff_t>(10 * pass),
                                    sequence.begin() + static_cast<std::ptrdiff_t>(10 * pass + 10))
                  .size(),
              10u);
  }
  sample_order backward{10, 5};
  for (std::size_t i = 30; i-- > 0;) EXPECT_EQ(backward[i], sequence[i]);
}

std::string line_of(std::string const& pixel, std::string const& label) {
  std::string line;
  for (int i = 0; i < 64; ++i) line += pixel + ",";
  return line + label + "\n";
}

std::string refusal(std::string_view bytes) {
  try {
    static_cast<void>(parse_digits(bytes, "my.csv"));
  } catch (program_error const& failure) {
    return failure.what();
  }
  return "";
}

TEST(Digits, ReadsTheImagesThatTheProgramCarries) {
  digits_data const data = parse_digits(embedded::digits_csv_gz(), "digits");
  EXPECT_EQ(data.train.rows() + data.test.rows(), 1797);  // examples/data/README.md
  EXPECT_EQ(data.test.rows(), 1797 / 3);
  EXPECT_EQ(data.train_labels[0], 0u);  // the first three lines are a 0, a 1 and a 2; the third is for testing
  EXPECT_EQ(data.train_labels[1], 1u);
  EXPECT_EQ(data.test_labels[0], 2u);
  EXPECT_NEAR(data.train.col(20).mean(), 0, 1e-5);
  EXPECT_NEAR(data.train.col(20).array().square().mean(), 1, 1e-4);
}

TEST(Digits, NamesTheLineAndWhatIsWrongWithIt) {
  std::string good;
  for (int i = 0; i < 40; ++i) good += line_of("3", "7");
  EXPECT_EQ(refusal(good), "");
  EXPECT_EQ(refusal(good + line_of("3", "7,1")),
            "my.csv:41: 66 columns, expected 65: 64 pixels of 0..16, then the digit");
  EXPECT_EQ(refusal(good + "\n" + good), "my.csv:41: 1 columns, expected 65: 64 pixels of 0..16, then the digit");
  EXPECT_EQ(refusal(good + line_of("3", "x")), "my.csv:41: column 65 is 'x', not a whole number");
  EXPECT_EQ(refusal(line_of("1.5", "1") + good), "my.csv:1: column 1 is '1.5', not a whole number");
  EXPECT_EQ(refusal(good + line_of("17", "1")), "my.csv:41: column 1 is 17, out of range: a pixel is 0..16");
  EXPECT_EQ(refusal(good + line_of("-1", "1")), "my.csv:41: column 1 is -1, out of range: a pixel is 0..16");
  EXPECT_EQ(refusal(good + line_of("3", "10")), "my.csv:41: column 65 is 10, out of range: a digit is 0..9");
  EXPECT_EQ(refusal(good + line_of("99999999999", "1")),
            "my.csv:41: column 1 is 99999999999, out of range: a pixel is 0..16");
  EXPECT_EQ(refusal(""), "my.csv holds 0 rows: at least 30 are needed to train and test on");
}

TEST(Digits, SaysThatAGzipFileIsTruncatedOrDamaged) {
  std::string const whole{embedded::digits_csv_gz()};
  EXPECT_NE(refusal(whole.substr(0, whole.size() / 2)).find("my.csv: the gzip file is truncated after"),
            std::string::npos);
  EXPECT_NE(refusal(whole.substr(0, 5)).find("truncated"), std::string::npos);
  std::string damaged = whole;
  for (std::size_t i = 100; i < 200; ++i) damaged[i] = static_cast<char>(~damaged[i]);
  EXPECT_NE(refusal(damaged).find("my.csv: the gzip file is damaged"), std::string::npos);
}

TEST(Digits, ReadsJoinedGzipFilesAndRefusesWhatElseFollows) {
  // RFC 1952, 2.2: "A gzip file consists of a series of members".
  std::string const whole{embedded::digits_csv_gz()};
  std::string const once = gunzip(whole, "a");
  EXPECT_EQ(gunzip(whole + whole, "a"), once + once);
  EXPECT_NE(refusal(whole + "tail").find("my.csv: 4 of "), std::string::npos) << refusal(whole + "tail");
  EXPECT_NE(refusal(whole + whole.substr(0, 30)).find("truncated"), std::string::npos);
}

}  // namespace
}  // namespace gradwire::program
