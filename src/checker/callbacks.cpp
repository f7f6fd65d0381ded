// SPDX-License-Identifier: BSD-3-Clause
// What the compiler calls for loads and stores of kernels that are built for the checker: with -fsanitize=thread when
// compiling, and without it when linking, so that these functions take the place of ThreadSanitizer's.
//
// Atomic operations are done here, all sequentially consistent. They count as loads or stores, and order what ranks do
// before and after them.
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <cstring>

#include "checker/session.hpp"
#include "dcuda/detail/ops/check.hpp"

namespace {

using dcuda::detail::check::touched;

[[gnu::always_inline]] inline void load(const volatile void* memory, std::size_t bytes) {
    touched(const_cast<const void*>(memory), bytes, false, __builtin_return_address(0));
}
[[gnu::always_inline]] inline void store(const volatile void* memory, std::size_t bytes) {
    touched(const_cast<const void*>(memory), bytes, true, __builtin_return_address(0));
}

// Atomic operations on a word come one after the other: before and after what is done.
[[gnu::always_inline]] inline void atomic(const volatile void* word, std::size_t bytes, bool is_store) {
    dcuda::detail::check::synchronize(const_cast<const void*>(word));
    touched(const_cast<const void*>(word), bytes, is_store, __builtin_return_address(0));
    dcuda::detail::check::synchronize(const_cast<const void*>(word));
}

} // namespace

extern "C" {

void __tsan_init() { dcuda::detail::check::sees_loads_and_stores = true; }
void __tsan_func_entry(void*) {}
void __tsan_func_exit(void*) {}
void __tsan_vptr_update(void**, void*) {}
void __tsan_vptr_read(void**) {}
void __tsan_read_range(void* memory, unsigned long bytes) { load(memory, bytes); }
void __tsan_write_range(void* memory, unsigned long bytes) { store(memory, bytes); }

#define DCUDA_CHECK_ACCESS(bytes)                                                                                      \
    void __tsan_read##bytes(void* memory) { load(memory, bytes); }                                                     \
    void __tsan_write##bytes(void* memory) { store(memory, bytes); }                                                   \
    void __tsan_unaligned_read##bytes(void* memory) { load(memory, bytes); }                                           \
    void __tsan_unaligned_write##bytes(void* memory) { store(memory, bytes); }                                         \
    void __tsan_volatile_read##bytes(void* memory) { load(memory, bytes); }                                            \
    void __tsan_volatile_write##bytes(void* memory) { store(memory, bytes); }                                          \
    void __tsan_unaligned_volatile_read##bytes(void* memory) { load(memory, bytes); }                                  \
    void __tsan_unaligned_volatile_write##bytes(void* memory) { store(memory, bytes); }                                \
    void __tsan_read_write##bytes(void* memory) { store(memory, bytes); }                                              \
    void __tsan_unaligned_read_write##bytes(void* memory) { store(memory, bytes); }
DCUDA_CHECK_ACCESS(1)
DCUDA_CHECK_ACCESS(2)
DCUDA_CHECK_ACCESS(4)
DCUDA_CHECK_ACCESS(8)
DCUDA_CHECK_ACCESS(16)
#undef DCUDA_CHECK_ACCESS

#define DCUDA_CHECK_FETCH(bits, name, operation)                                                                       \
    std::uint##bits##_t __tsan_atomic##bits##_##name(volatile std::uint##bits##_t* word, std::uint##bits##_t value,    \
                                                     int) {                                                            \
        atomic(word, bits / 8, true);                                                                                  \
        return operation(word, value, __ATOMIC_SEQ_CST);                                                               \
    }
#define DCUDA_CHECK_ATOMIC(bits)                                                                                       \
    std::uint##bits##_t __tsan_atomic##bits##_load(const volatile std::uint##bits##_t* word, int) {                    \
        atomic(word, bits / 8, false);                                                                                 \
        return __atomic_load_n(word, __ATOMIC_SEQ_CST);                                                                \
    }                                                                                                                  \
    void __tsan_atomic##bits##_store(volatile std::uint##bits##_t* word, std::uint##bits##_t value, int) {             \
        atomic(word, bits / 8, true);                                                                                  \
        __atomic_store_n(word, value, __ATOMIC_SEQ_CST);                                                               \
    }                                                                                                                  \
    DCUDA_CHECK_FETCH(bits, exchange, __atomic_exchange_n)                                                             \
    DCUDA_CHECK_FETCH(bits, fetch_add, __atomic_fetch_add)                                                             \
    DCUDA_CHECK_FETCH(bits, fetch_sub, __atomic_fetch_sub)                                                             \
    DCUDA_CHECK_FETCH(bits, fetch_and, __atomic_fetch_and)                                                             \
    DCUDA_CHECK_FETCH(bits, fetch_or, __atomic_fetch_or)                                                               \
    DCUDA_CHECK_FETCH(bits, fetch_xor, __atomic_fetch_xor)                                                             \
    DCUDA_CHECK_FETCH(bits, fetch_nand, __atomic_fetch_nand)                                                           \
    int __tsan_atomic##bits##_compare_exchange_strong(                                                                 \
        volatile std::uint##bits##_t* word, std::uint##bits##_t* expected, std::uint##bits##_t desired, int, int) {    \
        atomic(word, bits / 8, true);                                                                                  \
        return __atomic_compare_exchange_n(word, expected, desired, false, __ATOMIC_SEQ_CST, __ATOMIC_SEQ_CST);        \
    }                                                                                                                  \
    int __tsan_atomic##bits##_compare_exchange_weak(volatile std::uint##bits##_t* word, std::uint##bits##_t* expected, \
                                                    std::uint##bits##_t desired, int, int) {                           \
        atomic(word, bits / 8, true);                                                                                  \
        return __atomic_compare_exchange_n(word, expected, desired, true, __ATOMIC_SEQ_CST, __ATOMIC_SEQ_CST);         \
    }                                                                                                                  \
    std::uint##bits##_t __tsan_atomic##bits##_compare_exchange_val(                                                    \
        volatile std::uint##bits##_t* word, std::uint##bits##_t expected, std::uint##bits##_t desired, int, int) {     \
        atomic(word, bits / 8, true);                                                                                  \
        __atomic_compare_exchange_n(word, &expected, desired, false, __ATOMIC_SEQ_CST, __ATOMIC_SEQ_CST);              \
        return expected;                                                                                               \
    }
DCUDA_CHECK_ATOMIC(8)
DCUDA_CHECK_ATOMIC(16)
DCUDA_CHECK_ATOMIC(32)
DCUDA_CHECK_ATOMIC(64)
#undef DCUDA_CHECK_ATOMIC
#undef DCUDA_CHECK_FETCH

void __tsan_atomic_thread_fence(int) { __atomic_thread_fence(__ATOMIC_SEQ_CST); }
void __tsan_atomic_signal_fence(int) {}

// The linker gives all calls of these functions to us (-Wl,--wrap): no compiler makes them visible by itself.
void* __real_memcpy(void* target, const void* source, std::size_t bytes);
void* __real_memmove(void* target, const void* source, std::size_t bytes);
void* __real_memset(void* target, int value, std::size_t bytes);

void* __wrap_memcpy(void* target, const void* source, std::size_t bytes) {
    if (bytes != 0) load(source, bytes), store(target, bytes);
    return __real_memcpy(target, source, bytes);
}
void* __wrap_memmove(void* target, const void* source, std::size_t bytes) {
    if (bytes != 0) load(source, bytes), store(target, bytes);
    return __real_memmove(target, source, bytes);
}
void* __wrap_memset(void* target, int value, std::size_t bytes) {
    if (bytes != 0) store(target, bytes);
    return __real_memset(target, value, bytes);
}

} // extern "C"
