#pragma once

#include <cstddef>
#include <filesystem>
#include <string>
#include <string_view>
#include <vector>

namespace gradwire::program::fidelity {

//! The numbers of a .npy file, flattened in the order in which they lie in the file: of an array of either C or Fortran
//! order every element once.
struct npy_array {
  std::vector<std::size_t> shape;
  bool fortran_order = false;
  std::string descr;  //!< as the header has it: "<f4", …
  std::vector<float> values;
};

//! Parses the bytes of a .npy file (format versions 1, 2 and 3; NumPy, lib/format.py) of little-endian f2, f4 or f8;
//! f8 is rounded to f32. `name` is put in front of errors. Throws program_error: not a .npy file, a header that is cut
//! or cannot be read, another type (with the NumPy call that converts it), or more or fewer bytes than the shape says.
[[nodiscard]] npy_array parse_npy(std::string_view bytes, std::string_view name);

//! Throws program_error; also when the file cannot be read.
[[nodiscard]] npy_array read_npy(std::filesystem::path const& file);

}  // namespace gradwire::program::fidelity
