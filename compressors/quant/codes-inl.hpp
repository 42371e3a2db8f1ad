//! quant's bit strings in vectors: codes to levels, and codes packed. Included inside Highway's foreach_target, once
//! for every target but the scalar one.
#if defined(GRADWIRE_QUANT_CODES_INL_HPP) == defined(HWY_TARGET_TOGGLE)
#ifdef GRADWIRE_QUANT_CODES_INL_HPP
#undef GRADWIRE_QUANT_CODES_INL_HPP
#else
#define GRADWIRE_QUANT_CODES_INL_HPP
#endif

#include <bit>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <type_traits>

#include <hwy/highway.h>

#include "compressors/blocks-inl.hpp"
#include "compressors/quant/format.hpp"

HWY_BEFORE_NAMESPACE();
namespace gradwire::quant {
namespace HWY_NAMESPACE {

#if HWY_TARGET != HWY_SCALAR

namespace hn = hwy::HWY_NAMESPACE;
using gradwire::HWY_NAMESPACE::unrolled;

using f32_tag = hn::CappedTag<float, 16>;
using i32_tag = hn::RebindToSigned<f32_tag>;
using u32_tag = hn::RebindToUnsigned<f32_tag>;
using byte_tag = hn::Repartition<std::uint8_t, f32_tag>;
using f32_vector = hn::Vec<f32_tag>;
using i32_vector = hn::Vec<i32_tag>;
using u32_vector = hn::Vec<u32_tag>;
using byte_vector = hn::Vec<byte_tag>;
constexpr std::size_t width = hn::MaxLanes(f32_tag{});
// Vectors worked on side by side, so that the latency of one is hidden behind the others.
constexpr std::size_t abreast = 4;
constexpr std::size_t group = abreast * width;

//! A grid in vectors; its factor is 1.
struct grid_vectors {
  f32_vector low, high, unit, top;
  explicit grid_vectors(grid const& g)
      : low{hn::Set(f32_tag{}, g.low)},
        high{hn::Set(f32_tag{}, g.high)},
        unit{hn::Set(f32_tag{}, g.unit)},
        top{hn::Set(f32_tag{}, g.top)} {}
};

//! level() of format.hpp, of codes as floats. With `Exact` the codes are an encoder's and top·unit is high: nothing to
//! clamp.
template <bool Centred, bool Exact>
HWY_INLINE f32_vector level_of(grid_vectors const& g, f32_vector q) {
  f32_vector const value = hn::Mul(q, g.unit);
  if constexpr (!Centred) {
    return hn::IfThenElse(hn::Eq(q, g.top), g.high, hn::Add(g.low, value));
  } else if constexpr (Exact) {
    return value;
  } else {
    return hn::Min(hn::Max(value, g.low), g.high);
  }
}

// ---- Bit strings. Vectors hold whole bytes of them whatever the number of bits, because 8 elements do.

constexpr std::size_t half_bytes = 8;  // where a vector of 4 lanes begins within a byte: at bit 0 or, second, at bit 4
constexpr std::size_t starts = width < half_bytes ? 2 : 1;

//! Moves the field of each lane to the top of the lane: a byte shuffle, then a shift to the left.
struct unpack_table {
  alignas(64) std::uint8_t bytes[starts][width * 4];
  alignas(64) std::uint32_t shifts[starts][width];
  alignas(64) std::uint32_t word_shifts[starts][width];  // from the word at the first byte, without a shuffle

  explicit constexpr unpack_table(unsigned bits) : bytes{}, shifts{}, word_shifts{} {
    for (std::size_t start = 0; start < starts; ++start) {
      for (std::size_t lane = 0; lane < width; ++lane) {
        std::size_t const bit = start * width * bits % 8 + lane * bits;
        std::size_t const first = bit / 8;
        // Two bytes at the top; where one is the field, that alone.
        for (std::size_t i = 0; i < 4; ++i) bytes[start][lane * 4 + i] = 0x80;  // zero
        std::size_t const top = lane * 4 + (bits == 8 ? 3 : 2);
        bytes[start][top] = static_cast<std::uint8_t>(first);
        if (bits != 8) bytes[start][top + 1] = static_cast<std::uint8_t>(first < 15 ? first + 1 : first);
        shifts[start][lane] = static_cast<std::uint32_t>(bits == 8 ? 0 : 16 - bits - bit % 8);
        word_shifts[start][lane] = bit + bits <= 32 ? static_cast<std::uint32_t>(32 - bits - bit) : 0;
      }
    }
  }
};
constexpr unpack_table unpack_tables[] = {unpack_table{1}, unpack_table{2}, unpack_table{3}, unpack_table{4},
                                          unpack_table{5}, unpack_table{6}, unpack_table{7}, unpack_table{8}};

//! Brings the 2·bits used bytes of two lanes of 64 bits together.
struct pack_table {
  alignas(16) std::uint8_t bytes[16];

  explicit constexpr pack_table(unsigned bits) : bytes{} {
    for (unsigned i = 0; i < 16; ++i) {
      bytes[i] = static_cast<std::uint8_t>(i < bits ? i : (i < 2 * bits ? 8 + i - bits : 0x80));
    }
  }
};
constexpr pack_table pack_tables[] = {pack_table{1}, pack_table{2}, pack_table{3}, pack_table{4},
                                      pack_table{5}, pack_table{6}, pack_table{7}, pack_table{8}};

//! Joins neighbouring lanes of half the width of d's, each `used` bits full.
template <class D>
HWY_INLINE byte_vector join_halves(D d, byte_vector codes, int used) {
  constexpr int half = static_cast<int>(sizeof(hn::TFromD<D>)) * 4;
  auto const both = hn::BitCast(d, codes);
  auto const lower = hn::And(both, hn::Set(d, (hn::TFromD<D>{1} << half) - 1));
  auto const upper = hn::ShiftRightSame(hn::Xor(both, lower), half - used);
  return hn::BitCast(byte_tag{}, hn::Or(lower, upper));
}

//! Joins neighbouring codes of 4 bits to `wanted` bytes. More may be written, zeros, where something else will be
//! written later on: before `end`.
HWY_INLINE void join_pairs(std::uint8_t const* codes, int used, std::size_t wanted, std::byte* to,
                           std::byte const* end) {
  byte_tag const d;
  hn::Repartition<std::uint16_t, byte_tag> const d16;
  constexpr std::size_t step = width * 4;
  auto const joined = [&](std::uint8_t const* from) HWY_ATTR {
    auto const pairs = hn::BitCast(d16, hn::Load(d, from));
    return hn::BitCast(d, hn::Or(pairs, hn::ShiftRightSame(pairs, 8 - used)));
  };
  for (std::size_t at = 0; at < wanted; at += step) {
    byte_vector const packed = hn::ConcatEven(d, joined(codes + 2 * at + step), joined(codes + 2 * at));
    if (end - to >= static_cast<std::ptrdiff_t>(at + step)) {
      hn::StoreU(packed, d, reinterpret_cast<std::uint8_t*>(to + at));
    } else {
      alignas(64) std::uint8_t last[step];
      hn::Store(packed, d, last);
      std::memcpy(to + at, last, wanted - at);
    }
  }
}

//! Writes `used` bytes of each 16, one after the other, `wanted` in all. What lies behind them in `packed` is zero, and
//! so may be written where something else will be written later on: everywhere before `end`.
HWY_INLINE void store_pieces(byte_vector packed, std::size_t used, std::size_t wanted, std::byte* to,
                             std::byte const* end) {
  hn::CappedTag<std::uint8_t, 16> const d;
  constexpr std::size_t pieces = width * 4 / 16;
  alignas(64) std::uint8_t bytes[width * 4];
  hn::Store(packed, byte_tag{}, bytes);
  if (end - to >= static_cast<std::ptrdiff_t>(pieces * 16)) {
    for (std::size_t p = 0; p < pieces; ++p) {
      hn::StoreU(hn::Load(d, bytes + p * 16), d, reinterpret_cast<std::uint8_t*>(to + p * used));
    }
    return;
  }
  for (std::size_t p = 0; p < pieces && wanted != 0; ++p) {
    std::size_t const some = std::min(used, wanted);
    std::memcpy(to + p * used, bytes + p * 16, some);
    wanted -= some;
  }
}

//! Moves the lower bytes of four vectors, element after element.
struct narrow_table {
  alignas(
      64) std::uint8_t bytes[width * 4];   // within 16 bytes: the bytes of a lane of each vector to those of each lane
  alignas(64) std::uint32_t lanes[width];  // then the lanes of a vector side by side

  constexpr narrow_table() : bytes{}, lanes{} {
    for (std::size_t i = 0; i < width * 4; ++i) bytes[i] = static_cast<std::uint8_t>(i % 4 * 4 + i % 16 / 4);
    constexpr std::size_t parts = width / 4;
    for (std::size_t i = 0; i < width; ++i) lanes[i] = static_cast<std::uint32_t>(i % parts * 4 + i / parts);
  }
};
constexpr narrow_table narrow;

//! `mask`: the bits of a code, in each byte.
HWY_INLINE void store_codes(u32_vector const (&code)[abreast], byte_vector mask, std::uint8_t* codes) {
  static_assert(abreast == 4);
  u32_tag const d;
  hn::Repartition<std::uint16_t, u32_tag> const d16;
  byte_tag const d8;
  auto const even = [&](u32_vector words) HWY_ATTR { return hn::BitCast(d16, words); };
  auto const odd = [&](u32_vector words) HWY_ATTR { return hn::BitCast(d16, hn::ShiftLeft<16>(words)); };
  auto const first = hn::OddEven(odd(code[2]), even(code[0]));
  auto const second = hn::OddEven(odd(code[3]), even(code[1]));
  auto const lower = hn::And(first, hn::Set(d16, std::uint16_t{0xff}));
  byte_vector const words = hn::And(hn::BitCast(d8, hn::Or(lower, hn::ShiftLeft<8>(second))), mask);
  byte_vector const transposed = hn::TableLookupBytes(words, hn::Load(d8, narrow.bytes));
  if constexpr (width == 4) {
    hn::StoreU(transposed, d8, codes);
  } else {
    auto const order = hn::SetTableIndices(d, narrow.lanes);
    hn::StoreU(hn::BitCast(d8, hn::TableLookupLanes(hn::BitCast(d, transposed), order)), d8, codes);
  }
}

//! A group is 16 bytes of nibbles at most.
constexpr bool looks_nibbles_up = group <= 32;

//! The bytes of a group's 4-bit codes each to a half word, in the order in which levels are looked up.
struct spread_table {
  alignas(64) std::uint8_t bytes[width * 4];

  constexpr spread_table() : bytes{} {
    for (std::size_t i = 0; i < width * 4; ++i) {
      std::size_t const element = gradwire::HWY_NAMESPACE::sixteen<f32_tag>::lane(i);
      bytes[i] = static_cast<std::uint8_t>(i % 2 == 0 ? element / 2 : 0x80);
    }
  }
};
constexpr spread_table spread;

//! The levels of 4-bit codes, looked up.
class nibble_levels {
 public:
  template <bool Centred>
  HWY_INLINE void set(grid const& g, float scale) {
    f32_tag const d;
    alignas(64) constexpr float codes[2][16] = {{0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15},
                                                {0, 1, 2, 3, 4, 5, 6, 7, -8, -7, -6, -5, -4, -3, -2, -1}};
    alignas(64) float levels[16];
    grid_vectors const vectors{g};
    for (std::size_t i = 0; i < 16; i += width) {
      f32_vector const level = level_of<Centred, false>(vectors, hn::Load(d, codes[Centred] + i));
      hn::Store(hn::Mul(hn::Set(d, scale), level), d, levels + i);
    }
    levels_.set(levels);
  }

  //! The levels of a group's codes.
  HWY_INLINE void look_up(std::byte const* codes, f32_vector (&x)[abreast]) const {
    byte_tag const d8;
    hn::Repartition<std::uint16_t, byte_tag> const d16;
    auto const sixteen_bytes = hn::LoadDup128(d8, reinterpret_cast<std::uint8_t const*>(codes));
    auto const words = hn::BitCast(d16, hn::TableLookupBytes(sixteen_bytes, hn::Load(d8, spread.bytes)));
    auto const both = hn::And(hn::Or(words, hn::ShiftLeft<4>(words)), hn::Set(d16, std::uint16_t{0x0f0f}));
    levels_.look_up(hn::BitCast(d8, both), x);
  }

 private:
  gradwire::HWY_NAMESPACE::sixteen<f32_tag> levels_;
};

//! How levels are found from fields: looked up; or computed from fields that are moved into place by a shuffle of
//! bytes, by a shift within a word of 32 bits, or by both.
enum class fields : std::uint8_t { nibbles, bytes, word, both };

//! Calls `with(constant)` with the fastest way for this number of bits.
template <class F>
HWY_INLINE auto with_fields(unsigned bits, F&& with) {
  if constexpr (looks_nibbles_up) {
    if (bits == 4) return with(std::integral_constant<fields, fields::nibbles>{});
  }
  if (bits == 8) return with(std::integral_constant<fields, fields::bytes>{});
  if (width * bits + (starts - 1) * 4 <= 32) return with(std::integral_constant<fields, fields::word>{});
  return with(std::integral_constant<fields, fields::both>{});
}

//! Codes to levels, a group at a time.
template <bool Centred, fields How>
class decoder {
 public:
  explicit HWY_INLINE decoder(unsigned bits) : bits_{bits}, mask_{hn::Set(u32_tag{}, ~0u << (32 - bits))} {
    unpack_table const& table = unpack_tables[bits - 1];
    unrolled<starts>([&](auto start) HWY_ATTR {
      bytes_[start] = hn::Load(byte_tag{}, table.bytes[start]);
      shifts_[start] = hn::Load(u32_tag{}, How == fields::word ? table.word_shifts[start] : table.shifts[start]);
    });
  }

  //! Elements, of `count`, whose codes can be had when `readable` bytes may be read: whole groups.
  [[nodiscard]] HWY_INLINE std::size_t reach(std::size_t readable, std::size_t count) const {
    constexpr std::size_t last = How == fields::nibbles ? group : width;  // elements of the last load
    constexpr std::size_t loaded = How == fields::word ? 4 : 16;
    std::size_t whole = count / group * group;
    while (whole != 0 && (whole - last) * bits_ / 8 + loaded > readable) whole -= group;
    return whole;
  }

  //! Levels from now on: those of this grid, whose factor is 1, times `scale`.
  HWY_INLINE void use(grid const& g, float scale) {
    f32_tag const d;
    scale_ = hn::Set(d, scale);
    if constexpr (How == fields::nibbles) {
      nibbles_.template set<Centred>(g, scale);
    } else {
      low_ = hn::Set(d, g.low);
      high_ = hn::Set(d, g.high);
      top_ = hn::Set(d, g.top);
      // Signed fields stay at the top of their lanes, so many bits above units: as the grid's factor is 1, multiplying
      // by that power of two is exact.
      unit_ =
          hn::Set(d, Centred ? g.unit * std::bit_cast<float>(static_cast<std::uint32_t>(95 + bits_) << 23) : g.unit);
    }
  }

  //! The levels of the group whose codes begin at `codes`. Without `Scale` they are not multiplied.
  template <bool Scale>
  HWY_INLINE void operator()(std::byte const* codes, f32_vector (&x)[abreast]) const {
    if constexpr (How == fields::nibbles) {
      nibbles_.look_up(codes, x);
    } else {
      unrolled<abreast>([&](auto v) HWY_ATTR {
        x[v] = level<v % starts>(codes + v * width * bits_ / 8);
        if constexpr (Scale) x[v] = hn::Mul(scale_, x[v]);
      });
    }
  }

 private:
  template <std::size_t Start>
  [[nodiscard]] HWY_INLINE f32_vector level(std::byte const* codes) const {
    f32_tag const d;
    u32_vector field;
    if constexpr (How == fields::word) {
      std::uint32_t word;
      std::memcpy(&word, codes, sizeof word);
      field = hn::Shl(hn::Set(u32_tag{}, word), shifts_[Start]);
    } else {
      byte_vector const sixteen = hn::LoadDup128(byte_tag{}, reinterpret_cast<std::uint8_t const*>(codes));
      field = hn::BitCast(u32_tag{}, hn::TableLookupBytes(sixteen, bytes_[Start]));
      if constexpr (How == fields::both) field = hn::Shl(field, shifts_[Start]);
    }
    if constexpr (Centred) {
      if constexpr (How != fields::bytes) field = hn::And(field, mask_);
      f32_vector const value = hn::Mul(hn::ConvertTo(d, hn::BitCast(i32_tag{}, field)), unit_);
      return hn::Min(hn::Max(value, low_), high_);
    } else {
      auto const code = hn::BitCast(i32_tag{}, hn::ShiftRightSame(field, 32 - static_cast<int>(bits_)));
      f32_vector const q = hn::ConvertTo(d, code);
      return hn::IfThenElse(hn::Eq(q, top_), high_, hn::Add(low_, hn::Mul(q, unit_)));
    }
  }

  std::size_t bits_;
  byte_vector bytes_[starts];
  u32_vector shifts_[starts];
  u32_vector mask_;
  f32_vector scale_, low_, high_, unit_, top_;
  nibble_levels nibbles_;
};

#endif

}  // namespace HWY_NAMESPACE
}  // namespace gradwire::quant
HWY_AFTER_NAMESPACE();

#endif  // per-target include guard
