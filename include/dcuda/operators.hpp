// SPDX-License-Identifier: BSD-3-Clause
/// @file
/// What reductions combine values with. Any commutative function object serves as well that device code may call with
/// two values of the type that is reduced.
#pragma once

#include "dcuda/config.hpp"

#include <type_traits>

namespace dcuda {

namespace detail {

// Of integers of 8 and 16 bits, too, which C++ would promote to int, whose overflow is undefined.
template <class T, bool = std::is_integral_v<T>>
struct wrapping {
    using type = T;
};
template <class T>
struct wrapping<T, true> {
    using type = std::make_unsigned_t<decltype(T{} + T{})>;
};
// What two values of type T are added or multiplied as: integers as unsigned ones, which wrap around.
template <class T>
using wrapping_t = typename wrapping<T>::type;

} // namespace detail

/// a + b. Values of 16-bit floating point types are added as float, and rounded once. Integers wrap around.
struct sum {
    /// Any thread.
    template <class T>
    DCUDA_HOST_DEVICE constexpr T operator()(T a, T b) const {
        using wide = detail::wrapping_t<T>;
        return static_cast<T>(static_cast<wide>(a) + static_cast<wide>(b));
    }
};
/// a * b. Integers wrap around.
struct product {
    /// Any thread.
    template <class T>
    DCUDA_HOST_DEVICE constexpr T operator()(T a, T b) const {
        using wide = detail::wrapping_t<T>;
        return static_cast<T>(static_cast<wide>(a) * static_cast<wide>(b));
    }
};
/// The smaller one. Of equal ones, and beside something that is no number, the first.
struct minimum {
    /// Any thread.
    template <class T>
    DCUDA_HOST_DEVICE constexpr T operator()(T a, T b) const {
        return b < a ? b : a;
    }
};
/// The larger one. Of equal ones, and beside something that is no number, the first.
struct maximum {
    /// Any thread.
    template <class T>
    DCUDA_HOST_DEVICE constexpr T operator()(T a, T b) const {
        return a < b ? b : a;
    }
};
/// a & b, of integers.
struct bit_and {
    /// Any thread.
    template <class T>
    DCUDA_HOST_DEVICE constexpr T operator()(T a, T b) const {
        return static_cast<T>(a & b);
    }
};
/// a | b, of integers.
struct bit_or {
    /// Any thread.
    template <class T>
    DCUDA_HOST_DEVICE constexpr T operator()(T a, T b) const {
        return static_cast<T>(a | b);
    }
};
/// a ^ b, of integers.
struct bit_xor {
    /// Any thread.
    template <class T>
    DCUDA_HOST_DEVICE constexpr T operator()(T a, T b) const {
        return static_cast<T>(a ^ b);
    }
};

/// Makes a reduction combine the values by one tree over all members in the order of their numbers, whatever devices
/// they are on: the result has the same bits for any number of devices. It serves allreduce, start_allreduce, reduce
/// and reduce_scatter of at most 64 members; more end the run (error_code::device_fault).
template <class Operator>
struct by_rank {
    Operator combine; ///< what combines two values
    /// Any thread.
    DCUDA_HOST_DEVICE constexpr explicit by_rank(Operator op) : combine(op) {}
};

} // namespace dcuda
