// SPDX-License-Identifier: BSD-3-Clause
// Sanitizers and valgrind, told about fibers. Weak symbols: the same library object runs in a plain program, where they
// are null, and in one that is built with -fsanitize=address or thread.
#pragma once

#include <cstddef>

#if __has_include(<valgrind/valgrind.h>)
#include <valgrind/valgrind.h>
#else
#define VALGRIND_STACK_REGISTER(begin, end) 0u
#define VALGRIND_STACK_DEREGISTER(id) (void)(id)
#endif

extern "C" {
[[gnu::weak]] void __asan_init();
[[gnu::weak]] void __asan_poison_memory_region(const volatile void* begin, std::size_t bytes);
[[gnu::weak]] void __asan_unpoison_memory_region(const volatile void* begin, std::size_t bytes);
[[gnu::weak]] void __sanitizer_start_switch_fiber(void** fake_stack, const void* bottom, std::size_t bytes);
[[gnu::weak]] void __sanitizer_finish_switch_fiber(void* fake_stack, const void** old_bottom, std::size_t* old_bytes);
[[gnu::weak]] void __tsan_init();
[[gnu::weak]] void* __tsan_get_current_fiber();
[[gnu::weak]] void* __tsan_create_fiber(unsigned flags);
[[gnu::weak]] void __tsan_destroy_fiber(void* fiber);
[[gnu::weak]] void __tsan_switch_to_fiber(void* fiber, unsigned flags);
[[gnu::weak]] void __tsan_set_fiber_name(void* fiber, const char* name);
[[gnu::weak]] void __tsan_acquire(void* address);
[[gnu::weak]] void __tsan_release(void* address);
[[gnu::weak]] void AnnotateIgnoreReadsBegin(const char* file, int line);
[[gnu::weak]] void AnnotateIgnoreReadsEnd(const char* file, int line);
[[gnu::weak]] void AnnotateIgnoreWritesBegin(const char* file, int line);
[[gnu::weak]] void AnnotateIgnoreWritesEnd(const char* file, int line);
}

// For code that writes what a fiber sees as its own (threadIdx, say): not a race, whatever the library is built with.
#if defined(__clang__)
#define DCUDA_UNINSTRUMENTED [[gnu::noinline]] __attribute__((no_sanitize("thread", "address")))
#else
#define DCUDA_UNINSTRUMENTED [[gnu::noinline, gnu::no_sanitize_thread, gnu::no_sanitize_address]]
#endif

namespace dcuda::detail::cpu::sanitizer {

inline bool address() { return __sanitizer_start_switch_fiber != nullptr; }
inline bool thread() { return __tsan_create_fiber != nullptr; }
constexpr unsigned tsan_no_sync = 1; // a switch orders nothing: only acquire and release below do

// "Everything before release(x) happens before everything after acquire(x)", for ThreadSanitizer.
inline void acquire(void* address) {
    if (__tsan_acquire) __tsan_acquire(address);
}
inline void release(void* address) {
    if (__tsan_release) __tsan_release(address);
}
inline void poison(const volatile void* begin, std::size_t bytes) {
    if (__asan_poison_memory_region && bytes) __asan_poison_memory_region(begin, bytes);
}
inline void unpoison(const volatile void* begin, std::size_t bytes) {
    if (__asan_unpoison_memory_region && bytes) __asan_unpoison_memory_region(begin, bytes);
}

// The fibers of a block share its bookkeeping without any order that ThreadSanitizer knows of: it must not look while
// they are at it, if the library itself is instrumented.
#if defined(__SANITIZE_THREAD__)
constexpr bool instrumented = true;
#elif defined(__has_feature)
#if __has_feature(thread_sanitizer)
constexpr bool instrumented = true;
#else
constexpr bool instrumented = false;
#endif
#else
constexpr bool instrumented = false;
#endif
inline void look_away() {
    if constexpr (instrumented) {
        AnnotateIgnoreReadsBegin(__FILE__, __LINE__);
        AnnotateIgnoreWritesBegin(__FILE__, __LINE__);
    }
}
inline void look_again() {
    if constexpr (instrumented) {
        AnnotateIgnoreWritesEnd(__FILE__, __LINE__);
        AnnotateIgnoreReadsEnd(__FILE__, __LINE__);
    }
}
struct unobserved {
    unobserved() { look_away(); }
    ~unobserved() { look_again(); }
    unobserved(const unobserved&) = delete;
    unobserved& operator=(const unobserved&) = delete;
};

} // namespace dcuda::detail::cpu::sanitizer
