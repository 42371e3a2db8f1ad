#include <bit>
#include <cstring>
#include <string>

#include <gradwire/error.hpp>

#include "compressors/text.hpp"
#include "compressors/topk/topk.hpp"

namespace gradwire::topk {
namespace {

error corrupt(std::string_view what) {
  return {errc::corrupt_payload,
          join({"topk: ", what, ": these bytes did not come from topk with these parameters and this element count"})};
}

}  // namespace

void write_payload(layout const& shape, std::byte* payload, std::span<std::size_t const> indices,
                   std::span<float const> values) noexcept {
  store_word(payload, 0, header_plain);
  for (std::size_t i = 0; i < shape.kept; ++i) {
    store_word(payload, shape.values_at() + i, std::bit_cast<std::uint32_t>(sent(values[i])));
  }
  std::memset(payload + 4 * shape.low_at(), 0, 4 * (shape.low_words + shape.upper_words));
  std::size_t const low_mask = (std::size_t{1} << shape.low_width) - 1;
  for (std::size_t i = 0; i < shape.kept; ++i) {
    store_bits(payload, shape.low_at(), i * shape.low_width, shape.low_width, indices[i] & low_mask);
    store_bits(payload, shape.upper_at(), (indices[i] >> shape.low_width) + i, 1, 1);
  }
}

void write_spoiled(layout const& shape, std::byte* payload) noexcept {
  std::memset(payload, 0, shape.bytes());
  store_word(payload, 0, header_spoiled);
}

reader::reader(layout const& shape, std::byte const* payload)
    : shape_{shape},
      payload_{payload},
      wide_{shape.low_width <= 57 && shape.upper_words >= 2},
      word_{shape.upper_at() - 1} {
  std::uint32_t const header = load_word(payload, 0);
  if (header > header_spoiled) throw corrupt(join({"the first word is ", std::to_string(header), ", not 0 or 1"}));
  spoiled_ = header == header_spoiled;
  if (spoiled_) {
    check_spoiled();
    return;
  }
  check_counts();
  next();
}

void reader::check_spoiled() const {
  std::uint32_t any = 0;
  for (std::size_t word = 1; word < shape_.words(); ++word) any |= load_word(payload_, word);
  if (any != 0) throw corrupt("the segment is marked as not finite and yet holds numbers");
}

void reader::check_counts() const {
  std::size_t ones = 0;
  for (std::size_t word = shape_.upper_at(); word < shape_.words(); ++word) {
    ones += static_cast<std::size_t>(std::popcount(load_word(payload_, word)));
  }
  if (ones != shape_.kept) {
    throw corrupt(join({"the index bitmap has ", std::to_string(ones), " ones, not ", std::to_string(shape_.kept)}));
  }
  std::size_t const used = shape_.kept * shape_.low_width % 32;
  if (used != 0 && load_word(payload_, shape_.upper_at() - 1) >> used != 0) throw corrupt("the padding is not zero");
}

void reader::refuse(std::size_t index) const {
  throw corrupt(join({"kept element ", std::to_string(taken_), " of ", std::to_string(shape_.kept), " has index ",
                      std::to_string(index), " and value ", std::to_string(value_), "; indices rise and stay below ",
                      std::to_string(shape_.count), ", values are finite and not -0"}));
}

}  // namespace gradwire::topk
