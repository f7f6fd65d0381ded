// SPDX-License-Identifier: BSD-3-Clause
// The CPU backend's stand-in for <cuda_fp16.h>: half and half2, their conversions, arithmetic and mathematics.
#pragma once

#include "small_float.h"
#include "vector_types.h"

using __half = dcuda::detail::cpu::small_float<dcuda::detail::cpu::half_format>;
using __half2 = dcuda::detail::cpu::small_float_pair<dcuda::detail::cpu::half_format>;
using half = __half;
using half2 = __half2;

inline __half __float2half(float x) { return x; }
inline __half __float2half_rn(float x) { return x; }
inline __half __double2half(double x) { return x; }
inline __half __int2half_rn(int x) { return x; }
inline __half __uint2half_rn(unsigned x) { return x; }
inline float __half2float(__half x) { return x; }
inline int __half2int_rn(__half x) { return static_cast<int>(std::nearbyint(static_cast<float>(x))); }
inline int __half2int_rz(__half x) { return static_cast<int>(static_cast<float>(x)); }
inline unsigned short __half_as_ushort(__half x) { return x.bits(); }
inline short __half_as_short(__half x) { return static_cast<short>(x.bits()); }
inline __half __ushort_as_half(unsigned short bits) { return __half::from_bits(bits); }
inline __half __short_as_half(short bits) { return __half::from_bits(static_cast<unsigned short>(bits)); }

inline __half2 make_half2(__half x, __half y) { return {x, y}; }
inline __half2 __halves2half2(__half x, __half y) { return {x, y}; }
inline __half2 __half2half2(__half x) { return {x, x}; }
inline __half2 __float2half2_rn(float x) { return {x, x}; }
inline __half2 __floats2half2_rn(float x, float y) { return {x, y}; }
inline __half2 __float22half2_rn(float2 x) { return {x.x, x.y}; }
inline float2 __half22float2(__half2 x) { return {x.x, x.y}; }
inline __half __low2half(__half2 x) { return x.x; }
inline __half __high2half(__half2 x) { return x.y; }
inline __half2 __lowhigh2highlow(__half2 x) { return {x.y, x.x}; }
