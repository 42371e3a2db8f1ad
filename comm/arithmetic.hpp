#pragma once

#include <cstddef>

#include <gradwire/communicator.hpp>

namespace gradwire {

//! out[i] = a[i] op b[i] for `count` elements. f16 and bf16 are widened to f32, combined and rounded to nearest even.
//! max and min give NaN when either side is NaN. `out` may be `a` or `b`.
void combine(void* out, void const* a, void const* b, std::size_t count, dtype type, reduce_op op);

}  // namespace gradwire
