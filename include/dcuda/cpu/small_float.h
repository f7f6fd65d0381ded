// SPDX-License-Identifier: BSD-3-Clause
// Floating-point numbers of 16 bits, for the CPU backend's <cuda_fp16.h> and <cuda_bf16.h>. They are computed in
// double, which holds sums and products of two of them exactly, and rounded once, to nearest even.
#pragma once

#include <bit>
#include <cmath>
#include <cstdint>
#include <type_traits>

#include "device_atomics.h"

namespace dcuda::detail::cpu {

// A format: bits of the significand with the hidden one, and exponents of the smallest and largest normal numbers.
struct half_format {
    static constexpr int significand = 11, least = -14, most = 15;
};
struct bfloat16_format {
    static constexpr int significand = 8, least = -126, most = 127;
};

template <class Format>
class small_float {
    static constexpr int fraction_bits = Format::significand - 1;
    static constexpr unsigned hidden = 1u << fraction_bits;
    static constexpr unsigned infinity = static_cast<unsigned>(Format::most - Format::least + 2) << fraction_bits;
    static constexpr unsigned nan = 0x7fff, sign = 0x8000;

    static std::uint16_t encode(double value) {
        const unsigned signed_zero = std::signbit(value) ? sign : 0;
        const double size = std::fabs(value);
        unsigned bits = nan;
        if (std::isnan(value)) return static_cast<std::uint16_t>(bits);
        if (size == 0) {
            bits = 0;
        } else if (std::isinf(size)) {
            bits = infinity;
        } else {
            int exponent = 0;
            std::frexp(size, &exponent);
            exponent = exponent - 1 < Format::least ? Format::least : exponent - 1; // below, there are fewer digits
            const double units = std::nearbyint(std::ldexp(size, fraction_bits - exponent));
            // The hidden bit, and a carry, add one to the exponent.
            const double all = static_cast<double>(exponent - Format::least) * hidden + units;
            bits = all < infinity ? static_cast<unsigned>(all) : infinity;
        }
        return static_cast<std::uint16_t>(signed_zero | bits);
    }

    static float decode(std::uint16_t bits) {
        const unsigned size = bits & ~sign;
        const int exponent = static_cast<int>(size >> fraction_bits);
        const unsigned fraction = size & (hidden - 1);
        float value = 0;
        if (size > infinity)
            value = std::bit_cast<float>(0x7fffffffu);
        else if (size == infinity)
            value = std::bit_cast<float>(0x7f800000u);
        else if (exponent == 0)
            value = std::ldexp(static_cast<float>(fraction), Format::least - fraction_bits);
        else
            value = std::ldexp(static_cast<float>(hidden + fraction), exponent - 1 + Format::least - fraction_bits);
        return (bits & sign) != 0 ? -value : value;
    }

public:
    std::uint16_t representation; // public, so that shuffles may copy it as bytes

    small_float() = default;
    template <class Number, class = std::enable_if_t<std::is_arithmetic_v<Number>>>
    small_float(Number value) : representation(encode(static_cast<double>(value))) {}
    operator float() const { return decode(representation); }

    static small_float from_bits(unsigned short bits) {
        small_float made;
        made.representation = bits;
        return made;
    }
    unsigned short bits() const { return representation; }

    small_float& operator+=(small_float other) { return *this = *this + other; }
    small_float& operator-=(small_float other) { return *this = *this - other; }
    small_float& operator*=(small_float other) { return *this = *this * other; }
    small_float& operator/=(small_float other) { return *this = *this / other; }
    small_float& operator++() { return *this += small_float(1); }
    small_float& operator--() { return *this -= small_float(1); }

    friend double wide(small_float a) { return static_cast<double>(decode(a.representation)); }
    friend small_float operator+(small_float a) { return a; }
    friend small_float operator-(small_float a) {
        return from_bits(static_cast<unsigned short>(a.representation ^ sign));
    }
    friend small_float operator+(small_float a, small_float b) { return wide(a) + wide(b); }
    friend small_float operator-(small_float a, small_float b) { return wide(a) - wide(b); }
    friend small_float operator*(small_float a, small_float b) { return wide(a) * wide(b); }
    friend small_float operator/(small_float a, small_float b) { return wide(a) / wide(b); }
    friend bool operator==(small_float a, small_float b) { return wide(a) == wide(b); }
    friend bool operator!=(small_float a, small_float b) { return wide(a) != wide(b); }
    friend bool operator<(small_float a, small_float b) { return wide(a) < wide(b); }
    friend bool operator<=(small_float a, small_float b) { return wide(a) <= wide(b); }
    friend bool operator>(small_float a, small_float b) { return wide(a) > wide(b); }
    friend bool operator>=(small_float a, small_float b) { return wide(a) >= wide(b); }

    // CUDA's functions, found by their arguments.
    friend small_float __hadd(small_float a, small_float b) { return a + b; }
    friend small_float __hsub(small_float a, small_float b) { return a - b; }
    friend small_float __hmul(small_float a, small_float b) { return a * b; }
    friend small_float __hdiv(small_float a, small_float b) { return a / b; }
    friend small_float __hfma(small_float a, small_float b, small_float c) {
        return std::fma(wide(a), wide(b), wide(c));
    }
    friend small_float __hneg(small_float a) { return -a; }
    friend small_float __habs(small_float a) {
        return from_bits(static_cast<unsigned short>(a.representation & ~sign));
    }
    friend bool __heq(small_float a, small_float b) { return a == b; }
    friend bool __hne(small_float a, small_float b) { return a != b; }
    friend bool __hlt(small_float a, small_float b) { return a < b; }
    friend bool __hle(small_float a, small_float b) { return a <= b; }
    friend bool __hgt(small_float a, small_float b) { return a > b; }
    friend bool __hge(small_float a, small_float b) { return a >= b; }
    friend bool __hisnan(small_float a) { return (a.representation & ~sign) > infinity; }
    friend int __hisinf(small_float a) {
        return (a.representation & ~sign) != infinity ? 0 : (a.representation & sign) != 0 ? -1 : 1;
    }
    friend small_float __hmin(small_float a, small_float b) { return std::fmin(wide(a), wide(b)); }
    friend small_float __hmax(small_float a, small_float b) { return std::fmax(wide(a), wide(b)); }
    friend small_float hsqrt(small_float a) { return std::sqrt(wide(a)); }
    friend small_float hrsqrt(small_float a) { return 1 / std::sqrt(wide(a)); }
    friend small_float hrcp(small_float a) { return 1 / wide(a); }
    friend small_float hexp(small_float a) { return std::exp(wide(a)); }
    friend small_float hexp2(small_float a) { return std::exp2(wide(a)); }
    friend small_float hlog(small_float a) { return std::log(wide(a)); }
    friend small_float hlog2(small_float a) { return std::log2(wide(a)); }
    friend small_float hsin(small_float a) { return std::sin(wide(a)); }
    friend small_float hcos(small_float a) { return std::cos(wide(a)); }
    friend small_float htanh(small_float a) { return std::tanh(wide(a)); }
    friend small_float hfloor(small_float a) { return std::floor(wide(a)); }
    friend small_float hceil(small_float a) { return std::ceil(wide(a)); }
    friend small_float htrunc(small_float a) { return std::trunc(wide(a)); }
    friend small_float hrint(small_float a) { return std::nearbyint(wide(a)); }
    friend small_float atomicAdd(small_float* address, small_float value) {
        return atomic_update(address, [value](small_float before) { return before + value; });
    }
};

// Two of them, as one word.
template <class Format>
struct alignas(4) small_float_pair {
    using number = small_float<Format>;
    number x, y;

    small_float_pair() = default;
    small_float_pair(number low, number high) : x(low), y(high) {}

    friend small_float_pair operator+(small_float_pair a, small_float_pair b) { return {a.x + b.x, a.y + b.y}; }
    friend small_float_pair operator-(small_float_pair a, small_float_pair b) { return {a.x - b.x, a.y - b.y}; }
    friend small_float_pair operator*(small_float_pair a, small_float_pair b) { return {a.x * b.x, a.y * b.y}; }
    friend small_float_pair operator/(small_float_pair a, small_float_pair b) { return {a.x / b.x, a.y / b.y}; }
    friend small_float_pair operator-(small_float_pair a) { return {-a.x, -a.y}; }
    friend bool operator==(small_float_pair a, small_float_pair b) { return a.x == b.x && a.y == b.y; }
    friend bool operator!=(small_float_pair a, small_float_pair b) { return !(a == b); }
    small_float_pair& operator+=(small_float_pair other) { return *this = *this + other; }
    small_float_pair& operator-=(small_float_pair other) { return *this = *this - other; }
    small_float_pair& operator*=(small_float_pair other) { return *this = *this * other; }
    small_float_pair& operator/=(small_float_pair other) { return *this = *this / other; }

    friend small_float_pair __hadd2(small_float_pair a, small_float_pair b) { return a + b; }
    friend small_float_pair __hsub2(small_float_pair a, small_float_pair b) { return a - b; }
    friend small_float_pair __hmul2(small_float_pair a, small_float_pair b) { return a * b; }
    friend small_float_pair __h2div(small_float_pair a, small_float_pair b) { return a / b; }
    friend small_float_pair __hneg2(small_float_pair a) { return -a; }
    friend small_float_pair __hfma2(small_float_pair a, small_float_pair b, small_float_pair c) {
        return {__hfma(a.x, b.x, c.x), __hfma(a.y, b.y, c.y)};
    }
    friend small_float_pair __hmin2(small_float_pair a, small_float_pair b) {
        return {__hmin(a.x, b.x), __hmin(a.y, b.y)};
    }
    friend small_float_pair __hmax2(small_float_pair a, small_float_pair b) {
        return {__hmax(a.x, b.x), __hmax(a.y, b.y)};
    }
    friend float __low2float(small_float_pair a) { return a.x; }
    friend float __high2float(small_float_pair a) { return a.y; }
    // Each half by itself, as in CUDA.
    friend small_float_pair atomicAdd(small_float_pair* address, small_float_pair value) {
        return {atomicAdd(&address->x, value.x), atomicAdd(&address->y, value.y)};
    }
};

} // namespace dcuda::detail::cpu
