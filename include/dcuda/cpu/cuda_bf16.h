// SPDX-License-Identifier: BSD-3-Clause
// The CPU backend's stand-in for <cuda_bf16.h>: __nv_bfloat16 and __nv_bfloat162, their conversions, arithmetic and
// mathematics.
#pragma once

#include "small_float.h"
#include "vector_types.h"

using __nv_bfloat16 = dcuda::detail::cpu::small_float<dcuda::detail::cpu::bfloat16_format>;
using __nv_bfloat162 = dcuda::detail::cpu::small_float_pair<dcuda::detail::cpu::bfloat16_format>;
using nv_bfloat16 = __nv_bfloat16;
using nv_bfloat162 = __nv_bfloat162;

inline __nv_bfloat16 __float2bfloat16(float x) { return x; }
inline __nv_bfloat16 __float2bfloat16_rn(float x) { return x; }
inline __nv_bfloat16 __double2bfloat16(double x) { return x; }
inline __nv_bfloat16 __int2bfloat16_rn(int x) { return x; }
inline __nv_bfloat16 __uint2bfloat16_rn(unsigned x) { return x; }
inline float __bfloat162float(__nv_bfloat16 x) { return x; }
inline int __bfloat162int_rn(__nv_bfloat16 x) { return static_cast<int>(std::nearbyint(static_cast<float>(x))); }
inline int __bfloat162int_rz(__nv_bfloat16 x) { return static_cast<int>(static_cast<float>(x)); }
inline unsigned short __bfloat16_as_ushort(__nv_bfloat16 x) { return x.bits(); }
inline short __bfloat16_as_short(__nv_bfloat16 x) { return static_cast<short>(x.bits()); }
inline __nv_bfloat16 __ushort_as_bfloat16(unsigned short bits) { return __nv_bfloat16::from_bits(bits); }
inline __nv_bfloat16 __short_as_bfloat16(short bits) {
    return __nv_bfloat16::from_bits(static_cast<unsigned short>(bits));
}

inline __nv_bfloat162 make_bfloat162(__nv_bfloat16 x, __nv_bfloat16 y) { return {x, y}; }
inline __nv_bfloat162 __halves2bfloat162(__nv_bfloat16 x, __nv_bfloat16 y) { return {x, y}; }
inline __nv_bfloat162 __bfloat162bfloat162(__nv_bfloat16 x) { return {x, x}; }
inline __nv_bfloat162 __float2bfloat162_rn(float x) { return {x, x}; }
inline __nv_bfloat162 __floats2bfloat162_rn(float x, float y) { return {x, y}; }
inline __nv_bfloat162 __float22bfloat162_rn(float2 x) { return {x.x, x.y}; }
inline float2 __bfloat1622float2(__nv_bfloat162 x) { return {x.x, x.y}; }
inline __nv_bfloat16 __low2bfloat16(__nv_bfloat162 x) { return x.x; }
inline __nv_bfloat16 __high2bfloat16(__nv_bfloat162 x) { return x.y; }
