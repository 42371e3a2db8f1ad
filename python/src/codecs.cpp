#include <cstring>
#include <string>
#include <vector>

#include <nanobind/ndarray.h>
#include <nanobind/stl/string.h>

#include <gradwire/codec.hpp>
#include <gradwire/error.hpp>
#include <gradwire/frame.hpp>
#include <gradwire/spec.hpp>

#include "bindings.hpp"

namespace nb = nanobind;

namespace gradwire::python {
namespace {

using any_array = nb::ndarray<nb::ro, nb::c_contig, nb::device::cpu>;

dtype dtype_of(any_array const& array) {
  auto const type = array.dtype();
  if (type == nb::dtype<float>()) return dtype::f32;
  if (type.lanes == 1 && type.bits == 16) {
    if (type.code == static_cast<std::uint8_t>(nb::dlpack::dtype_code::Float)) return dtype::f16;
    if (type.code == static_cast<std::uint8_t>(nb::dlpack::dtype_code::Bfloat)) return dtype::bf16;
  }
  throw error{errc::invalid_argument, "encode: the array must hold 32-bit or 16-bit floats or bfloat16 in CPU memory"};
}

nb::bytes encode(any_array const& array, std::string const& text, std::uint64_t seed, std::uint64_t step,
                 std::uint32_t tensor_id) {
  const_elements const in{array.data(), dtype_of(array)};
  std::size_t const count = array.size();
  codec const method = codec::parse(text);
  std::vector<std::byte> frame;
  {
    nb::gil_scoped_release const released;
    frame = encode_frame(method, in, count, {seed, step}, tensor_id);
  }
  return nb::bytes{frame.data(), frame.size()};
}

// bfloat16 comes as float32, which holds it exactly: NumPy has no bfloat16.
nb::object decode(nb::bytes const& bytes) {
  std::span const frame{static_cast<std::byte const*>(bytes.data()), bytes.size()};
  frame_info const info = read_frame(frame);
  bool const half = info.type == dtype::f16;
  auto values = std::make_unique<std::byte[]>(info.count * (half ? 2 : 4));
  {
    nb::gil_scoped_release const released;
    decode_frame(frame, {values.get(), half ? dtype::f16 : dtype::f32}, info.count);
  }
  std::byte* const data = values.release();
  nb::capsule const owner{data, [](void* memory) noexcept { delete[] static_cast<std::byte*>(memory); }};
  nb::dlpack::dtype const type{static_cast<std::uint8_t>(nb::dlpack::dtype_code::Float),
                               static_cast<std::uint8_t>(half ? 16 : 32), 1};
  std::size_t const shape[] = {info.count};
  return nb::cast(nb::ndarray<nb::numpy>{data, 1, shape, owner, nullptr, type});
}

nb::object preset_of(codec_key const& key) {
  if (key.preset != key.preset) return nb::none();
  if (key.kind == key_kind::choice) {
    std::string_view const choice = key.choices[static_cast<std::size_t>(key.preset)];
    return nb::str{choice.data(), choice.size()};
  }
  return key.kind == key_kind::integer ? nb::object{nb::int_(static_cast<long long>(key.preset))}
                                       : nb::object{nb::float_(key.preset)};
}

nb::list list_codecs() {
  nb::list result;
  for (codec_entry const* const entry : codecs()) {
    nb::dict keys;
    for (codec_key const& key : entry->keys) {
      nb::dict about;
      about["default"] = preset_of(key);
      about["help"] = std::string{key.help};
      keys[nb::str{key.name.data(), key.name.size()}] = about;
    }
    nb::dict one;
    one["name"] = std::string{entry->name};
    one["version"] = static_cast<int>(entry->version);
    one["summary"] = std::string{entry->summary};
    one["keys"] = keys;
    result.append(one);
  }
  return result;
}

}  // namespace

void bind_codecs(nb::module_& module) {
  using namespace nb::literals;
  module.def("encode", &encode, "array"_a, "spec"_a, nb::kw_only(), "seed"_a = 0, "step"_a = 0, "tensor_id"_a = 0);
  module.def("decode", &decode, "frame"_a);
  module.def("codecs", &list_codecs);
  module.def(
      "check_spec", [](std::string const& text) { return spec::parse(text).text(); }, "spec"_a);
}

}  // namespace gradwire::python
