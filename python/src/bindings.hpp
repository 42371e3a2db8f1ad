#pragma once

#include <chrono>
#include <string_view>
#include <utility>

#include <nanobind/nanobind.h>

#include <gradwire/dtype.hpp>

namespace gradwire::python {

//! "f32", "f16" or "bf16". Throws errc::invalid_argument.
[[nodiscard]] dtype parse_dtype(std::string_view text);

//! From Python's seconds. Throws errc::invalid_argument.
[[nodiscard]] std::chrono::milliseconds to_timeout(double seconds);

//! A Python object that a thread without the interpreter's lock carries around.
class carried {
 public:
  explicit carried(nanobind::object object) : object_{std::move(object)} {}
  ~carried() {
    nanobind::gil_scoped_acquire const acquired;
    object_.reset();
  }
  carried(carried const&) = delete;
  carried& operator=(carried const&) = delete;
  [[nodiscard]] nanobind::object const& get() const noexcept { return object_; }

 private:
  nanobind::object object_;
};

void bind_codecs(nanobind::module_& module);
void bind_averager(nanobind::module_& module);
void bind_collectives(nanobind::module_& module);

}  // namespace gradwire::python
