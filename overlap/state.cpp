#include "overlap/state.hpp"

#include <array>
#include <bit>
#include <cstring>
#include <type_traits>

#include <zlib.h>

#include <gradwire/error.hpp>

#include "compressors/text.hpp"

namespace gradwire::overlap {
namespace {

static_assert(std::endian::native == std::endian::little, "numbers are written as they lie in memory");

// Header: magic, version, CRC-32 of the body, bytes of the body.
constexpr std::array<char, 8> magic{'g', 'w', 's', 't', 'a', 't', 'e', '\n'};
constexpr std::uint32_t version = 1;
constexpr std::size_t header_bytes = 24;

[[noreturn]] void corrupt(std::string_view what) {
  throw error{errc::corrupt_payload, join({"not a reducer state that can be restored: ", what,
                                           ". Give the bytes that save_state() returned, whole and unchanged"})};
}

std::uint32_t checksum(std::span<std::byte const> bytes) {
  return static_cast<std::uint32_t>(crc32_z(0, reinterpret_cast<Bytef const*>(bytes.data()), bytes.size()));
}

class writer {
 public:
  template <class T>
  void number(T value) {
    static_assert(std::is_arithmetic_v<T>);
    raw(&value, sizeof value);
  }
  void text(std::string const& value) {
    number(std::uint64_t{value.size()});
    raw(value.data(), value.size());
  }
  template <class T>
  void list(std::vector<T> const& values) {
    number(std::uint64_t{values.size()});
    raw(values.data(), values.size() * sizeof(T));
  }
  std::vector<std::byte>& bytes() { return bytes_; }

 private:
  void raw(void const* from, std::size_t count) {
    auto const* const begin = static_cast<std::byte const*>(from);
    bytes_.insert(bytes_.end(), begin, begin + count);
  }

  std::vector<std::byte> bytes_;
};

class reader {
 public:
  explicit reader(std::span<std::byte const> bytes) : rest_{bytes} {}

  template <class T>
  T number() {
    T value{};
    std::memcpy(&value, take(sizeof value).data(), sizeof value);
    return value;
  }
  std::string text() {
    auto const bytes = take(length(1));
    return {reinterpret_cast<char const*>(bytes.data()), bytes.size()};
  }
  template <class T>
  std::vector<T> list() {
    std::size_t const count = length(sizeof(T));
    auto const bytes = take(count * sizeof(T));
    std::vector<T> values(count);
    if (count != 0) std::memcpy(values.data(), bytes.data(), bytes.size());
    return values;
  }
  // How many items of at least `least` bytes follow.
  std::size_t length(std::size_t least) {
    auto const count = number<std::uint64_t>();
    if (count > rest_.size() / least) corrupt("it names more items than it holds");
    return count;
  }
  [[nodiscard]] bool empty() const { return rest_.empty(); }

 private:
  std::span<std::byte const> take(std::size_t count) {
    if (count > rest_.size()) corrupt("it ends too early");
    auto const taken = rest_.first(count);
    rest_ = rest_.subspan(count);
    return taken;
  }

  std::span<std::byte const> rest_;
};

std::span<std::byte const> checked_body(std::span<std::byte const> bytes) {
  if (bytes.size() < header_bytes) corrupt("it is shorter than its header");
  if (std::memcmp(bytes.data(), magic.data(), magic.size()) != 0) corrupt("it does not start with the mark of one");
  reader header{bytes.subspan(magic.size(), header_bytes - magic.size())};
  auto const found = header.number<std::uint32_t>();
  auto const expected_sum = header.number<std::uint32_t>();
  auto const length = header.number<std::uint64_t>();
  if (found != version) {
    corrupt(
        join({"it has version ", std::to_string(found), ", and this release reads version ", std::to_string(version)}));
  }
  auto const body = bytes.subspan(header_bytes);
  if (length != body.size()) {
    corrupt(
        join({"its header promises ", std::to_string(length), " bytes, and ", std::to_string(body.size()), " follow"}));
  }
  if (checksum(body) != expected_sum) corrupt("its checksum does not match");
  return body;
}

}  // namespace

std::vector<std::byte> write_state(saved_state const& state) {
  writer body;
  body.number(state.rank);
  body.number(state.ranks);
  body.number(state.step);
  body.number(state.seed);
  body.number(std::uint8_t{state.rebuilt});
  body.list(state.order);
  body.number(std::uint64_t{state.parameters.size()});
  for (auto const& each : state.parameters) {
    body.text(each.name);
    body.text(each.text);
    body.list(each.residual);
  }
  body.number(std::uint64_t{state.owner_runs.size()});
  for (auto const& each : state.owner_runs) {
    body.number(each.parameter);
    body.number(each.first);
    body.list(each.values);
  }

  writer whole;
  for (char const letter : magic) whole.number(letter);
  whole.number(version);
  whole.number(checksum(body.bytes()));
  whole.number(std::uint64_t{body.bytes().size()});
  whole.bytes().insert(whole.bytes().end(), body.bytes().begin(), body.bytes().end());
  return std::move(whole.bytes());
}

saved_state read_state(std::span<std::byte const> bytes) {
  reader body{checked_body(bytes)};
  saved_state state;
  state.rank = body.number<std::uint64_t>();
  state.ranks = body.number<std::uint64_t>();
  state.step = body.number<std::uint64_t>();
  state.seed = body.number<std::uint64_t>();
  state.rebuilt = body.number<std::uint8_t>() != 0;
  state.order = body.list<std::uint32_t>();
  constexpr std::size_t least_parameter = 3 * sizeof(std::uint64_t);
  state.parameters.resize(body.length(least_parameter));
  for (auto& each : state.parameters) {
    each.name = body.text();
    each.text = body.text();
    each.residual = body.list<float>();
  }
  constexpr std::size_t least_run = sizeof(std::uint32_t) + 2 * sizeof(std::uint64_t);
  state.owner_runs.resize(body.length(least_run));
  for (auto& each : state.owner_runs) {
    each.parameter = body.number<std::uint32_t>();
    each.first = body.number<std::uint64_t>();
    each.values = body.list<float>();
  }
  if (!body.empty()) corrupt("there are bytes behind its end");
  return state;
}

}  // namespace gradwire::overlap
