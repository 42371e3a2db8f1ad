#include <gradwire/codec.hpp>

#include <algorithm>
#include <array>
#include <cmath>
#include <numeric>
#include <vector>

#include <gradwire/error.hpp>

#include "compressors/gradient.hpp"
#include "compressors/topk/topk.hpp"

namespace gradwire::topk {
namespace {

enum key : std::size_t { key_ratio, key_k };
constexpr double preset_ratio = 0.01;

constexpr std::array keys{
    codec_key{.name = "ratio",
              .kind = key_kind::real,
              .min = 1e-9,
              .max = 1,
              .help = "part of each tensor's elements that is kept (0.01 when neither key is given)"},
    codec_key{.name = "k",
              .kind = key_kind::integer,
              .min = 1,
              .max = 0x1p53,
              .help = "elements kept of each tensor, instead of ratio"},
};

void check(param_values const& params) {
  if (!params.given(key_ratio) || !params.given(key_k)) return;
  throw error{errc::invalid_argument,
              "topk: ratio and k are both given: use one of them, ratio=0.01 for one element in a hundred or k=1000 "
              "for a thousand of each tensor"};
}

codec_traits traits(param_values const&) {
  codec_traits result;
  result.contractive = true;
  return result;
}

std::size_t encoded_bytes(param_values const& params, std::size_t count) { return layout_of(params, count).bytes(); }

// ‖x − top_k(x)‖² ≤ (1 − k/n)·‖x‖²: the n − k smallest squares are at most their share of the sum (Stich, Cordonnier
// and Jaggi 2018, arXiv:1809.07599, lemma A.1).
double error_bound(param_values const& params, std::span<float const> x) {
  if (x.empty()) return 0;
  double norm = 0;
  for (float const value : x) norm += static_cast<double>(value) * static_cast<double>(value);
  return (1 - static_cast<double>(kept_of(params, x.size())) / static_cast<double>(x.size())) * norm;
}

// ---- Reference: sort, keep, write

void encode_one(layout const& shape, std::vector<float> const& x, std::byte* payload) {
  if (std::any_of(x.begin(), x.end(), [](float value) { return magnitude(value) >= infinity_bits; })) {
    return write_spoiled(shape, payload);
  }
  std::vector<std::size_t> order(x.size());
  std::iota(order.begin(), order.end(), std::size_t{0});
  auto const last = order.begin() + static_cast<std::ptrdiff_t>(shape.kept);
  std::nth_element(order.begin(), last - 1, order.end(), [&](std::size_t a, std::size_t b) {
    return magnitude(x[a]) != magnitude(x[b]) ? magnitude(x[a]) > magnitude(x[b]) : a < b;
  });
  order.erase(last, order.end());
  std::sort(order.begin(), order.end());
  std::vector<float> values;
  values.reserve(order.size());
  for (std::size_t const index : order) values.push_back(x[index]);
  write_payload(shape, payload, order, values);
}

void encode(exec const&, param_values const& params, const_elements in, std::span<segment const> segments, random_key,
            std::byte* payload) {
  for_each_segment(params, segments, [&](segment const& one, layout const& shape, std::size_t at) {
    std::vector<float> x(one.count);
    with_type(in, [&](auto const* from) {
      for (std::size_t i = 0; i < one.count; ++i) x[i] = to_float(from[one.offset + i]);
    });
    encode_one(shape, x, payload + at);
  });
}

void decode(exec const&, param_values const& params, std::byte const* payload, std::span<segment const> segments,
            elements out, float scale) {
  for_each_segment(params, segments, [&](segment const& one, layout const& shape, std::size_t at) {
    reader kept{shape, payload + at};
    float const rest = kept.spoiled() ? std::numeric_limits<float>::quiet_NaN() : 0.0f;
    with_type(out, [&]<class T>(T* to) {
      for (std::size_t i = 0; i < one.count; ++i) to[one.offset + i] = from_float<T>(scale * rest);
      for (; kept.index() != reader::end; kept.next()) {
        to[one.offset + kept.index()] = from_float<T>(scale * kept.value());
      }
    });
  });
}

void decode_add(exec const&, param_values const& params, std::byte const* payload, std::span<segment const> segments,
                elements out, float scale) {
  for_each_segment(params, segments, [&](segment const& one, layout const& shape, std::size_t at) {
    reader kept{shape, payload + at};
    with_type(out, [&]<class T>(T* to) {
      if (kept.spoiled()) {
        std::fill_n(to + one.offset, one.count, from_float<T>(std::numeric_limits<float>::quiet_NaN()));
      }
      for (; kept.index() != reader::end; kept.next()) {
        T& sum = to[one.offset + kept.index()];
        sum = from_float<T>(to_float(sum) + scale * kept.value());
      }
    });
  });
}

codec_entry make() {
  codec_entry entry;
  entry.name = "topk";
  entry.wire_id = 6;
  entry.version = 1;
  entry.summary = "the k elements of largest magnitude of each tensor, with Elias-Fano indices";
  entry.keys = keys;
  entry.check = check;
  entry.traits = traits;
  entry.granule = [](param_values const&) -> std::size_t { return 0; };
  entry.encoded_bytes = encoded_bytes;
  entry.error_bound = error_bound;
  entry.reference.encode = encode;
  entry.reference.decode = decode;
  entry.reference.decode_add = decode_add;
  entry.cpu = fast;
  return entry;
}

}  // namespace

std::size_t kept_of(param_values const& params, std::size_t count) noexcept {
  if (params.given(key_k)) return std::min(params.integer(key_k), count);
  double const ratio = params.given(key_ratio) ? params.real(key_ratio) : preset_ratio;
  double const wanted = std::floor(ratio * static_cast<double>(count));
  // 2^53 and more elements: the product may round up past what there is.
  if (wanted >= static_cast<double>(count)) return count;
  return std::min(count, std::max<std::size_t>(1, static_cast<std::size_t>(wanted)));
}

}  // namespace gradwire::topk

namespace gradwire::registry {

codec_entry const& topk() {
  static codec_entry const entry = gradwire::topk::make();
  return entry;
}

}  // namespace gradwire::registry
