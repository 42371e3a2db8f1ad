#pragma once
//! What the conformance suites share: the codecs' parameter variants, and calls of every codec function in buffers
//! whose ends are watched. A suite is instantiated once per codec of the registry, so a new codec brings no line of its
//! own.

#include <algorithm>
#include <cmath>
#include <memory>
#include <optional>
#include <ostream>
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include <gradwire/codec.hpp>
#include <gradwire/error.hpp>

#include "tests/compressors/device.hpp"
#include "tests/support/arrays.hpp"

namespace gradwire::test {

inline constexpr std::array all_types{dtype::f32, dtype::f16, dtype::bf16};
inline constexpr std::array both_implementations{implementation::fast, implementation::reference};

//! The values of one key that are tried: all of a small range, otherwise both ends.
[[nodiscard]] inline std::vector<double> values_to_try(codec_key const& key) {
  std::vector<double> values;
  if (key.kind == key_kind::choice) {
    for (std::size_t i = 0; i < key.choices.size(); ++i) values.push_back(static_cast<double>(i));
  } else if (key.kind == key_kind::integer && key.max - key.min < 10) {
    for (int i = 0; i <= static_cast<int>(key.max - key.min); ++i) values.push_back(key.min + i);
  } else {
    values = {key.min, key.max};
  }
  return values;
}

//! The presets under every combination of choices, and the presets with each other key at each value to try. What the
//! codec's `check` refuses is left out.
[[nodiscard]] inline std::vector<codec> variants(codec_entry const& entry, implementation impl) {
  param_values presets;
  for (std::size_t i = 0; i < entry.keys.size(); ++i) presets.values[i] = entry.keys[i].preset;
  std::vector<param_values> tried{presets};
  for (std::size_t i = 0; i < entry.keys.size(); ++i) {
    std::vector<param_values> const before = entry.keys[i].kind == key_kind::choice ? tried : std::vector{presets};
    for (param_values values : before) {
      for (double const value : values_to_try(entry.keys[i])) {
        values.values[i] = value;
        tried.push_back(values);
      }
    }
  }
  std::vector<codec> made;
  for (param_values const& values : tried) {
    try {
      codec one{entry, values, impl};
      bool const is_new = std::none_of(made.begin(), made.end(), [&](auto& c) { return c.text() == one.text(); });
      if (is_new) made.push_back(one);
    } catch (error const& refused) {
      EXPECT_EQ(refused.code(), errc::invalid_argument) << refused.what();
    }
  }
  return made;
}

//! Segments with gaps between them in both buffers, of differing tensors.
struct layout {
  std::vector<segment> segments;
  std::size_t gradients = 0;  //!< elements of the gradient buffer
  std::size_t residuals = 0;  //!< elements of the residual buffer
};

[[nodiscard]] inline layout make_layout(std::vector<std::size_t> const& counts) {
  layout made{{}, 1, 2};
  for (std::size_t const count : counts) {
    made.segments.push_back(
        {made.gradients, made.residuals, count, 0, 40 + static_cast<std::uint32_t>(made.gradients)});
    made.gradients += count + 1;
    made.residuals += count + 3;
  }
  return made;
}

//! A codec at work on gradients of a type, every buffer `shift` elements (payloads: bytes) off alignment.
struct setup {
  gradwire::codec codec;
  dtype type = dtype::f32;
  layout where;
  std::size_t shift = 0;
  random_key key{11, 22};
  device* on = running_on;
};

//! The same on the CPU: what other devices are held against.
[[nodiscard]] inline setup on_cpu(setup s) {
  s.on = &cpu();
  return s;
}

using bytes = std::vector<std::byte>;

[[nodiscard]] inline bytes to_bytes(dtype type, std::span<float const> values) {
  bytes made(values.size() * size_of(type));
  write_as(type, values, made.data());
  return made;
}

[[nodiscard]] inline bytes copy(guarded& from) {
  EXPECT_TRUE(from.intact()) << "wrote outside its buffer";
  auto const all = from.bytes();
  return {all.begin(), all.end()};
}

[[nodiscard]] inline bytes encode(setup const& s, std::span<float const> values) {
  bytes const raw = to_bytes(s.type, values);
  input const grad{raw, s.shift * size_of(s.type)};
  guarded payload{s.codec.encoded_bytes(s.where.segments), s.shift};
  std::span const to{inout(*s.on, payload), payload.bytes().size()};
  s.codec.encode(s.on->on(), {s.on->in(grad.bytes()), s.type}, s.where.segments, s.key, to);
  s.on->finish();
  return copy(payload);
}

struct fed {
  bytes payload;
  bytes residual;
  friend bool operator==(fed const&, fed const&) = default;
};

[[nodiscard]] inline fed encode_with_feedback(setup const& s, std::span<float const> values,
                                              std::span<float const> residual) {
  bytes const raw = to_bytes(s.type, values);
  input const grad{raw, s.shift * size_of(s.type)};
  guarded kept{residual.size_bytes(), s.shift * sizeof(float)};
  write_as(dtype::f32, residual, kept.data());
  guarded payload{s.codec.encoded_bytes(s.where.segments), s.shift};
  auto* const lost = reinterpret_cast<float*>(inout(*s.on, kept));
  std::span const to{inout(*s.on, payload), payload.bytes().size()};
  s.codec.encode_with_feedback(s.on->on(), {s.on->in(grad.bytes()), s.type}, lost, s.where.segments, s.key, to);
  s.on->finish();
  return {copy(payload), copy(kept)};
}

//! `before` is what the output buffer holds at the start.
template <bool Add>
[[nodiscard]] bytes decode_into(setup const& s, bytes const& payload, std::span<float const> before, float scale) {
  input const from{payload, s.shift};
  guarded out{before.size() * size_of(s.type), s.shift * size_of(s.type)};
  write_as(s.type, before, out.data());
  elements const to{inout(*s.on, out), s.type};
  std::span const sent{s.on->in(from.bytes()), payload.size()};
  if constexpr (Add) {
    s.codec.decode_add(s.on->on(), sent, s.where.segments, to, scale);
  } else {
    s.codec.decode(s.on->on(), sent, s.where.segments, to, scale);
  }
  s.on->finish();
  return copy(out);
}

[[nodiscard]] inline fed reduce_encode(setup const& s, std::vector<bytes> const& payloads, float scale,
                                       std::optional<std::vector<float>> const& residual) {
  std::vector<input> inputs;
  for (bytes const& one : payloads) inputs.emplace_back(one, s.shift);
  std::vector<std::byte const*> sources;
  for (input const& one : inputs) sources.push_back(s.on->in(one.bytes()));
  guarded kept{residual ? residual->size() * sizeof(float) : 0, s.shift * sizeof(float)};
  if (residual) write_as(dtype::f32, *residual, kept.data());
  guarded payload{s.codec.encoded_bytes(s.where.segments), s.shift};
  auto* const lost = residual ? reinterpret_cast<float*>(inout(*s.on, kept)) : nullptr;
  std::span const to{inout(*s.on, payload), payload.bytes().size()};
  s.codec.reduce_encode(s.on->on(), sources, scale, lost, s.where.segments, s.key, to);
  s.on->finish();
  return {copy(payload), copy(kept)};
}

//! What one segment decodes to, in f32.
[[nodiscard]] inline std::vector<float> round_trip(codec const& codec, std::span<float const> x, random_key key = {}) {
  setup const s{codec, dtype::f32, {{{0, 0, x.size(), 0, 7}}, x.size(), x.size()}, 0, key};
  bytes const payload = encode(s, x);
  std::vector<float> const before(x.size(), -1.0f);
  return read_as(dtype::f32, decode_into<false>(s, payload, before, 1).data(), x.size());
}

//! As floats, every NaN the same one: which NaN comes out is no part of the contract.
[[nodiscard]] inline std::vector<std::uint32_t> comparable(dtype type, bytes const& raw) {
  std::vector<std::uint32_t> bits;
  for (float const value : read_as(type, raw.data(), raw.size() / size_of(type))) {
    bits.push_back(value == value ? std::bit_cast<std::uint32_t>(value) : 0x7fc00000u);
  }
  return bits;
}

[[nodiscard]] inline double squared_norm(std::span<float const> x) {
  double sum = 0;
  for (float const value : x) sum += static_cast<double>(value) * static_cast<double>(value);
  return sum;
}

[[nodiscard]] inline double squared_distance(std::span<float const> x, std::span<float const> y) {
  double sum = 0;
  for (std::size_t i = 0; i < x.size(); ++i) {
    double const difference = static_cast<double>(x[i]) - static_cast<double>(y[i]);
    sum += difference * difference;
  }
  return sum;
}

//! A codec on a device.
struct codec_on {
  codec_entry const* entry;
  device* where;
  codec_entry const* operator->() const { return entry; }
  codec_entry const& operator*() const { return *entry; }
};
inline void PrintTo(codec_on const& one, std::ostream* out) { *out << one->name << " on " << one.where->name(); }

class ConformanceSuite : public testing::TestWithParam<codec_on> {
 protected:
  void SetUp() override {
    running_on = GetParam().where;
    running_on->prepare();
  }
  void TearDown() override { running_on = &cpu(); }
  [[nodiscard]] bool is_on_cpu() const { return GetParam().where == &cpu(); }

  //! Calls `check(codec)` for every variant; on the CPU in both implementations.
  template <class F>
  void for_each_variant(F&& check) {
    for (implementation const impl : both_implementations) {
      if (impl == implementation::reference && !is_on_cpu()) return;
      for (codec const& one : variants(*GetParam(), impl)) {
        SCOPED_TRACE(one.text() + (impl == implementation::fast ? ", fast" : ", reference"));
        check(one);
        if (HasFatalFailure()) return;
      }
    }
  }
};

//! Every codec of the build on every device of the executable that it has functions for.
[[nodiscard]] inline std::vector<codec_on> codecs_on_devices() {
  std::vector<codec_on> all;
  for (codec_entry const* const entry : codecs()) {
    for (device* const where : devices()) {
      if (where == &cpu() || entry->cuda != nullptr) all.push_back({entry, where});
    }
  }
  return all;
}

[[nodiscard]] inline std::string codec_name(testing::TestParamInfo<codec_on> const& one) {
  std::string const codec{one.param->name};
  return one.param.where == &cpu() ? codec : codec + "_" + std::string{one.param.where->name()};
}

//! Instantiates a suite for every codec of the build.
#define GRADWIRE_FOR_EVERY_CODEC(suite) \
  INSTANTIATE_TEST_SUITE_P(, suite, testing::ValuesIn(gradwire::test::codecs_on_devices()), gradwire::test::codec_name)

}  // namespace gradwire::test
