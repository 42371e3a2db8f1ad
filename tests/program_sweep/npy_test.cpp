#include "program/fidelity/npy.hpp"

#include <cstdint>
#include <cstring>
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include "program/common/context.hpp"

namespace gradwire::program::fidelity {
namespace {

template <class T>
std::string raw(std::vector<T> const& values) {
  std::string bytes(values.size() * sizeof(T), '\0');
  if (!values.empty()) std::memcpy(bytes.data(), values.data(), bytes.size());
  return bytes;
}

// The layout of NumPy's lib/format.py, written by hand: magic, version, header length, header, numbers.
std::string npy(int major, std::string header, std::string const& data) {
  std::string bytes{"\x93NUMPY", 6};
  bytes += static_cast<char>(major);
  bytes += '\0';
  std::size_t const length_bytes = major == 1 ? 2 : 4;
  while ((bytes.size() + length_bytes + header.size() + 1) % 64 != 0) header += ' ';
  header += '\n';
  for (std::size_t i = 0; i < length_bytes; ++i) bytes += static_cast<char>((header.size() >> (8 * i)) & 0xffU);
  return bytes + header + data;
}

std::string const f4_header = "{'descr': '<f4', 'fortran_order': False, 'shape': (3,), }";

std::string failure_of(std::string const& bytes) {
  try {
    static_cast<void>(parse_npy(bytes, "x.npy"));
  } catch (program_error const& failure) {
    return failure.what();
  }
  return "no failure";
}

TEST(Npy, ReadsEveryVersionOfTheFormat) {
  for (int const version : {1, 2, 3}) {
    auto const array = parse_npy(npy(version, f4_header, raw<float>({1, -2, 0.5F})), "x.npy");
    EXPECT_EQ(array.values, (std::vector<float>{1, -2, 0.5F})) << version;
    EXPECT_EQ(array.shape, (std::vector<std::size_t>{3}));
  }
}

TEST(Npy, ReadsDoublesAndHalves) {
  EXPECT_EQ(parse_npy(npy(1, "{'descr': '<f8', 'fortran_order': False, 'shape': (2,), }", raw<double>({1.5, -3})), "x")
                .values,
            (std::vector<float>{1.5F, -3}));
  // 0x3c00 is 1, 0xc000 is −2 in binary16.
  EXPECT_EQ(parse_npy(npy(1, "{'descr': '<f2', 'fortran_order': False, 'shape': (2,), }",
                          raw<std::uint16_t>({0x3c00, 0xc000})),
                      "x")
                .values,
            (std::vector<float>{1, -2}));
}

TEST(Npy, FlattensBothOrdersAsTheyLie) {
  auto const data = raw<float>({1, 2, 3, 4, 5, 6});
  auto const c = parse_npy(npy(1, "{'descr': '<f4', 'fortran_order': False, 'shape': (2, 3), }", data), "x");
  auto const fortran = parse_npy(npy(1, "{'shape': (2, 3), 'fortran_order': True, 'descr': \"<f4\"}", data), "x");
  EXPECT_EQ(c.values, fortran.values);
  EXPECT_EQ(fortran.shape, (std::vector<std::size_t>{2, 3}));
  EXPECT_TRUE(fortran.fortran_order);
  EXPECT_FALSE(c.fortran_order);
}

TEST(Npy, ReadsScalarsAndEmptyArrays) {
  EXPECT_EQ(parse_npy(npy(1, "{'descr': '<f4', 'fortran_order': False, 'shape': (), }", raw<float>({7})), "x").values,
            std::vector<float>{7});
  EXPECT_TRUE(parse_npy(npy(1, "{'descr': '<f4', 'fortran_order': False, 'shape': (0, 5), }", ""), "x").values.empty());
}

TEST(Npy, SaysWhatIsWrongAndHowToMendIt) {
  auto const data = raw<float>({1, 2, 3});
  auto const with = [&](std::string const& descr) {
    return failure_of(npy(1, "{'descr': " + descr + ", 'fortran_order': False, 'shape': (3,), }", data));
  };
  EXPECT_NE(failure_of("PK\x03\x04 zip").find("not a .npy file"), std::string::npos);
  EXPECT_NE(failure_of("").find("not a .npy file"), std::string::npos);
  EXPECT_NE(failure_of(npy(4, f4_header, data)).find("version 4"), std::string::npos);
  EXPECT_NE(with("'>f4'").find("big-endian"), std::string::npos);
  EXPECT_NE(with("'|O'").find("objects"), std::string::npos);
  EXPECT_NE(with("'<i8'").find("astype('<f4')"), std::string::npos);
  EXPECT_NE(with("[('a', '<f4')]").find("structured"), std::string::npos);
  EXPECT_NE(failure_of(npy(1, f4_header, data.substr(1))).find("11 bytes of numbers where its shape says 12"),
            std::string::npos);
  EXPECT_NE(failure_of(npy(1, f4_header, data + "x")).find("13 bytes"), std::string::npos);
  EXPECT_NE(failure_of(npy(1, "{'descr': '<f4', 'shape': (3,), }", data)).find("lacks"), std::string::npos);
  EXPECT_NE(failure_of(npy(1,
                           "{'descr': '<f4', 'fortran_order': False, 'shape': "
                           "(4611686018427387904, 4611686018427387904), }",
                           data))
                .find("more than there can be"),
            std::string::npos);
}

TEST(Npy, SurvivesEveryTruncation) {
  std::string const whole = npy(2, f4_header, raw<float>({1, 2, 3}));
  for (std::size_t size = 0; size < whole.size(); ++size) {
    EXPECT_NE(failure_of(whole.substr(0, size)), "no failure") << size;
  }
}

TEST(Npy, SurvivesEveryChangedByteOfTheHeader) {
  std::string const whole = npy(1, f4_header, raw<float>({1, 2, 3}));
  for (std::size_t at = 0; at < whole.size() - 12; ++at) {
    for (int const bit : {0, 3, 6}) {
      std::string changed = whole;
      changed[at] = static_cast<char>(changed[at] ^ (1 << bit));
      static_cast<void>(failure_of(changed));  // an error or an array, never more than the bytes that are there
    }
  }
}

}  // namespace
}  // namespace gradwire::program::fidelity
