#include "program/fidelity/npy.hpp"

#include <bit>
#include <charconv>
#include <cstdint>
#include <cstring>
#include <limits>
#include <optional>

#include <fmt/format.h>

#include <gradwire/dtype.hpp>

#include "program/common/context.hpp"
#include "program/common/json_lines.hpp"

namespace gradwire::program::fidelity {
namespace {

static_assert(std::endian::native == std::endian::little, "numbers are copied as they lie in the file");

constexpr std::string_view magic{"\x93NUMPY", 6};

[[noreturn]] void fail(std::string_view name, std::string const& what) {
  throw program_error{fmt::format("{}: {}", name, what)};
}

// The header is a Python dict literal with the keys descr, fortran_order and shape, in any order.
class header_parser {
 public:
  header_parser(std::string_view text, std::string_view name) : text_{text}, name_{name} {}

  npy_array parse() {
    npy_array array;
    bool descr = false;
    bool order = false;
    bool shape = false;
    expect('{');
    while (!take('}')) {
      std::string const key = quoted();
      expect(':');
      if (key == "descr" && !descr) {
        if (!at('\'') && !at('"')) fail(name_, "a structured array (fields); save one field as a plain array");
        array.descr = quoted();
        descr = true;
      } else if (key == "fortran_order" && !order) {
        array.fortran_order = boolean();
        order = true;
      } else if (key == "shape" && !shape) {
        array.shape = tuple();
        shape = true;
      } else {
        unreadable();
      }
      if (!take(',') && !at('}')) unreadable();
    }
    if (!descr || !order || !shape) fail(name_, "its header lacks descr, fortran_order or shape; save it again");
    return array;
  }

 private:
  [[noreturn]] void unreadable() const {
    fail(name_,
         fmt::format("its header cannot be read at '{}'; save the array again with numpy.save", text_.substr(at_, 20)));
  }
  void skip_space() {
    while (at_ < text_.size() && (text_[at_] == ' ' || text_[at_] == '\n' || text_[at_] == '\t')) ++at_;
  }
  bool at(char c) {
    skip_space();
    return at_ < text_.size() && text_[at_] == c;
  }
  bool take(char c) {
    if (!at(c)) return false;
    ++at_;
    return true;
  }
  void expect(char c) {
    if (!take(c)) unreadable();
  }
  std::string quoted() {
    char const quote = at('"') ? '"' : '\'';
    expect(quote);
    auto const end = text_.find(quote, at_);
    if (end == std::string_view::npos) unreadable();
    std::string value{text_.substr(at_, end - at_)};
    at_ = end + 1;
    return value;
  }
  bool boolean() {
    skip_space();
    for (auto const& [word, value] : {std::pair{std::string_view{"True"}, true}, {"False", false}}) {
      if (text_.substr(at_, word.size()) != word) continue;
      at_ += word.size();
      return value;
    }
    unreadable();
  }
  std::vector<std::size_t> tuple() {
    std::vector<std::size_t> numbers;
    expect('(');
    while (!take(')')) {
      skip_space();
      std::size_t number = 0;
      auto const [end, failure] = std::from_chars(text_.data() + at_, text_.data() + text_.size(), number);
      if (failure != std::errc{}) unreadable();
      numbers.push_back(number);
      at_ = static_cast<std::size_t>(end - text_.data());
      if (!take(',') && !at(')')) unreadable();
    }
    return numbers;
  }

  std::string_view text_;
  std::string_view name_;
  std::size_t at_ = 0;
};

std::size_t width_of(std::string const& descr, std::string_view name) {
  if (descr == "<f4") return 4;
  if (descr == "<f8") return 8;
  if (descr == "<f2") return 2;
  std::string const mend = "write it again with numpy.save(file, array.astype('<f4'))";
  if (descr.find('O') != std::string::npos) fail(name, "Python objects, not numbers; " + mend);
  if (descr.starts_with('>')) fail(name, fmt::format("big-endian numbers ('{}'); {}", descr, mend));
  fail(name, fmt::format("numbers of type '{}'; read here are <f2, <f4 and <f8; {}", descr, mend));
}

// Nothing when it does not fit in std::size_t.
std::optional<std::size_t> product(std::vector<std::size_t> const& shape, std::size_t width) {
  std::size_t bytes = width;
  for (std::size_t const extent : shape) {
    if (extent != 0 && bytes > std::numeric_limits<std::size_t>::max() / extent) return std::nullopt;
    bytes *= extent;
  }
  return bytes;
}

template <class T, class Convert>
std::vector<float> numbers(std::string_view data, Convert const& convert) {
  std::vector<float> values(data.size() / sizeof(T));
  for (std::size_t i = 0; i < values.size(); ++i) {
    T value{};
    std::memcpy(&value, data.data() + i * sizeof(T), sizeof(T));
    values[i] = convert(value);
  }
  return values;
}

}  // namespace

npy_array parse_npy(std::string_view bytes, std::string_view name) {
  if (!bytes.starts_with(magic))
    fail(name, "not a .npy file (it does not start with \\x93NUMPY); save with numpy.save");
  constexpr std::size_t version_end = 8;
  if (bytes.size() < version_end) fail(name, "cut off in its header");
  auto const major = static_cast<unsigned char>(bytes[6]);
  if (major < 1 || major > 3) fail(name, fmt::format("format version {}; read here are 1, 2 and 3", major));
  std::size_t const length_bytes = major == 1 ? 2 : 4;
  std::size_t const begin = version_end + length_bytes;
  if (bytes.size() < begin) fail(name, "cut off in its header");
  std::uint32_t length = 0;
  std::memcpy(&length, bytes.data() + version_end, length_bytes);
  if (bytes.size() - begin < length) fail(name, "cut off in its header");

  npy_array array = header_parser{bytes.substr(begin, length), name}.parse();
  std::size_t const width = width_of(array.descr, name);
  std::string_view const data = bytes.substr(begin + length);
  auto const expected = product(array.shape, width);
  if (expected != data.size()) {
    fail(name, fmt::format("{} bytes of numbers where its shape says {}; the file was {}", data.size(),
                           expected ? std::to_string(*expected) : "more than there can be",
                           expected && *expected < data.size() ? "written to after it was saved" : "cut off"));
  }
  if (width == 2) {
    array.values = numbers<std::uint16_t>(data, [](std::uint16_t bits) { return to_float(f16{bits}); });
  } else if (width == 4) {
    array.values = numbers<float>(data, [](float value) { return value; });
  } else {
    array.values = numbers<double>(data, [](double value) { return static_cast<float>(value); });
  }
  return array;
}

npy_array read_npy(std::filesystem::path const& file) { return parse_npy(read_file(file), file.string()); }

}  // namespace gradwire::program::fidelity
