#include "compressors/quant/coder.hpp"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "compressors/quant/fast.cpp"
#include <hwy/foreach_target.h>
#include <hwy/highway.h>

#include "compressors/blocks-inl.hpp"
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
  template <class Levels>
  explicit grid_vectors(Levels const& g)
      : low{hn::Set(f32_tag{}, g.low)},
        high{hn::Set(f32_tag{}, g.high)},
        unit{hn::Set(f32_tag{}, g.unit)},
        top{hn::Set(f32_tag{}, g.top)} {}
};

//! level() of format.hpp, of codes as floats.
template <bool Centred>
HWY_INLINE f32_vector level_of(grid_vectors const& g, f32_vector q) {
  f32_vector const value = hn::Mul(q, g.unit);
  if constexpr (Centred) {
    return hn::Min(hn::Max(value, g.low), g.high);
  } else {
    return hn::IfThenElse(hn::Eq(q, g.top), g.high, hn::Add(g.low, value));
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
        bytes[start][lane * 4] = static_cast<std::uint8_t>(first);
        bytes[start][lane * 4 + 1] = static_cast<std::uint8_t>(first < 15 ? first + 1 : first);
        bytes[start][lane * 4 + 2] = 0x80;  // zero
        bytes[start][lane * 4 + 3] = 0x80;
        shifts[start][lane] = static_cast<std::uint32_t>(32 - bits - bit % 8);
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

HWY_INLINE void store_codes(u32_vector const (&code)[abreast], u32_vector mask, std::uint8_t* codes) {
  static_assert(abreast == 4);
  u32_tag const d;
  byte_tag const d8;
  auto const kept = [&](std::size_t v) HWY_ATTR { return hn::And(code[v], mask); };
  u32_vector const words = hn::Or(hn::Or(kept(0), hn::ShiftLeft<8>(kept(1))),
                                  hn::Or(hn::ShiftLeft<16>(kept(2)), hn::ShiftLeft<24>(kept(3))));
  byte_vector const transposed = hn::TableLookupBytes(hn::BitCast(d8, words), hn::Load(d8, narrow.bytes));
  if constexpr (width == 4) {
    hn::StoreU(transposed, d8, codes);
  } else {
    auto const order = hn::SetTableIndices(d, narrow.lanes);
    hn::StoreU(hn::BitCast(d8, hn::TableLookupLanes(hn::BitCast(d, transposed), order)), d8, codes);
  }
}

//! How the fields of a vector are found: as signed bytes; within a word of 32 bits; or by a shuffle of bytes.
enum class fields : std::uint8_t { bytes, word, shuffled };

//! Calls `with(constant)` with the fastest way for this number of bits.
template <bool Centred, class F>
HWY_INLINE auto with_fields(unsigned bits, F&& with) {
  if (Centred && bits == 8) return with(std::integral_constant<fields, fields::bytes>{});
  if (width * bits + (starts - 1) * 4 <= 32) return with(std::integral_constant<fields, fields::word>{});
  return with(std::integral_constant<fields, fields::shuffled>{});
}

//! The codes that begin at element i, as numbers.
template <bool Centred, fields How>
struct unpacker {
  byte_vector bytes[starts];
  u32_vector shifts[starts];
  int unused;
  std::size_t bits;

  explicit HWY_INLINE unpacker(unsigned code_bits) : unused{32 - static_cast<int>(code_bits)}, bits{code_bits} {
    unrolled<starts>([&](auto start) HWY_ATTR {
      unpack_table const& table = unpack_tables[bits - 1];
      bytes[start] = hn::Load(byte_tag{}, table.bytes[start]);
      shifts[start] = hn::Load(u32_tag{}, How == fields::word ? table.word_shifts[start] : table.shifts[start]);
    });
  }

  //! Elements, of `count`, whose codes can be read 16 bytes at a time when `readable` bytes may be read: whole vectors.
  [[nodiscard]] HWY_INLINE std::size_t reach(std::size_t readable, std::size_t count) const {
    if (readable >= count * bits / 8 + 16) return count / width * width;  // all but the last block: no division
    if (readable < 16) return 0;
    return std::min(count, (readable - 16) * 8 / bits + width) / width * width;
  }

  [[nodiscard]] HWY_INLINE f32_vector operator()(std::byte const* codes, std::size_t i) const {
    std::size_t const start = i / width % starts;
    std::byte const* const at = codes + i * bits / 8;
    u32_vector field;
    if constexpr (How == fields::bytes) {
      auto const code = hn::LoadU(hn::Rebind<std::int8_t, f32_tag>{}, reinterpret_cast<std::int8_t const*>(at));
      return hn::ConvertTo(f32_tag{}, hn::PromoteTo(i32_tag{}, code));
    } else if constexpr (How == fields::word) {
      std::uint32_t word;
      std::memcpy(&word, at, sizeof word);
      field = hn::Shl(hn::Set(u32_tag{}, word), shifts[start]);
    } else {
      byte_vector const sixteen = hn::LoadDup128(byte_tag{}, reinterpret_cast<std::uint8_t const*>(at));
      field = hn::Shl(hn::BitCast(u32_tag{}, hn::TableLookupBytes(sixteen, bytes[start])), shifts[start]);
    }
    if constexpr (Centred) {
      return hn::ConvertTo(f32_tag{}, hn::ShiftRightSame(hn::BitCast(i32_tag{}, field), unused));
    } else {
      return hn::ConvertTo(f32_tag{}, hn::BitCast(i32_tag{}, hn::ShiftRightSame(field, unused)));
    }
  }
};

//! Loads what find_extent looks at, a group of vectors at a time.
template <class Source, class Unpack>
HWY_INLINE void load_group(Source const& source, Unpack const&, std::size_t i, f32_vector (&x)[abreast]) {
  unrolled<abreast>([&](auto v) HWY_ATTR { x[v] = load_from(f32_tag{}, source, i + v * width); });
}

template <bool Centred, bool Last, class Unpack>
HWY_INLINE void load_group(summed<Centred, Last> const& source, Unpack const& unpack, std::size_t i,
                           f32_vector (&x)[abreast]) {
  f32_tag const d;
  // Adding is what takes the time here, so this is where the memory has some to spare.
  if (Last && source.residual != nullptr && i % 32 == 0) prefetch(source.residual, i + source.count);
  if (source.before != nullptr) {
    unrolled<abreast>([&](auto v) HWY_ATTR { x[v] = load(d, source.before + i + v * width); });
  }
  for (std::size_t p = 0; p < source.size; ++p) {
    grid_vectors const g{source.parts[p]};
    std::byte const* const codes = source.parts[p].codes;
    bool const begins = p == 0 && source.before == nullptr;
    unrolled<abreast>([&](auto v) HWY_ATTR {
      f32_vector const one = level_of<Centred>(g, unpack(codes, i + v * width));
      x[v] = begins ? one : hn::Add(x[v], one);
    });
  }
  unrolled<abreast>([&](auto v) HWY_ATTR {
    if constexpr (Last) {
      x[v] = hn::Mul(hn::Set(d, source.scale), x[v]);
      if (source.residual != nullptr) x[v] = hn::Add(load(d, source.residual + i + v * width), x[v]);
    }
    store(d, x[v], source.sums + i + v * width);
  });
}

struct loops {
  static constexpr bool sums_in_registers = true;

  template <bool AbsMax, class Source>
  static extent find_extent(Source const& source, std::size_t count) {
    return find_extent_of<AbsMax>(source, count, count, nullptr);
  }
  template <bool AbsMax, bool Centred, bool Last>
  static extent find_extent(summed<Centred, Last> const& source, std::size_t count) {
    return with_fields<Centred>(source.bits, [&]<fields How>(std::integral_constant<fields, How>) {
      return find_extent_summed<AbsMax, How>(source, count);
    });
  }

  template <bool AbsMax, fields How, bool Centred, bool Last>
  static extent find_extent_summed(summed<Centred, Last> const& source, std::size_t count) {
    unpacker<Centred, How> const unpack{source.bits};
    return find_extent_of<AbsMax>(source, count, unpack.reach(source.readable, count), unpack);
  }

  //! `reach`: elements that may be loaded in vectors.
  template <bool AbsMax, class Source, class Unpack>
  static HWY_NOINLINE HWY_FLATTEN extent find_extent_of(Source const& source, std::size_t count, std::size_t reach,
                                                        Unpack unpack) {
    f32_tag const d;
    i32_tag const di;
    if (reach < group) return reference_loops::find_extent<AbsMax>(source, count);
    // Magnitudes compare like their bits, and those of NaN and infinity lie above all others.
    f32_vector x[abreast];
    i32_vector most[abreast];
    f32_vector low[abreast];
    f32_vector high[abreast];
    load_group(source, unpack, 0, x);
    unrolled<abreast>([&](auto v) HWY_ATTR {
      most[v] = hn::BitCast(di, hn::Abs(x[v]));
      low[v] = high[v] = x[v];
    });
    std::size_t i = group;
    for (; i + group <= reach; i += group) {
      load_group(source, unpack, i, x);
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
    random_blocks(key, tensor_id, first / elements_per_random_block,
                  (count + elements_per_random_block - 1) / elements_per_random_block,
                  reinterpret_cast<std::uint32_t*>(numbers));
  }

  //! The code of each element of x, in the lower bits of its lane (to_integer's bits end in eight zeros), and its
  //! level.
  template <bool Centred, bool Stochastic>
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
      sent = level_of<Centred>(g, hn::ConvertTo(d, code));
      return hn::BitCast(u32_tag{}, code);
    } else {
      sent = level_of<Centred>(g, hn::Sub(rounded, magic));
      return hn::BitCast(u32_tag{}, rounded);
    }
  }

  template <bool Centred, bool Stochastic>
  static HWY_NOINLINE HWY_FLATTEN std::size_t encode(float const* values, std::size_t count, grid const& g,
                                                     unsigned mask, std::uint16_t const* numbers, std::uint8_t* codes,
                                                     float* residual, blocks::upcoming next) {
    f32_tag const d;
    grid_vectors const vectors{g};
    f32_vector const per_unit = hn::Set(d, inverse(g, Centred) * (Stochastic ? random_scale : 1.0f));
    u32_vector const kept_bits = hn::Set(u32_tag{}, mask);
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
        code[v] = code_of<Centred, Stochastic>(x, per_unit, vectors, numbers + at, sent);
        if (residual != nullptr) store(d, hn::Sub(x, sent), residual + at);
      });
      store_codes(code, kept_bits, codes + i);
    }
    return i;
  }

  static HWY_NOINLINE HWY_FLATTEN void pack(std::uint8_t* codes, std::size_t count, unsigned bits, std::byte* to,
                                            std::byte const* end) {
    byte_tag const d;
    std::memset(codes + count, 0, slack);
    std::size_t const bytes = code_bytes(count, bits);
    if (bits == 8) {
      std::memcpy(to, codes, bytes);
      return;
    }
    auto const used = static_cast<int>(bits);
    byte_vector const table = hn::LoadDup128(d, pack_tables[bits - 1].bytes);
    std::size_t const step = width * 4 / 8 * bits;
    for (std::size_t at = 0; at < bytes; at += step) {
      byte_vector packed = hn::Load(d, codes);
      packed = join_halves(hn::Repartition<std::uint16_t, byte_tag>{}, packed, used);
      packed = join_halves(hn::Repartition<std::uint32_t, byte_tag>{}, packed, 2 * used);
      packed = join_halves(hn::Repartition<std::uint64_t, byte_tag>{}, packed, 4 * used);
      store_pieces(hn::TableLookupBytes(packed, table), 2 * bits, bytes - at, to + at, end);
      codes += width * 4;
    }
  }

  template <bool Centred, bool Add, class T>
  static HWY_NOINLINE HWY_FLATTEN std::size_t decode(std::byte const* codes, std::byte const* end, std::size_t count,
                                                     unsigned bits, grid const& g, float scale, T* out) {
    f32_tag const d;
    grid_vectors const vectors{g};
    f32_vector const factor = hn::Set(d, scale);
    unpacker<Centred, fields::shuffled> const unpack{bits};
    std::size_t const reach = unpack.reach(static_cast<std::size_t>(end - codes), count);
    std::size_t i = 0;
    for (; i < reach; i += width) {
      f32_vector const x = hn::Mul(factor, level_of<Centred>(vectors, unpack(codes, i)));
      store(d, Add ? hn::Add(load(d, out + i), x) : x, out + i);
    }
    return i;
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
