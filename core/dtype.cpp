#include <gradwire/dtype.hpp>

#include <gradwire/error.hpp>

namespace gradwire {

std::string_view to_string(dtype type) noexcept {
  switch (type) {
    case dtype::f32: return "f32";
    case dtype::f16: return "f16";
    case dtype::bf16: return "bf16";
  }
  return "unknown";
}

dtype parse_dtype(std::string_view text) {
  for (dtype const type : {dtype::f32, dtype::f16, dtype::bf16}) {
    if (text == to_string(type)) return type;
  }
  throw error{errc::invalid_argument, "unknown dtype '" + std::string{text} + "': use f32, f16 or bf16"};
}

}  // namespace gradwire
