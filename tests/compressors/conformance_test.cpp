// What every codec promises about its values: bounds, contraction, bias, zeros, non-finite numbers, broken payloads.
#include <limits>
#include <random>

#include "tests/compressors/conformance.hpp"

namespace gradwire::test {
namespace {

class Conformance : public ConformanceSuite {};
GRADWIRE_FOR_EVERY_CODEC(Conformance);

std::vector<float> lognormal(std::size_t count, std::uint32_t seed) {
  std::mt19937 engine{seed};
  std::lognormal_distribution<float> magnitude{0, 2};
  std::vector<float> values(count);
  for (float& value : values) value = engine() % 2 == 0 ? magnitude(engine) : -magnitude(engine);
  return values;
}

std::vector<float> sparse(std::size_t count, std::uint32_t seed) {
  std::vector<float> values = gaussian(count, seed);
  std::mt19937 engine{seed};
  for (float& value : values) value = engine() % 50 == 0 ? value : 0.0f;
  return values;
}

std::vector<float> spike(std::size_t count) {
  std::vector<float> values(count, 0.0f);
  values[count / 2] = -3.0f;
  return values;
}

TEST_P(Conformance, HasPresetsThatItsOwnCheckAccepts) {
  EXPECT_FALSE(variants(*GetParam(), implementation::fast).empty());
  EXPECT_NO_THROW(static_cast<void>(codec::parse(GetParam()->name)));
}

TEST_P(Conformance, GivesPayloadsOfWholeWordsThatAddUp) {
  for_each_variant([](codec const& codec) {
    std::size_t const granule = codec.granule();
    for (std::size_t const n : sizes()) EXPECT_EQ(codec.encoded_bytes(n) % 4, 0u) << n;
    EXPECT_EQ(codec.encoded_bytes(make_layout({5, 0, 33}).segments),
              codec.encoded_bytes(5) + codec.encoded_bytes(0) + codec.encoded_bytes(33));
    if (granule != 0) {
      EXPECT_EQ(codec.encoded_bytes(3 * granule + 5),
                codec.encoded_bytes(2 * granule) + codec.encoded_bytes(granule + 5));
    }
  });
}

TEST_P(Conformance, StaysInsideItsBuffersAndLeavesTheGapsAlone) {
  for_each_variant([](codec const& codec) {
    for (dtype const type : all_types) {
      for (std::size_t const n : small_sizes()) {
        SCOPED_TRACE(n);
        setup const s{codec, type, make_layout({n, 3, 0, n / 2}), 1 + n % 3};
        auto const values = gaussian(s.where.gradients, 5);
        auto const residual = gaussian(s.where.residuals, 6);
        bytes const payload = encode(s, values);
        fed const fed = encode_with_feedback(s, values, residual);
        static_cast<void>(reduce_encode(s, {payload, fed.payload}, 0.5f, residual));
        // Gaps begin and end the buffers and lie between all segments.
        std::vector<float> const before(s.where.gradients, 77.0f);
        auto const out = read_as(type, decode_into<false>(s, payload, before, 1).data(), before.size());
        auto const kept = read_as(dtype::f32, fed.residual.data(), residual.size());
        for (segment const& one : s.where.segments) {
          EXPECT_EQ(out[one.offset + one.count], 77.0f);
          EXPECT_EQ(kept[one.residual_offset + one.count], residual[one.residual_offset + one.count]);
        }
        EXPECT_EQ(out[0], 77.0f);
        EXPECT_EQ(kept[0], residual[0]);
      }
    }
  });
}

TEST_P(Conformance, KeepsItsErrorBound) {
  for_each_variant([](codec const& codec) {
    for (std::size_t const n : sizes()) {
      if (n > 5000 && codec.text() != codec::parse(GetParam()->name).text()) continue;
      SCOPED_TRACE(n);
      for (auto const& x : {gaussian(n, 1), gaussian(n, 2, 1e-6f), lognormal(n, 3)}) {
        double const bound = codec.entry().error_bound(codec.params(), x);
        // The bounds leave the rounding of f32 arithmetic aside: a few parts in 2^24 of the norm.
        EXPECT_LE(squared_distance(x, round_trip(codec, x)), bound * 1.00001 + 1e-11 * squared_norm(x));
      }
    }
  });
}

TEST_P(Conformance, IsDeterministic) {
  for_each_variant([](codec const& codec) {
    setup const s{codec, dtype::f32, make_layout({257, 33})};
    auto const values = gaussian(s.where.gradients, 8);
    EXPECT_EQ(encode(s, values), encode(s, values));
  });
}

TEST_P(Conformance, IsAContractionWhereItClaimsToBeOne) {
  for_each_variant([](codec const& codec) {
    if (!codec.traits().contractive) return;
    for (std::size_t const n : {std::size_t{1}, std::size_t{32}, std::size_t{257}, std::size_t{4097}}) {
      SCOPED_TRACE(n);
      for (std::uint32_t seed = 0; seed < 5; ++seed) {
        SCOPED_TRACE(seed);
        for (auto const& x : {gaussian(n, seed), lognormal(n, seed), sparse(n, seed), spike(n),
                              std::vector<float>(n, 0.1f), std::vector<float>(n, -3e4f)}) {
          double const norm = squared_norm(x);
          double const loss = squared_distance(x, round_trip(codec, x, {seed, 1}));
          if (norm == 0) {
            EXPECT_EQ(loss, 0);
          } else {
            EXPECT_LT(loss, norm);
          }
        }
      }
    }
  });
}

// Two tests over `repeats` draws. Projections of the summed error on fixed directions are sums of many independent
// terms, so normal: |z| < 7 fails once in 4·10^11 tests. The mean error's squared norm has the expectation of a single
// one's over `repeats`, and concentrates (thousands of coordinates): twice that is tens of standard deviations away.
TEST_P(Conformance, IsUnbiasedWhereItClaimsToBe) {
  for_each_variant([](codec const& codec) {
    if (!codec.traits().unbiased) return;
    constexpr std::size_t n = 4097;
    constexpr std::uint64_t repeats = 200;
    constexpr std::size_t directions = 6;
    auto const x = gaussian(n, 1234);
    std::vector<double> sum(n);
    double squares = 0;
    std::array<double, directions> projected{};
    std::array<double, directions> projected_squares{};
    for (std::uint64_t step = 0; step < repeats; ++step) {
      auto const y = round_trip(codec, x, {99, step});
      squares += squared_distance(x, y);
      std::array<double, directions> dot{};
      std::mt19937 signs{7};
      for (std::size_t i = 0; i < n; ++i) {
        double const error = static_cast<double>(y[i]) - static_cast<double>(x[i]);
        sum[i] += error;
        auto const word = signs();
        dot[0] += error * static_cast<double>(x[i]);
        for (std::size_t d = 1; d < directions; ++d) dot[d] += (word >> d & 1u) != 0 ? error : -error;
      }
      for (std::size_t d = 0; d < directions; ++d) {
        projected[d] += dot[d];
        projected_squares[d] += dot[d] * dot[d];
      }
    }
    double mean_square = 0;
    for (double const one : sum) mean_square += one * one / (repeats * repeats);
    EXPECT_LE(mean_square, 2 * squares / repeats / repeats);
    for (std::size_t d = 0; d < directions; ++d) {
      EXPECT_LE(std::abs(projected[d]), 7 * std::sqrt(projected_squares[d])) << "direction " << d;
    }
    EXPECT_LE(squares / repeats, 1.1 * codec.traits().omega * squared_norm(x)) << "omega is too small";
  });
}

TEST_P(Conformance, DecodesZerosToExactZeros) {
  for_each_variant([](codec const& codec) {
    for (float const zero : {0.0f, -0.0f}) {
      for (std::size_t const n : small_sizes()) {
        setup const s{codec, dtype::f32, make_layout({n})};
        fed const fed = encode_with_feedback(s, std::vector<float>(s.where.gradients, zero),
                                             std::vector<float>(s.where.residuals, zero));
        std::vector<float> const before(s.where.gradients, 0.0f);
        for (float const value : read_as(dtype::f32, decode_into<false>(s, fed.payload, before, 3).data(), n + 1)) {
          EXPECT_EQ(value, 0.0f);
        }
        for (float const value : read_as(dtype::f32, fed.residual.data(), s.where.residuals)) EXPECT_EQ(value, 0.0f);
      }
    }
  });
}

// One non-finite element in the middle of three granules (granule 0: in the first of two segments).
void spoil(codec const& codec, dtype type, float bad) {
  std::size_t const granule = codec.granule();
  std::size_t const block = granule == 0 ? 300 : granule;
  layout const where = granule == 0 ? make_layout({300, 300}) : make_layout({3 * granule, granule});
  setup const s{codec, type, where};
  std::size_t const begin = granule == 0 ? 0 : granule;
  std::size_t const spoiled = begin + block / 2;

  auto values = gaussian(where.gradients, 21);
  auto const residual = gaussian(where.residuals, 22);
  fed const clean = encode_with_feedback(s, values, residual);
  values[where.segments[0].offset + spoiled] = bad;
  fed const dirty = encode_with_feedback(s, values, residual);

  std::vector<float> const before(where.gradients, 0.0f);
  auto const expected = read_as(dtype::f32, clean.residual.data(), where.residuals);
  auto const kept = read_as(dtype::f32, dirty.residual.data(), where.residuals);
  auto const sound = read_as(type, decode_into<false>(s, clean.payload, before, 1).data(), where.gradients);
  auto const out = read_as(type, decode_into<false>(s, dirty.payload, before, 1).data(), where.gradients);
  bool const elementwise = codec.traits().elementwise;
  for (std::size_t segment = 0; segment < where.segments.size(); ++segment) {
    auto const& one = where.segments[segment];
    for (std::size_t i = 0; i < one.count; ++i) {
      bool const hit = segment == 0 && (elementwise ? i == spoiled : i >= begin && i < begin + block);
      float const value = out[one.offset + i];
      float const left = kept[one.residual_offset + i];
      if (hit) {
        ASSERT_TRUE(elementwise ? !std::isfinite(value) : std::isnan(value)) << segment << ", " << i << ": " << value;
        ASSERT_EQ(left, residual[one.residual_offset + i]) << segment << ", " << i;
      } else {
        ASSERT_EQ(value, sound[one.offset + i]) << segment << ", " << i;
        ASSERT_EQ(left, expected[one.residual_offset + i]) << segment << ", " << i;
      }
    }
  }
}

TEST_P(Conformance, SpoilsOneBlockAndNoResidualWhenANumberIsNotFinite) {
  constexpr float infinity = std::numeric_limits<float>::infinity();
  for_each_variant([](codec const& codec) {
    for (dtype const type : all_types) {
      for (float const bad : {std::numeric_limits<float>::quiet_NaN(), infinity, -infinity}) {
        SCOPED_TRACE(testing::Message() << to_string(type) << ", " << bad);
        spoil(codec, type, bad);
      }
    }
  });
}

TEST_P(Conformance, RefusesAPayloadOfAnotherSize) {
  for_each_variant([](codec const& codec) {
    for (std::size_t const n : {std::size_t{0}, std::size_t{1}, std::size_t{257}}) {
      segment const whole{0, 0, n, 0, 7};
      bytes const payload(codec.encoded_bytes(n) + 4);
      std::vector<float> out(n, 5.0f);
      for (std::size_t size = 0; size <= payload.size(); ++size) {
        if (size == payload.size() - 4) continue;
        try {
          codec.decode(running_on->on(), std::span{payload}.first(size), {&whole, 1}, {out.data(), dtype::f32});
          ADD_FAILURE() << size << " bytes for " << n << " elements were accepted";
        } catch (error const& failure) {
          EXPECT_EQ(failure.code(), errc::corrupt_payload);
        }
      }
      EXPECT_EQ(out, std::vector<float>(n, 5.0f));
    }
  });
}

TEST_P(Conformance, DecodesOrRefusesArbitraryBytesAndStaysInsideItsBuffers) {
  for_each_variant([](codec const& codec) {
    for (std::uint32_t seed = 0; seed < 40; ++seed) {
      SCOPED_TRACE(seed);
      std::mt19937 engine{seed};
      setup const s{codec, all_types[seed % 3], make_layout({257, 33}), seed % 4};
      bytes payload = encode(s, gaussian(s.where.gradients, seed));
      if (seed % 4 == 0) {
        for (std::byte& one : payload) one = static_cast<std::byte>(engine());
      } else if (seed % 4 == 1) {
        std::fill(payload.begin(), payload.end(), static_cast<std::byte>(seed % 8 == 1 ? 0xff : 0));
      } else {
        for (int flips = 0; flips < 8; ++flips) {
          payload[engine() % payload.size()] ^= static_cast<std::byte>(1u << engine() % 8);
        }
      }
      std::vector<float> const before(s.where.gradients, 0.5f);
      auto const refuses = [](auto&& call) {
        try {
          static_cast<void>(call());
          return false;
        } catch (error const& failure) {
          EXPECT_EQ(failure.code(), errc::corrupt_payload) << failure.what();
          return true;
        }
      };
      bool const refused = refuses([&] { return decode_into<false>(on_cpu(s), payload, before, 1); });
      EXPECT_EQ(refuses([&] { return decode_into<false>(s, payload, before, 1); }), refused);
      EXPECT_EQ(refuses([&] { return decode_into<true>(s, payload, before, 1); }), refused);
      EXPECT_EQ(refuses([&] { return reduce_encode(s, {payload, payload}, 1, std::nullopt); }), refused);
    }
  });
}

TEST_P(Conformance, SendsPlainNumbersWhereTheTransportMayAddThem) {
  for_each_variant([](codec const& codec) {
    auto const wire = codec.traits().sums_on_wire;
    if (!wire) return;
    setup const s{codec, dtype::f32, make_layout({257})};
    auto const values = gaussian(s.where.gradients, 3);
    bytes const payload = encode(s, values);
    auto const numbers = read_as(*wire, payload.data(), 257);
    auto const out = read_as(dtype::f32, decode_into<false>(s, payload, values, 1).data(), values.size());
    EXPECT_TRUE(std::equal(numbers.begin(), numbers.end(), out.begin() + 1));
  });
}

}  // namespace
}  // namespace gradwire::test
