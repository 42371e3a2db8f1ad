#pragma once

#include <string_view>

#include <nanobind/nanobind.h>

#include <gradwire/dtype.hpp>

namespace gradwire::python {

//! "f32", "f16" or "bf16". Throws errc::invalid_argument.
[[nodiscard]] dtype parse_dtype(std::string_view text);

void bind_codecs(nanobind::module_& module);
void bind_averager(nanobind::module_& module);

}  // namespace gradwire::python
