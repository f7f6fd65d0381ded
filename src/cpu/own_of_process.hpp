// SPDX-License-Identifier: BSD-3-Clause
// An object that each process has one of.
#pragma once

#include <atomic>
#include <mutex>
#include <pthread.h>

namespace dcuda::detail::cpu {

// Made when it is first asked for. It lives as long as the process: kernels may run to its end. A forked child makes a
// new one, as a thread of its parent may have been at work on the parent's.
template <class Object>
Object& own_of_process() {
    static std::atomic<Object*> own{nullptr};
    if (Object* known = own.load(std::memory_order_acquire)) return *known;
    static std::mutex creation;
    const std::lock_guard lock(creation);
    if (!own.load(std::memory_order_acquire)) {
        own.store(new Object, std::memory_order_release);
        static std::once_flag once;
        std::call_once(once,
                       [] { pthread_atfork(nullptr, nullptr, [] { own.store(nullptr, std::memory_order_release); }); });
    }
    return *own.load(std::memory_order_acquire);
}

} // namespace dcuda::detail::cpu
