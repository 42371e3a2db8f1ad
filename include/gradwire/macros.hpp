#pragma once
//! GW_HD marks a function that host and device code share (format.hpp of a codec).
#if defined(__CUDACC__)
#define GW_HD __host__ __device__
#else
#define GW_HD
#endif
