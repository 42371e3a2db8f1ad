#include <algorithm>
#include <array>
#include <chrono>
#include <cmath>
#include <span>

#include <fmt/format.h>

#include <gradwire/buffer.hpp>
#include <gradwire/inproc.hpp>
#include <gradwire/reduction.hpp>

#include "core/random.hpp"
#include "program/doctor/checks.hpp"

namespace gradwire::program {
namespace {

// One bucket of the default size.
constexpr std::size_t bucket_elements = (std::size_t{25} << 20) / sizeof(float);

double timed(auto const& work) {
  double best = 1e9;
  for (int i = 0; i < 3; ++i) {
    auto const begin = std::chrono::steady_clock::now();
    work();
    best = std::min(best, std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count());
  }
  return best;
}

void fill(std::span<float> values) {
  for (std::size_t i = 0; i < values.size(); i += 4) {
    auto const words = random_block({1, 0}, 0, i);
    for (std::size_t j = 0; j < 4 && i + j < values.size(); ++j) {
      // A sum of two uniform numbers around 0: most small, a few large, as gradients are.
      values[i + j] = (static_cast<float>(words[j] >> 16) - static_cast<float>(words[j] & 0xffffu)) * 0x1p-16f;
    }
  }
}

// The local work of one rank: its own encoding, the part that it sums, the decoding of everything.
double codec_seconds(spec const& how, std::string_view reduction, std::size_t ranks, std::span<float> gradient,
                     std::span<float> residual) {
  exec const here;
  codec const& method = how.codec;
  std::array<segment, 1> const whole{{{.count = bucket_elements}}};
  std::size_t const granule = std::max<std::size_t>(method.granule(), 1);
  std::size_t const own =
      method.granule() == 0 ? bucket_elements : (bucket_elements / ranks + granule - 1) / granule * granule;
  std::array<segment, 1> const part{{{.count = std::min(own, bucket_elements)}}};
  buffer payload{method.encoded_bytes(bucket_elements)};
  buffer summed{method.encoded_bytes(part[0].count)};
  const_elements const in{gradient.data(), dtype::f32};
  elements const out{gradient.data(), dtype::f32};
  double const encode = timed([&] {
    if (how.error_feedback) {
      method.encode_with_feedback(here, in, residual.data(), whole, {}, payload.bytes());
    } else {
      method.encode(here, in, whole, {}, payload.bytes());
    }
  });
  double const decode = timed([&] { method.decode(here, payload.bytes(), whole, out); });
  if (reduction == "one_shot") return encode + static_cast<double>(ranks) * decode;
  if (reduction == "dense") return encode + decode;
  method.encode(here, in, part, {}, summed.bytes());
  std::vector<std::byte const*> const payloads(ranks, summed.data());
  buffer again{summed.size()};
  double const sum = timed([&] {
    method.reduce_encode(here, payloads, 1.0f / static_cast<float>(ranks),
                         how.error_feedback ? residual.data() : nullptr, part, {}, again.bytes());
  });
  return encode + sum + decode;
}

}  // namespace

std::vector<finding> check_break_even(doctor_options const& options) {
  std::vector<finding> result;
  if (options.ranks < 2) return result;
  buffer gradient{bucket_elements * sizeof(float)};
  buffer residual{bucket_elements * sizeof(float)};
  std::fill_n(residual.as<float>().begin(), bucket_elements, 0.0f);
  std::array<segment, 1> const whole{{{.count = bucket_elements}}};
  auto const group = make_inproc_group(options.ranks);
  for (char const* const text : {"bf16", "onebit+ef", "quant(bits=4)", "topk(ratio=0.01)+ef"}) {
    spec const how = spec::parse(text);
    fill(gradient.as<float>());
    auto const chosen = make_reduction(*group.front(), how, whole, dtype::f32);
    auto const wire = static_cast<double>(chosen->wire_bytes());
    double const dense = dense_bytes(bucket_elements, options.ranks);
    double const codec = codec_seconds(how, chosen->name(), options.ranks, gradient.as<float>(), residual.as<float>());
    double const speed = (dense - wire) / codec;
    finding line{.how = severity::info, .check = fmt::format("break-even {}", text)};
    line.text = fmt::format("faster than dense f32 on links below {:.3g} Gbit/s ({} ranks, {:.3g} times fewer bytes)",
                            8 * speed / 1e9, options.ranks, dense / wire);
    line.values = {{"spec", text},
                   {"ranks", options.ranks},
                   {"bytes", bucket_elements * sizeof(float)},
                   {"reduction", chosen->name()},
                   {"dense_bytes", std::llround(dense)},
                   {"wire_bytes", chosen->wire_bytes()},
                   {"codec_seconds", codec},
                   {"break_even_bytes_per_second", speed}};
    result.push_back(std::move(line));
  }
  return result;
}

}  // namespace gradwire::program
