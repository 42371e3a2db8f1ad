#include "program/train/text.hpp"

#include <zlib.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <numbers>
#include <sstream>

#include <fmt/format.h>

#include "embedded/pages.hpp"
#include "program/common/context.hpp"
#include "program/train/network.hpp"
#include "program/train/random.hpp"

namespace gradwire::program {
namespace {

constexpr std::size_t context_length = 6;
constexpr std::size_t embedding_width = 32;
constexpr std::size_t hidden_width = 192;
constexpr std::size_t fewest_bytes = 1000;
constexpr std::size_t most_test_windows = 2000;

struct text_data {
  std::vector<unsigned char> codes;  // index into the alphabet, by position
  std::size_t alphabet = 0;
  std::size_t held_out = 0;  // from here on
  std::uint32_t checksum = 0;
};

// The first nine tenths of every file, then the last tenths: so what is held out is like what was learnt.
text_data encode(std::vector<std::string> const& files, std::string_view name) {
  std::string text;
  std::string held_out;
  for (std::string const& file : files) {
    std::size_t const head = file.size() - file.size() / 10;
    text += file.substr(0, head);
    held_out += file.substr(head);
  }
  std::size_t const learnt = text.size();
  text += held_out;
  if (text.size() < fewest_bytes) {
    throw program_error{
        fmt::format("{} holds {} bytes of text: at least {} are needed", name, text.size(), fewest_bytes)};
  }
  std::array<std::size_t, 256> code{};
  for (char const c : text) code[static_cast<unsigned char>(c)] = 1;
  text_data data;
  data.checksum = static_cast<std::uint32_t>(crc32_z(0, reinterpret_cast<Bytef const*>(text.data()), text.size()));
  for (std::size_t& one : code) one = one == 0 ? 0 : data.alphabet++;
  data.codes.reserve(text.size());
  for (char const c : text) data.codes.push_back(static_cast<unsigned char>(code[static_cast<unsigned char>(c)]));
  data.held_out = learnt;
  return data;
}

std::vector<std::unique_ptr<layer>> layers_of(std::size_t alphabet) {
  std::vector<std::unique_ptr<layer>> layers;
  layers.push_back(make_embedding("embedding", alphabet, embedding_width));
  layers.push_back(make_linear("hidden", context_length * embedding_width, hidden_width));
  layers.push_back(make_relu());
  layers.push_back(make_linear("output", hidden_width, alphabet));
  return layers;
}

class text_model final : public workload {
 public:
  text_model(std::shared_ptr<text_data const> data, std::uint64_t seed)
      : data_{std::move(data)}, seed_{seed}, net_{layers_of(data_->alphabet), seed} {}

  [[nodiscard]] std::span<weight> weights() override { return net_.weights(); }

  double forward_backward(std::size_t first, std::size_t count, gradient_sink const& sink) override {
    resize(count);
    for (std::size_t i = 0; i < count; ++i) {
      // Drawn, not shuffled: a text has as many windows as bytes.
      random_stream random{seed_, draw::order, first + i, 1};
      take(i, random.below(data_->held_out - context_length));
    }
    double const loss = cross_entropy(net_.forward(batch_), labels_, sink.scale, &d_logits_);
    net_.backward(batch_, d_logits_, sink);
    return loss;
  }

  [[nodiscard]] std::uint32_t data_checksum() const override { return data_->checksum; }

  [[nodiscard]] std::vector<metric> evaluate() override {
    std::size_t const begin = data_->held_out - context_length;
    std::size_t const windows = data_->codes.size() - data_->held_out;
    std::size_t const count = std::min(windows, most_test_windows);
    resize(count);
    for (std::size_t i = 0; i < count; ++i) take(i, begin + i * windows / count);
    double const loss = cross_entropy(net_.forward(batch_), labels_, 1, nullptr);
    return {{"loss", loss}, {"bits_per_char", loss / std::numbers::ln2}, {"perplexity", std::exp(loss)}};
  }

 private:
  void resize(std::size_t count) {
    batch_.resize(static_cast<Eigen::Index>(count), context_length);
    labels_.resize(count);
  }
  void take(std::size_t row, std::size_t at) {
    for (std::size_t j = 0; j < context_length; ++j) {
      batch_(static_cast<Eigen::Index>(row), static_cast<Eigen::Index>(j)) = static_cast<float>(data_->codes[at + j]);
    }
    labels_[row] = data_->codes[at + context_length];
  }

  std::shared_ptr<text_data const> data_;
  std::uint64_t seed_;
  network net_;
  matrix batch_;
  matrix d_logits_;
  std::vector<std::size_t> labels_;
};

}  // namespace

workload_factory load_text(train_config const& config) {
  std::vector<std::string> files;
  for (std::string const& file : config.data) files.push_back(read_data(file));
  if (config.data.empty()) {
    std::istringstream pages{std::string{embedded::pages()}};
    for (std::string page; std::getline(pages, page, '\f');) files.push_back(page);
  }
  std::string const name = config.data.empty() ? "the built-in text" : fmt::format("{}", fmt::join(config.data, " + "));
  auto const data = std::make_shared<text_data const>(encode(files, name));
  return [data, seed = config.seed](std::size_t) { return std::make_unique<text_model>(data, seed); };
}

workload_defaults text_defaults() {
  return {.steps = 600, .batch = 32, .eval_every = 50, .lr = 0.1, .optimizer = "momentum"};
}

}  // namespace gradwire::program
