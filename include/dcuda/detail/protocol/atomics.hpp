// SPDX-License-Identifier: BSD-3-Clause
// Atomic operations on elements of windows: what there is, and how one is made in memory.
//
// Ranks of the target's device, ranks of other devices with peer access, and the delivery kernel for all others make
// them in one and the same memory. So each has system scope, whoever makes it, or two of them would not be atomic to
// each other.
#pragma once

#include "dcuda/detail/protocol/memory.hpp"

#include <type_traits>

namespace dcuda::detail {

enum class atomic_action : std::uint32_t {
    add,
    bit_and,
    bit_or,
    bit_xor,
    minimum,
    maximum,
    multiply, // of accumulates only
    exchange,
    compare_swap, // stores the operand if the element has the expected bits
    count,
};

enum class element_type : std::uint32_t { int32, uint32, int64, uint64, float32, float64, count };

template <class T>
inline constexpr bool is_atomic_number = (std::is_integral_v<T> && !std::is_same_v<T, bool> &&
                                          (sizeof(T) == 4 || sizeof(T) == 8)) ||
                                         std::is_same_v<T, float> || std::is_same_v<T, double>;

template <class T>
DCUDA_HOST_DEVICE constexpr element_type type_of() {
    static_assert(is_atomic_number<T>, "elements of atomic operations are integers of 32 or 64 bits, float or double");
    if (std::is_same_v<T, float>) return element_type::float32;
    if (std::is_same_v<T, double>) return element_type::float64;
    if (sizeof(T) == 4) return std::is_signed_v<T> ? element_type::int32 : element_type::uint32;
    return std::is_signed_v<T> ? element_type::int64 : element_type::uint64;
}

DCUDA_HOST_DEVICE constexpr std::uint32_t size_of_element(element_type type) {
    return type == element_type::int32 || type == element_type::uint32 || type == element_type::float32 ? 4 : 8;
}

DCUDA_HOST_DEVICE constexpr bool has_action(element_type type, atomic_action action) {
    const bool is_real = type == element_type::float32 || type == element_type::float64;
    const bool is_of_bits =
        action == atomic_action::bit_and || action == atomic_action::bit_or || action == atomic_action::bit_xor;
    return type < element_type::count && action < atomic_action::count && !(is_real && is_of_bits);
}

// An atomic operation; the values in their bits.
struct atomic_update {
    atomic_action action;
    element_type type;
    std::uint64_t operand;
    std::uint64_t expected; // of compare_swap
};

// Action and type in one word, for commands and messages.
DCUDA_HOST_DEVICE constexpr std::uint32_t update_code(const atomic_update& update) {
    return static_cast<std::uint32_t>(update.action) | static_cast<std::uint32_t>(update.type) << 8;
}
DCUDA_HOST_DEVICE constexpr atomic_update update_of(std::uint32_t code, std::uint64_t operand, std::uint64_t expected) {
    return {static_cast<atomic_action>(code & 0xff), static_cast<element_type>(code >> 8), operand, expected};
}

// A value in the lower bits of a word, and back.
template <class T>
DCUDA_HOST_DEVICE std::uint64_t bits_of(T value) {
    std::uint64_t bits = 0;
    __builtin_memcpy(&bits, &value, sizeof value);
    return bits;
}
template <class T>
DCUDA_HOST_DEVICE T value_of(std::uint64_t bits) {
    T value;
    __builtin_memcpy(&value, &bits, sizeof value);
    return value;
}

// Of an element that lies there, aligned.
DCUDA_HOST_DEVICE std::uint64_t bits_at(const std::byte* element, element_type type) {
    return size_of_element(type) == 4 ? *reinterpret_cast<const std::uint32_t*>(element)
                                      : *reinterpret_cast<const std::uint64_t*>(element);
}

// What the element holds afterwards, if an action is no compare_swap that fails.
template <class T>
DCUDA_HOST_DEVICE T combine(atomic_action action, T before, T operand) {
    if constexpr (std::is_integral_v<T>) {
        using word = std::make_unsigned_t<T>; // in which additions wrap around
        if (action == atomic_action::add) return static_cast<T>(static_cast<word>(before) + static_cast<word>(operand));
        if (action == atomic_action::multiply)
            return static_cast<T>(static_cast<word>(before) * static_cast<word>(operand));
        if (action == atomic_action::bit_and) return before & operand;
        if (action == atomic_action::bit_or) return before | operand;
        if (action == atomic_action::bit_xor) return before ^ operand;
    } else {
        if (action == atomic_action::add) return before + operand;
        if (action == atomic_action::multiply) return before * operand;
    }
    if (action == atomic_action::minimum) return operand < before ? operand : before;
    if (action == atomic_action::maximum) return before < operand ? operand : before;
    return operand;
}

#if defined(__CUDA_ARCH__)

// Relaxed.
template <class T>
__device__ std::uint64_t update_as(std::byte* element, const atomic_update& update) {
    using word = std::conditional_t<sizeof(T) == 4, unsigned, unsigned long long>;
    auto* const bits = reinterpret_cast<word*>(element);
    auto* const number = reinterpret_cast<T*>(element);
    const word value = static_cast<word>(update.operand);
    const T operand = value_of<T>(update.operand);
    if (update.action == atomic_action::exchange) return atomicExch_system(bits, value);
    if (update.action == atomic_action::compare_swap)
        return atomicCAS_system(bits, static_cast<word>(update.expected), value);
    if constexpr (std::is_integral_v<T>) {
        switch (update.action) {
        case atomic_action::add:
            return atomicAdd_system(bits, value);
        case atomic_action::bit_and:
            return atomicAnd_system(bits, value);
        case atomic_action::bit_or:
            return atomicOr_system(bits, value);
        case atomic_action::bit_xor:
            return atomicXor_system(bits, value);
        case atomic_action::minimum:
            return bits_of(atomicMin_system(number, operand));
        case atomic_action::maximum:
            return bits_of(atomicMax_system(number, operand));
        default:
            break;
        }
    } else if (update.action == atomic_action::add) {
        return bits_of(atomicAdd_system(number, operand));
    }
    // Nothing else is an instruction.
    word before = *static_cast<volatile word*>(bits);
    for (;;) {
        const T after = combine(update.action, value_of<T>(before), operand);
        const word seen = atomicCAS_system(bits, before, static_cast<word>(bits_of(after)));
        if (seen == before) return before;
        before = seen;
    }
}

#else

// ORDER atomic-publish, atomic-observe: on the CPU on the operation itself; one that only looks (a compare_swap that
// fails) acquires.
template <class T>
std::uint64_t update_as(std::byte* element, const atomic_update& update) {
    using word = std::conditional_t<sizeof(T) == 4, std::uint32_t, std::uint64_t>;
    const auto shared = atomic(reinterpret_cast<word*>(element));
    const std::memory_order looks = order<order_tag::atomic_observe>(std::memory_order_acquire);
    const std::memory_order changes = weakened(order_tag::atomic_publish)   ? looks
                                      : weakened(order_tag::atomic_observe) ? std::memory_order_release
                                                                            : std::memory_order_acq_rel;
    if (update.action == atomic_action::compare_swap) {
        auto before = static_cast<word>(update.expected);
        shared.compare_exchange_strong(before, static_cast<word>(update.operand), changes, looks);
        return before;
    }
    word before = shared.load(std::memory_order_relaxed), after;
    do after = static_cast<word>(bits_of(combine(update.action, value_of<T>(before), value_of<T>(update.operand))));
    while (!shared.compare_exchange_weak(before, after, changes, std::memory_order_relaxed));
    return before;
}

#endif

// Makes an atomic operation on an element, which is aligned: the bits that it held before. What the caller did before
// is ordered before it by the caller, and what it does next after it by acquire_after<order_tag::atomic_observe>.
DCUDA_HOST_DEVICE std::uint64_t update_element(std::byte* element, const atomic_update& update) {
    switch (update.type) {
    case element_type::int32:
        return update_as<int>(element, update);
    case element_type::uint32:
        return update_as<unsigned>(element, update);
    case element_type::int64:
        return update_as<long long>(element, update);
    case element_type::uint64:
        return update_as<unsigned long long>(element, update);
    case element_type::float32:
        return update_as<float>(element, update);
    default:
        return update_as<double>(element, update);
    }
}

} // namespace dcuda::detail
