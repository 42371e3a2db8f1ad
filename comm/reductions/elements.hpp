#pragma once

#include <cstddef>
#include <span>

#include <gradwire/dtype.hpp>
#include <gradwire/exec.hpp>

namespace gradwire::reductions {

//! out[i] = in[first + i] in f32, for every i of `out`; behind what is enqueued on on.stream.
void widen(exec const& on, const_elements in, std::size_t first, std::span<float> out);
//! out[first + i] = in[i], rounded to out.type; behind what is enqueued on on.stream.
void narrow(exec const& on, std::span<float const> in, elements out, std::size_t first);
//! x *= scale, at once.
void multiply(std::span<float> x, float scale);

}  // namespace gradwire::reductions
