#pragma once
//! Shared memory of a thread block. Kernels use these and not __shared__, so that a simulator can give every block
//! storage of its own, guarded at both ends.

#include <cuda_runtime.h>

#ifndef GW_SHARED_ARRAY
//! `count` objects of type T without constructors, not initialised.
#define GW_SHARED_ARRAY(T, name, count) __shared__ T name[count]
#endif
