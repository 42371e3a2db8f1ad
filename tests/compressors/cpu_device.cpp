#include "tests/compressors/device.hpp"

namespace gradwire::test {
namespace {

class cpu_device final : public device {
 public:
  [[nodiscard]] std::string_view name() const override { return "cpu"; }
  [[nodiscard]] exec on() override { return {}; }
  [[nodiscard]] std::byte const* in(std::span<std::byte const> host) override { return host.data(); }
  [[nodiscard]] std::byte* inout(std::span<std::byte> host) override { return host.data(); }
  void finish() override {}
};

}  // namespace

device& cpu() {
  static cpu_device one;
  return one;
}

}  // namespace gradwire::test
