#pragma once
//! Where the conformance suites run a codec: the same checks for every device. An executable links one file that lists
//! its devices.

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <string_view>

#include <gradwire/exec.hpp>

#include "tests/support/arrays.hpp"

namespace gradwire::test {

//! A copy whose last byte ends its allocation, so that AddressSanitizer sees a read past the end.
class input {
 public:
  input(std::span<std::byte const> from, std::size_t shift)
      : storage_{std::make_unique_for_overwrite<std::byte[]>(from.size() + shift)},
        data_{storage_.get() + shift},
        bytes_{from.size()} {
    if (!from.empty()) std::memcpy(data_, from.data(), from.size());
  }
  [[nodiscard]] std::byte const* data() const { return data_; }
  [[nodiscard]] std::span<std::byte const> bytes() const { return {data_, bytes_}; }

 private:
  std::unique_ptr<std::byte[]> storage_;
  std::byte* data_;
  std::size_t bytes_;
};

class device {
 public:
  virtual ~device() = default;
  [[nodiscard]] virtual std::string_view name() const = 0;
  //! Called before each test.
  virtual void prepare() {}
  //! For codec functions.
  [[nodiscard]] virtual exec on() = 0;
  //! Where the device finds these bytes, which end an allocation there and begin at the same distance from a multiple
  //! of 64.
  [[nodiscard]] virtual std::byte const* in(std::span<std::byte const> host) = 0;
  //! The same for bytes that finish() brings back.
  [[nodiscard]] virtual std::byte* inout(std::span<std::byte> host) = 0;
  //! Waits for the work, brings back what it wrote and forgets all buffers; throws what the work reports.
  virtual void finish() = 0;
};

[[nodiscard]] device& cpu();
//! Those of this executable.
[[nodiscard]] std::span<device* const> devices();
//! The one that a suite runs on now.
inline device* running_on = &cpu();

[[nodiscard]] inline std::byte* inout(device& where, guarded& buffer) {
  std::span<std::byte> const all = buffer.with_guards();
  return where.inout(all) + (buffer.data() - all.data());
}

}  // namespace gradwire::test
