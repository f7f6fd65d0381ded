// SPDX-License-Identifier: BSD-3-Clause
// Stand-in for CUDA's vector_types.h and vector_functions.h: dim3 and the built-in vector types, with CUDA's alignment.
#pragma once

// One scalar type: name1 to name4 and their make_ functions.
#define DCUDA_VECTOR_TYPES(Scalar, name, align2, align4)                                                               \
    struct name##1 {                                                                                                   \
        Scalar x;                                                                                                      \
    };                                                                                                                 \
    struct alignas(align2) name##2 {                                                                                   \
        Scalar x, y;                                                                                                   \
    };                                                                                                                 \
    struct name##3 {                                                                                                   \
        Scalar x, y, z;                                                                                                \
    };                                                                                                                 \
    struct alignas(align4) name##4 {                                                                                   \
        Scalar x, y, z, w;                                                                                             \
    };                                                                                                                 \
    constexpr name##1 make_##name##1(Scalar x) { return {x}; }                                                         \
    constexpr name##2 make_##name##2(Scalar x, Scalar y) { return {x, y}; }                                            \
    constexpr name##3 make_##name##3(Scalar x, Scalar y, Scalar z) { return {x, y, z}; }                               \
    constexpr name##4 make_##name##4(Scalar x, Scalar y, Scalar z, Scalar w) { return {x, y, z, w}; }

DCUDA_VECTOR_TYPES(signed char, char, 2, 4)
DCUDA_VECTOR_TYPES(unsigned char, uchar, 2, 4)
DCUDA_VECTOR_TYPES(short, short, 4, 8)
DCUDA_VECTOR_TYPES(unsigned short, ushort, 4, 8)
DCUDA_VECTOR_TYPES(int, int, 8, 16)
DCUDA_VECTOR_TYPES(unsigned int, uint, 8, 16)
DCUDA_VECTOR_TYPES(long, long, 16, 16)
DCUDA_VECTOR_TYPES(unsigned long, ulong, 16, 16)
DCUDA_VECTOR_TYPES(long long, longlong, 16, 16)
DCUDA_VECTOR_TYPES(unsigned long long, ulonglong, 16, 16)
DCUDA_VECTOR_TYPES(float, float, 8, 16)
DCUDA_VECTOR_TYPES(double, double, 16, 16)

#undef DCUDA_VECTOR_TYPES

struct dim3 {
    unsigned int x = 1, y = 1, z = 1;

    constexpr dim3(unsigned int vx = 1, unsigned int vy = 1, unsigned int vz = 1) : x(vx), y(vy), z(vz) {}
    constexpr dim3(uint3 v) : x(v.x), y(v.y), z(v.z) {}
    constexpr operator uint3() const { return {x, y, z}; }
};
