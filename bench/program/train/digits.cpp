#include "program/train/digits.hpp"

#include <zlib.h>

#include <algorithm>
#include <charconv>
#include <cmath>

#include <fmt/format.h>

#include "embedded/digits_csv_gz.hpp"
#include "program/common/context.hpp"
#include "program/train/sample_order.hpp"

namespace gradwire::program {
namespace {

constexpr std::size_t side = 8;
constexpr std::size_t pixels = side * side;
constexpr std::size_t classes = 10;
constexpr int darkest = 16;
constexpr std::size_t fewest_rows = 30;
constexpr std::string_view gzip_mark = "\x1f\x8b";

using digit_row = std::array<int, pixels + 1>;

digit_row parse_row(std::string_view line, std::string_view where) {
  auto const columns = static_cast<std::size_t>(std::count(line.begin(), line.end(), ',')) + 1;
  if (columns != pixels + 1) {
    throw program_error{
        fmt::format("{}: {} columns, expected {}: 64 pixels of 0..16, then the digit", where, columns, pixels + 1)};
  }
  digit_row result{};
  for (std::size_t column = 0; column < columns; ++column) {
    std::string_view const cell = line.substr(0, line.find(','));
    line.remove_prefix(std::min(cell.size() + 1, line.size()));
    auto const [end, failure] = std::from_chars(cell.data(), cell.data() + cell.size(), result[column]);
    int const most = column == pixels ? static_cast<int>(classes) - 1 : darkest;
    std::string_view const kind = column == pixels ? "digit" : "pixel";
    if (failure == std::errc::invalid_argument || end != cell.data() + cell.size()) {
      throw program_error{fmt::format("{}: column {} is '{}', not a whole number", where, column + 1, cell)};
    }
    if (failure != std::errc{} || result[column] < 0 || result[column] > most) {
      throw program_error{
          fmt::format("{}: column {} is {}, out of range: a {} is 0..{}", where, column + 1, cell, kind, most)};
    }
  }
  return result;
}

std::vector<digit_row> parse_rows(std::string_view text, std::string_view name) {
  std::vector<digit_row> rows;
  for (std::size_t number = 1; !text.empty(); ++number) {
    std::string_view line = text.substr(0, text.find('\n'));
    text.remove_prefix(std::min(line.size() + 1, text.size()));
    if (line.ends_with('\r')) line.remove_suffix(1);
    if (line.empty() && text.empty()) break;
    rows.push_back(parse_row(line, fmt::format("{}:{}", name, number)));
  }
  if (rows.size() < fewest_rows) {
    throw program_error{
        fmt::format("{} holds {} rows: at least {} are needed to train and test on", name, rows.size(), fewest_rows)};
  }
  return rows;
}

void standardise(digits_data& data) {
  for (Eigen::Index p = 0; p < data.train.cols(); ++p) {
    double const mean = data.train.col(p).cast<double>().mean();
    double const variance = (data.train.col(p).cast<double>().array() - mean).square().mean();
    // Pixels near the border are almost always 0; dividing by their tiny deviation would blow up the rare stroke.
    double const deviation = std::max(std::sqrt(variance), 1.0);
    for (matrix* part : {&data.train, &data.test}) {
      part->col(p) = ((part->col(p).cast<double>().array() - mean) / deviation).cast<float>();
    }
  }
}

std::vector<std::unique_ptr<layer>> layers_of(std::string const& model) {
  std::vector<std::unique_ptr<layer>> layers;
  if (model == "mlp") {
    layers.push_back(make_linear("hidden1", pixels, 256));
    layers.push_back(make_relu());
    layers.push_back(make_linear("hidden2", 256, 128));
    layers.push_back(make_relu());
    layers.push_back(make_linear("output", 128, classes));
  } else {
    layers.push_back(make_conv3x3("conv1", side, 1, 8));
    layers.push_back(make_relu());
    layers.push_back(make_conv3x3("conv2", side, 8, 16));
    layers.push_back(make_relu());
    layers.push_back(make_max_pool(side, 16));
    layers.push_back(make_linear("hidden", pixels / 4 * 16, 128));
    layers.push_back(make_relu());
    layers.push_back(make_linear("output", 128, classes));
  }
  return layers;
}

class digits final : public workload {
 public:
  digits(std::shared_ptr<digits_data const> data, std::string const& model, std::uint64_t seed)
      : data_{std::move(data)}, net_{layers_of(model), seed}, order_{data_->train_labels.size(), seed} {}

  [[nodiscard]] std::span<weight> weights() override { return net_.weights(); }

  double forward_backward(std::size_t first, std::size_t count, gradient_sink const& sink) override {
    batch_.resize(static_cast<Eigen::Index>(count), data_->train.cols());
    labels_.resize(count);
    for (std::size_t i = 0; i < count; ++i) {
      std::size_t const sample = order_[first + i];
      batch_.row(static_cast<Eigen::Index>(i)) = data_->train.row(static_cast<Eigen::Index>(sample));
      labels_[i] = data_->train_labels[sample];
    }
    double const loss = cross_entropy(net_.forward(batch_), labels_, sink.scale, &d_logits_);
    net_.backward(batch_, d_logits_, sink);
    return loss;
  }

  [[nodiscard]] std::uint32_t data_checksum() const override { return data_->checksum; }

  [[nodiscard]] std::vector<metric> evaluate() override {
    matrix const& logits = net_.forward(data_->test);
    return {{"accuracy", accuracy(logits, data_->test_labels)},
            {"test_loss", cross_entropy(logits, data_->test_labels, 1, nullptr)}};
  }

 private:
  std::shared_ptr<digits_data const> data_;
  network net_;
  sample_order order_;
  matrix batch_;
  matrix d_logits_;
  std::vector<std::size_t> labels_;
};

}  // namespace

std::string gunzip(std::string_view bytes, std::string_view name) {
  z_stream stream{};
  if (inflateInit2(&stream, 15 + 16) != Z_OK) throw program_error{"zlib cannot start: out of memory"};
  // zlib reads only; its interface predates const.
  stream.next_in = reinterpret_cast<Bytef*>(const_cast<char*>(bytes.data()));
  stream.avail_in = static_cast<uInt>(bytes.size());
  std::string text;
  std::vector<Bytef> piece(std::size_t{1} << 16);
  int status = Z_OK;
  while (status == Z_OK) {
    stream.next_out = piece.data();
    stream.avail_out = static_cast<uInt>(piece.size());
    status = inflate(&stream, Z_NO_FLUSH);
    text.append(reinterpret_cast<char const*>(piece.data()), piece.size() - stream.avail_out);
    if (status == Z_OK && stream.avail_in == 0 && stream.avail_out != 0) status = Z_BUF_ERROR;
    // gzip files may be joined by joining their bytes.
    if (status == Z_STREAM_END && bytes.substr(bytes.size() - stream.avail_in).starts_with(gzip_mark)) {
      status = inflateReset(&stream);
    }
  }
  std::size_t const left = stream.avail_in;
  std::string const said = stream.msg == nullptr ? "" : stream.msg;
  inflateEnd(&stream);
  if (status == Z_BUF_ERROR) {
    throw program_error{
        fmt::format("{}: the gzip file is truncated after {} bytes: fetch it again", name, bytes.size())};
  }
  if (status != Z_STREAM_END) throw program_error{fmt::format("{}: the gzip file is damaged ({})", name, said)};
  if (left != 0) {
    throw program_error{fmt::format("{}: {} of {} bytes stand after the end of the gzip data: fetch it again", name,
                                    left, bytes.size())};
  }
  return text;
}

digits_data parse_digits(std::string_view bytes, std::string_view name) {
  std::string unpacked;
  if (bytes.starts_with(gzip_mark)) {
    unpacked = gunzip(bytes, name);
    bytes = unpacked;
  }
  std::vector<digit_row> const rows = parse_rows(bytes, name);
  digits_data data;
  data.checksum = static_cast<std::uint32_t>(crc32_z(0, reinterpret_cast<Bytef const*>(bytes.data()), bytes.size()));
  auto const tests = static_cast<Eigen::Index>(rows.size() / 3);
  data.test.resize(tests, pixels);
  data.train.resize(static_cast<Eigen::Index>(rows.size()) - tests, pixels);
  for (std::size_t i = 0; i < rows.size(); ++i) {
    bool const test = i % 3 == 2;
    auto& labels = test ? data.test_labels : data.train_labels;
    matrix& part = test ? data.test : data.train;
    for (std::size_t p = 0; p < pixels; ++p) {
      part(static_cast<Eigen::Index>(labels.size()), static_cast<Eigen::Index>(p)) = static_cast<float>(rows[i][p]);
    }
    labels.push_back(static_cast<std::size_t>(rows[i][pixels]));
  }
  standardise(data);
  return data;
}

workload_factory load_digits(train_config const& config) {
  if (config.data.size() > 1) throw program_error{"--workload digits takes one --data file"};
  auto const data = std::make_shared<digits_data const>(
      config.data.empty() ? parse_digits(embedded::digits_csv_gz(), "digits.csv.gz")
                          : parse_digits(read_data(config.data.front()), config.data.front()));
  return [data, model = config.model, seed = config.seed](std::size_t) {
    return std::make_unique<digits>(data, model, seed);
  };
}

workload_defaults digits_defaults(std::string const& model) {
  if (model != "mlp" && model != "conv") {
    throw program_error{fmt::format("--model '{}' is not known: use mlp or conv", model)};
  }
  return {.steps = 240, .batch = 16, .eval_every = 20, .lr = 0.02, .optimizer = "momentum"};
}

}  // namespace gradwire::program
