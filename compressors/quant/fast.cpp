#include "compressors/quant/coder.hpp"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "compressors/quant/fast.cpp"
#include <hwy/foreach_target.h>
#include <hwy/highway.h>

#include "compressors/blocks-inl.hpp"
#include "compressors/quant/codes-inl.hpp"
#include "compressors/random-inl.hpp"

HWY_BEFORE_NAMESPACE();
namespace gradwire::quant {
namespace HWY_NAMESPACE {

namespace hn = hwy::HWY_NAMESPACE;

#if HWY_TARGET == HWY_SCALAR

using loops = reference_loops;

#else

using gradwire::HWY_NAMESPACE::load;
using gradwire::HWY_NAMESPACE::load_from;
using gradwire::HWY_NAMESPACE::prefetch;
using gradwire::HWY_NAMESPACE::random_blocks;
using gradwire::HWY_NAMESPACE::store;

template <class Source>
HWY_INLINE void load_group(Source const& source, std::size_t i, f32_vector (&x)[abreast]) {
  unrolled<abreast>([&](auto v) HWY_ATTR { x[v] = load_from(f32_tag{}, source, i + v * width); });
}

struct loops : gradwire::HWY_NAMESPACE::conversions {
  template <bool AbsMax, class Source>
  static HWY_NOINLINE HWY_FLATTEN extent find_extent(Source const& from, std::size_t count) {
    f32_tag const d;
    i32_tag const di;
    Source const source = from;  // for all that the compiler knows, `from` might lie in what is written
    if (count < group) return reference_loops::find_extent<AbsMax>(source, count);
    // Magnitudes compare like their bits, and those of NaN and infinity lie above all others.
    f32_vector x[abreast];
    i32_vector most[abreast];
    f32_vector low[abreast];
    f32_vector high[abreast];
    load_group(source, 0, x);
    unrolled<abreast>([&](auto v) HWY_ATTR {
      most[v] = hn::BitCast(di, hn::Abs(x[v]));
      low[v] = high[v] = x[v];
    });
    std::size_t i = group;
    for (; i + group <= count; i += group) {
      load_group(source, i, x);
      unrolled<abreast>([&](auto v) HWY_ATTR {
        most[v] = hn::Max(most[v], hn::BitCast(di, hn::Abs(x[v])));
        if constexpr (!AbsMax) {
          low[v] = hn::Min(low[v], x[v]);
          high[v] = hn::Max(high[v], x[v]);
        }
      });
    }
    auto const highest = hn::GetLane(hn::MaxOfLanes(di, hn::Max(hn::Max(most[0], most[1]), hn::Max(most[2], most[3]))));
    bool all_finite = highest < 0x7f800000;
    float lowest_of_all = 0;
    float highest_of_all = std::bit_cast<float>(highest);
    if constexpr (!AbsMax) {
      lowest_of_all = hn::GetLane(hn::MinOfLanes(d, hn::Min(hn::Min(low[0], low[1]), hn::Min(low[2], low[3]))));
      highest_of_all = hn::GetLane(hn::MaxOfLanes(d, hn::Max(hn::Max(high[0], high[1]), hn::Max(high[2], high[3]))));
    }
    for (; i < count; ++i) {
      float const value = source.at(i);
      float const compared = AbsMax ? magnitude(value) : value;
      all_finite = all_finite && finite(value);
      lowest_of_all = compared < lowest_of_all ? compared : lowest_of_all;
      highest_of_all = compared > highest_of_all ? compared : highest_of_all;
    }
    if constexpr (AbsMax) return {0.0f - highest_of_all, highest_of_all, all_finite};
    return {lowest_of_all + 0.0f, highest_of_all + 0.0f, all_finite};
  }

  static HWY_NOINLINE HWY_FLATTEN void draw(random_key key, std::uint32_t tensor_id, std::size_t first,
                                            std::size_t count, std::uint16_t* numbers) {
    static_assert(slack >= 7 * elements_per_random_block);
    random_blocks<random_rounds>(key, tensor_id, first / elements_per_random_block,
                                 (count + elements_per_random_block - 1) / elements_per_random_block,
                                 reinterpret_cast<std::uint32_t*>(numbers));
  }

  //! The code of each element of x, in the lower bits of its lane (to_integer's bits end in eight zeros), and its
  //! level.
  template <bool Centred, bool Stochastic, bool Exact>
  static HWY_INLINE u32_vector code_of(f32_vector x, f32_vector per_unit, grid_vectors const& g,
                                       std::uint16_t const* numbers, f32_vector& sent) {
    f32_tag const d;
    i32_tag const di;
    f32_vector const magic = hn::Set(d, to_integer);
    f32_vector const rounded = hn::Add(hn::Mul(Centred ? x : hn::Sub(x, g.low), per_unit), magic);
    if constexpr (Stochastic) {
      hn::Rebind<std::uint16_t, f32_tag> const d16;
      auto const number = hn::And(hn::LoadU(d16, numbers), hn::Set(d16, random_mask));
      auto const fixed = hn::Sub(hn::BitCast(di, rounded), hn::BitCast(di, magic));
      auto const code = hn::ShiftRight<random_bits>(hn::Add(fixed, hn::PromoteTo(di, number)));
      sent = level_of<Centred, Exact>(g, hn::ConvertTo(d, code));
      return hn::BitCast(u32_tag{}, code);
    } else {
      sent = level_of<Centred, Exact>(g, hn::Sub(rounded, magic));
      return hn::BitCast(u32_tag{}, rounded);
    }
  }

  template <bool Centred, bool Stochastic>
  static std::size_t encode(float const* values, std::size_t count, grid const& g, unsigned mask,
                            std::uint16_t const* numbers, std::uint8_t* codes, float* residual, blocks::upcoming next) {
    // Nearly all blocks: with 8 bits 99 of 100, with 4 bits 9 of 10.
    if constexpr (Centred) {
      if (g.top * g.unit == g.high) {
        return encode_by<Centred, Stochastic, true>(values, count, g, mask, numbers, codes, residual, next);
      }
    }
    return encode_by<Centred, Stochastic, false>(values, count, g, mask, numbers, codes, residual, next);
  }

  template <bool Centred, bool Stochastic, bool Exact>
  static HWY_NOINLINE HWY_FLATTEN std::size_t encode_by(float const* values, std::size_t count, grid const& g,
                                                        unsigned mask, std::uint16_t const* numbers,
                                                        std::uint8_t* codes, float* residual, blocks::upcoming next) {
    f32_tag const d;
    grid_vectors const vectors{g};
    f32_vector const per_unit = hn::Set(d, inverse(g, Centred) * (Stochastic ? random_scale : 1.0f));
    byte_vector const kept_bits = hn::Set(byte_tag{}, static_cast<std::uint8_t>(mask));
    std::size_t i = 0;
    for (; i + group <= count; i += group) {
      if (i % 32 == 0) {
        prefetch(next, i);
        if (residual != nullptr) prefetch(residual, i + count);
      }
      u32_vector code[abreast];
      unrolled<abreast>([&](auto v) HWY_ATTR {
        std::size_t const at = i + v * width;
        f32_vector const x = load(d, values + at);
        f32_vector sent;
        code[v] = code_of<Centred, Stochastic, Exact>(x, per_unit, vectors, numbers + at, sent);
        if (residual != nullptr) store(d, hn::Sub(x, sent), residual + at);
      });
      store_codes(code, kept_bits, codes + i);
    }
    return i;
  }

  static HWY_NOINLINE HWY_FLATTEN void pack(std::uint8_t* codes, std::size_t count, unsigned bits, std::byte* to,
                                            std::byte const* end) {
    byte_tag const d;
    if (count % slack != 0) std::memset(codes + count, 0, slack);
    std::size_t const bytes = code_bytes(count, bits);
    if (bits == 4) return join_pairs(codes, 4, bytes, to, end);
    auto const used = static_cast<int>(bits);
    byte_vector const table = hn::LoadDup128(d, pack_tables[bits - 1].bytes);
    std::size_t const step = width * 4 / 8 * bits;
    for (std::size_t at = 0; at < bytes; at += step) {
      byte_vector packed = hn::Load(d, codes);
      packed = join_halves(hn::Repartition<std::uint16_t, byte_tag>{}, packed, used);
      packed = join_halves(hn::Repartition<std::uint32_t, byte_tag>{}, packed, 2 * used);
      packed = join_halves(hn::Repartition<std::uint64_t, byte_tag>{}, packed, 4 * used);
      store_pieces(hn::TableLookupBytes(packed, table), std::size_t{2} * bits, bytes - at, to + at, end);
      codes += width * 4;
    }
  }

  template <bool Centred, bool Add>
  static std::size_t decode(std::byte const* codes, std::byte const* end, std::size_t count, unsigned bits,
                            grid const& g, float scale, float* x) {
    return with_fields(bits, [&]<fields How>(std::integral_constant<fields, How>) {
      return decode_by<Centred, Add, How>(codes, end, count, bits, g, scale, x);
    });
  }

  template <bool Centred, bool Add, fields How>
  static HWY_NOINLINE HWY_FLATTEN std::size_t decode_by(std::byte const* codes, std::byte const* end, std::size_t count,
                                                        unsigned bits, grid const& g, float scale, float* x) {
    decoder<Centred, How> levels{bits};
    levels.use(g, scale);
    std::size_t const reach = levels.reach(static_cast<std::size_t>(end - codes), count);
    run<Add, true>(levels, codes, reach, bits, x);
    return reach;
  }

  static std::size_t sum(settings const& set, blocks::shards const& shards, float* x) {
    return with_fields(set.bits, [&]<fields How>(std::integral_constant<fields, How>) {
      return set.is_centred ? sum_by<true, How>(set, shards, x) : sum_by<false, How>(set, shards, x);
    });
  }

  template <bool Centred, fields How>
  static HWY_NOINLINE HWY_FLATTEN std::size_t sum_by(settings const& from, blocks::shards const& shards, float* x) {
    settings const set = from;  // for all that the compiler knows, `from` might lie in what is written
    blocks::block const block = shards.block;
    decoder<Centred, How> levels{set.bits};
    std::size_t const reach = levels.reach(shards.bytes - block.payload - header_bytes(set.scale), block.count);
    // Some payloads at a time, so that the divisions for their grids overlap.
    constexpr std::size_t some = 4;
    received parts[some];
    for (std::size_t begin = 0; begin < shards.payloads.size(); begin += some) {
      std::size_t const held = std::min(some, shards.payloads.size() - begin);
      for (std::size_t p = 0; p < held; ++p) {
        std::byte const* const payload = shards.payloads[begin + p] + block.payload;
        parts[p] = read_block(set, payload, block);
        if (!parts[p].finite || parts[p].levels.factor != 1.0f) return 0;
      }
      // Two at a time, half the loads and stores of x, for what is used most; for all it would double the code.
      constexpr bool in_pairs = Centred && (How == fields::nibbles || How == fields::bytes);
      for (std::size_t p = 0; p < held; p += in_pairs ? 2 : 1) {
        bool const first = begin + p == 0;
        levels.use(parts[p].levels, 1.0f);
        if (!in_pairs || p + 1 == held) {
          first ? run<false, false>(levels, parts[p].codes, reach, set.bits, x)
                : run<true, false>(levels, parts[p].codes, reach, set.bits, x);
          continue;
        }
        if constexpr (in_pairs) {
          decoder<Centred, How> other = levels;
          other.use(parts[p + 1].levels, 1.0f);
          first ? run_two<false>(levels, parts[p].codes, other, parts[p + 1].codes, reach, set.bits, x)
                : run_two<true>(levels, parts[p].codes, other, parts[p + 1].codes, reach, set.bits, x);
        }
      }
    }
    return reach;
  }

 private:
  template <bool Add, bool Scale, class Levels>
  static HWY_INLINE void run(Levels const& levels, std::byte const* codes, std::size_t count, unsigned bits, float* x) {
    f32_tag const d;
    for (std::size_t i = 0; i < count; i += group) {
      f32_vector one[abreast];
      levels.template operator()<Scale>(codes, one);
      unrolled<abreast>([&](auto v) HWY_ATTR {
        float* const to = x + i + v * width;
        store(d, Add ? hn::Add(load(d, to), one[v]) : one[v], to);
      });
      codes += group / 8 * bits;
    }
  }

  template <bool Add, class Levels>
  static HWY_INLINE void run_two(Levels const& levels, std::byte const* codes, Levels const& other_levels,
                                 std::byte const* other_codes, std::size_t count, unsigned bits, float* x) {
    f32_tag const d;
    for (std::size_t i = 0; i < count; i += group) {
      f32_vector one[abreast];
      f32_vector other[abreast];
      levels.template operator()<false>(codes, one);
      other_levels.template operator()<false>(other_codes, other);
      unrolled<abreast>([&](auto v) HWY_ATTR {
        float* const to = x + i + v * width;
        store(d, hn::Add(Add ? hn::Add(load(d, to), one[v]) : one[v], other[v]), to);
      });
      codes += group / 8 * bits;
      other_codes += group / 8 * bits;
    }
  }
};

#endif

codec_functions functions() { return blocks::functions<coder<loops>>::table; }

}  // namespace HWY_NAMESPACE
}  // namespace gradwire::quant
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace gradwire::quant {

HWY_EXPORT(functions);

namespace {

// Looks up the target at each call, so that tests can walk through all of them.
template <auto Member, class... Args>
void dispatch(Args... args) {
  (HWY_DYNAMIC_DISPATCH(functions)().*Member)(args...);
}

}  // namespace

constinit codec_functions const fast{
    .encode = dispatch<&codec_functions::encode>,
    .encode_with_feedback = dispatch<&codec_functions::encode_with_feedback>,
    .decode = dispatch<&codec_functions::decode>,
    .decode_add = dispatch<&codec_functions::decode_add>,
    .reduce_encode = dispatch<&codec_functions::reduce_encode>,
};

}  // namespace gradwire::quant
#endif
