#pragma once

#include <cstddef>
#include <span>

#include <gradwire/dtype.hpp>

namespace gradwire::reductions {

//! out[i] = scale·in[first + i] in f32, for every i of `out`.
void widen(const_elements in, std::size_t first, float scale, std::span<float> out);
//! out[first + i] = in[i], rounded to out.type.
void narrow(std::span<float const> in, elements out, std::size_t first);
//! x *= scale.
void multiply(std::span<float> x, float scale);

}  // namespace gradwire::reductions
