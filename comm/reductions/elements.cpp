#include "comm/reductions/elements.hpp"

namespace gradwire::reductions {

void widen(const_elements in, std::size_t first, float scale, std::span<float> out) {
  switch (in.type) {
    case dtype::f32: {
      auto const* const x = static_cast<float const*>(in.data) + first;
      for (std::size_t i = 0; i < out.size(); ++i) out[i] = scale * x[i];
      return;
    }
    case dtype::f16: {
      auto const* const x = static_cast<f16 const*>(in.data) + first;
      for (std::size_t i = 0; i < out.size(); ++i) out[i] = scale * to_float(x[i]);
      return;
    }
    case dtype::bf16: {
      auto const* const x = static_cast<bf16 const*>(in.data) + first;
      for (std::size_t i = 0; i < out.size(); ++i) out[i] = scale * to_float(x[i]);
      return;
    }
  }
}

void narrow(std::span<float const> in, elements out, std::size_t first) {
  switch (out.type) {
    case dtype::f32: {
      auto* const y = static_cast<float*>(out.data) + first;
      for (std::size_t i = 0; i < in.size(); ++i) y[i] = in[i];
      return;
    }
    case dtype::f16: {
      auto* const y = static_cast<f16*>(out.data) + first;
      for (std::size_t i = 0; i < in.size(); ++i) y[i] = to_f16(in[i]);
      return;
    }
    case dtype::bf16: {
      auto* const y = static_cast<bf16*>(out.data) + first;
      for (std::size_t i = 0; i < in.size(); ++i) y[i] = to_bf16(in[i]);
      return;
    }
  }
}

void multiply(std::span<float> x, float scale) {
  for (float& each : x) each *= scale;
}

}  // namespace gradwire::reductions
