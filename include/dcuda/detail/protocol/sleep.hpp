// SPDX-License-Identifier: BSD-3-Clause
// CPU backend: how threads sleep until a word changes, and are woken.
#pragma once

#include <atomic>
#include <bit>
#include <cstdint>
#include <ctime>
#include <linux/futex.h>
#include <sys/syscall.h>
#include <unistd.h>

namespace dcuda::detail {

template <class Word>
inline std::atomic_ref<Word> atomic(const Word* word) {
    return std::atomic_ref<Word>(*const_cast<Word*>(word));
}

bool run_others_of_block(); // other CUDA threads of the block; false: none can run. block.cpp

// Sleeps in the system until the word, which may be shared between processes, no longer holds `value`.
inline void wait_in_system(const void* word, std::uint32_t value, long timeout_ns) {
    const timespec timeout{timeout_ns / 1'000'000'000, timeout_ns % 1'000'000'000};
    syscall(SYS_futex, word, FUTEX_WAIT, value, &timeout, nullptr, 0);
}

// Sleeps until the word, of a wide one its lower half, no longer holds `value`, at most `timeout_ns`; if other CUDA
// threads of the block can run, lets them run instead.
template <class Word>
inline void sleep_on(const Word* word, Word value, long timeout_ns) {
    static_assert(std::endian::native == std::endian::little);
    if (!run_others_of_block()) wait_in_system(word, static_cast<std::uint32_t>(value), timeout_ns);
}
inline void wake_sleepers(const void* word) { syscall(SYS_futex, word, FUTEX_WAKE, 0x7fff'ffff, nullptr, nullptr, 0); }

// A doorbell counts how often it was rung, in steps of 2. The lowest bit says that somebody sleeps on it.
// PERF: of 20 rings 19 find nobody asleep. They need no system call.
inline constexpr std::uint32_t doorbell_ring = 2, doorbell_sleeper = 1;

// The same until the doorbell is rung; not at all if it was rung since it was read as `rung`.
// ORDER: none is needed beyond that of one word. Who rings changes the word before or after the sleeper's bit is set.
// If before, the exchange fails. If after, who rings sees the bit, or another has seen it and wakes all; and between
// the exchange and the sleep the system compares once more.
inline void sleep_until_rung(const std::uint32_t* doorbell, std::uint32_t rung, long timeout_ns) {
    if (run_others_of_block()) return;
    const std::uint32_t asleep = rung | doorbell_sleeper;
    if (rung != asleep && !atomic(doorbell).compare_exchange_strong(rung, asleep, std::memory_order_relaxed)) return;
    wait_in_system(doorbell, asleep, timeout_ns);
}

// Whoever sleeps on the word looks again. Relaxed: should the doorbell overtake what it announces, the sleeper's
// time-out is short.
inline void ring_doorbell(std::uint32_t* doorbell) {
    if ((atomic(doorbell).fetch_add(doorbell_ring, std::memory_order_relaxed) & doorbell_sleeper) == 0) return;
    atomic(doorbell).fetch_and(~doorbell_sleeper, std::memory_order_relaxed);
    wake_sleepers(doorbell);
}

} // namespace dcuda::detail
