// gradwire._core: what the Python package needs of the library. No logic here: arguments in, results out.
#include "bindings.hpp"

#include <cmath>
#include <string>

#include <nanobind/stl/string.h>

#include <gradwire/error.hpp>
#include <gradwire/gloo.hpp>
#include <gradwire/version.hpp>

namespace nb = nanobind;

namespace gradwire::python {
namespace {

// As gradwire.Error, whose `code` is the name of the errc.
void raise(error const& failure) {
  nb::object const type = nb::module_::import_("gradwire._error").attr("Error");
  nb::object const value = type(failure.what(), std::string{to_string(failure.code())});
  PyErr_SetObject(type.ptr(), value.ptr());
}

}  // namespace

dtype parse_dtype(std::string_view text) {
  for (dtype const type : {dtype::f32, dtype::f16, dtype::bf16}) {
    if (to_string(type) == text) return type;
  }
  throw error{errc::invalid_argument, "dtype '" + std::string{text} + "' is not known: use f32, f16 or bf16"};
}

std::chrono::milliseconds to_timeout(double seconds) {
  expects(seconds >= 0.001 && seconds <= 1e6, "timeout: give seconds, from 0.001 to 1,000,000");
  return std::chrono::milliseconds{std::llround(seconds * 1000)};
}

}  // namespace gradwire::python

NB_MODULE(_core, module) {
  nb::register_exception_translator([](std::exception_ptr const& failure, void*) {
    try {
      std::rethrow_exception(failure);
    } catch (gradwire::error const& why) {
      gradwire::python::raise(why);
    }
  });
  module.attr("__version__") = std::string{gradwire::version()};
  module.attr("has_gloo") = gradwire::has_gloo();
  gradwire::python::bind_codecs(module);
  gradwire::python::bind_averager(module);
  gradwire::python::bind_collectives(module);
}
