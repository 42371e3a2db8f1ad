#include <array>

#include "tests/compressors/device.hpp"

namespace gradwire::test {

std::span<device* const> devices() {
  static std::array<device*, 1> const all{&cpu()};
  return all;
}

}  // namespace gradwire::test
