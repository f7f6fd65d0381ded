// SPDX-License-Identifier: BSD-3-Clause
// CUDA's atomic functions for the CPU backend: relaxed, as in CUDA. The _block and _system forms are the same
// operation.
#pragma once

#include <atomic>

#include "device_builtins.h"

namespace dcuda::detail::cpu {

// A loop that waits by atomic operations finds its value unchanged over and over: let those it waits for run.
template <class T>
T noted(T before, T after) {
    if (before == after) spin_hint();
    return before;
}

// Applies `change` until no other thread came in between; returns the value before.
template <class T, class Change>
T atomic_update(T* address, Change change) {
    std::atomic_ref<T> value(*address);
    T before = value.load(std::memory_order_relaxed);
    while (!value.compare_exchange_weak(before, change(before), std::memory_order_relaxed)) {
    }
    return before;
}

template <class T>
T add(T* address, T value) {
    if (value == 0) spin_hint(); // how CUDA code reads atomically, often in a loop
    return std::atomic_ref<T>(*address).fetch_add(value, std::memory_order_relaxed);
}

template <class T>
T compare_and_swap(T* address, T expected, T desired) {
    const T wanted = expected;
    std::atomic_ref<T>(*address).compare_exchange_strong(expected, desired, std::memory_order_relaxed);
    if (expected != wanted) spin_hint();
    return expected;
}

} // namespace dcuda::detail::cpu

#define DCUDA_ATOMIC_ONE(name, T, expression)                                                                          \
    inline T name(T* address, T value) { return expression; }
#define DCUDA_ATOMIC(name, T, expression)                                                                              \
    DCUDA_ATOMIC_ONE(name, T, expression)                                                                              \
    DCUDA_ATOMIC_ONE(name##_block, T, expression)                                                                      \
    DCUDA_ATOMIC_ONE(name##_system, T, expression)

#define DCUDA_ATOMIC_FETCH(name, T, operation)                                                                         \
    DCUDA_ATOMIC(name, T, std::atomic_ref<T>(*address).operation(value, std::memory_order_relaxed))
#define DCUDA_ATOMIC_UPDATE(name, T, after)                                                                            \
    DCUDA_ATOMIC(name, T, dcuda::detail::cpu::atomic_update(address, [value](T before) -> T { return after; }))

#define DCUDA_ATOMIC_ADD(T) DCUDA_ATOMIC(atomicAdd, T, dcuda::detail::cpu::add(address, value))
DCUDA_ATOMIC_ADD(int)
DCUDA_ATOMIC_ADD(unsigned int)
DCUDA_ATOMIC_ADD(unsigned long long)
DCUDA_ATOMIC_ADD(float)
DCUDA_ATOMIC_ADD(double)
DCUDA_ATOMIC_FETCH(atomicSub, int, fetch_sub)
DCUDA_ATOMIC_FETCH(atomicSub, unsigned int, fetch_sub)

#define DCUDA_ATOMIC_EXCHANGE(T)                                                                                       \
    DCUDA_ATOMIC(                                                                                                      \
        atomicExch, T,                                                                                                 \
        dcuda::detail::cpu::noted(std::atomic_ref<T>(*address).exchange(value, std::memory_order_relaxed), value))
DCUDA_ATOMIC_EXCHANGE(int)
DCUDA_ATOMIC_EXCHANGE(unsigned int)
DCUDA_ATOMIC_EXCHANGE(unsigned long long)
DCUDA_ATOMIC_EXCHANGE(float)

#define DCUDA_ATOMIC_MIN_MAX(T)                                                                                        \
    DCUDA_ATOMIC_UPDATE(atomicMin, T, value < before ? value : before)                                                 \
    DCUDA_ATOMIC_UPDATE(atomicMax, T, value > before ? value : before)
DCUDA_ATOMIC_MIN_MAX(int)
DCUDA_ATOMIC_MIN_MAX(unsigned int)
DCUDA_ATOMIC_MIN_MAX(long long)
DCUDA_ATOMIC_MIN_MAX(unsigned long long)

#define DCUDA_ATOMIC_BIT(name, T, operation, Operator)                                                                 \
    DCUDA_ATOMIC(name, T, ([&] {                                                                                       \
                     const T before = std::atomic_ref<T>(*address).operation(value, std::memory_order_relaxed);        \
                     return dcuda::detail::cpu::noted(before, static_cast<T>(before Operator value));                  \
                 }()))
#define DCUDA_ATOMIC_BITS(T)                                                                                           \
    DCUDA_ATOMIC_BIT(atomicAnd, T, fetch_and, &)                                                                       \
    DCUDA_ATOMIC_BIT(atomicOr, T, fetch_or, |)                                                                         \
    DCUDA_ATOMIC_BIT(atomicXor, T, fetch_xor, ^)
DCUDA_ATOMIC_BITS(int)
DCUDA_ATOMIC_BITS(unsigned int)
DCUDA_ATOMIC_BITS(unsigned long long)

DCUDA_ATOMIC_UPDATE(atomicInc, unsigned int, before >= value ? 0 : before + 1)
DCUDA_ATOMIC_UPDATE(atomicDec, unsigned int, before == 0 || before > value ? value : before - 1)

#define DCUDA_ATOMIC_CAS_ONE(name, T)                                                                                  \
    inline T name(T* address, T expected, T desired) {                                                                 \
        return dcuda::detail::cpu::compare_and_swap(address, expected, desired);                                       \
    }
#define DCUDA_ATOMIC_CAS(T)                                                                                            \
    DCUDA_ATOMIC_CAS_ONE(atomicCAS, T)                                                                                 \
    DCUDA_ATOMIC_CAS_ONE(atomicCAS_block, T)                                                                           \
    DCUDA_ATOMIC_CAS_ONE(atomicCAS_system, T)
DCUDA_ATOMIC_CAS(int)
DCUDA_ATOMIC_CAS(unsigned int)
DCUDA_ATOMIC_CAS(unsigned long long)
DCUDA_ATOMIC_CAS(unsigned short)

#undef DCUDA_ATOMIC_ONE
#undef DCUDA_ATOMIC
#undef DCUDA_ATOMIC_FETCH
#undef DCUDA_ATOMIC_UPDATE
#undef DCUDA_ATOMIC_ADD
#undef DCUDA_ATOMIC_EXCHANGE
#undef DCUDA_ATOMIC_MIN_MAX
#undef DCUDA_ATOMIC_BIT
#undef DCUDA_ATOMIC_BITS
#undef DCUDA_ATOMIC_CAS_ONE
#undef DCUDA_ATOMIC_CAS
