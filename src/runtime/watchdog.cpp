// SPDX-License-Identifier: BSD-3-Clause
#include "runtime/watchdog.hpp"

#include <algorithm>

namespace dcuda {

using detail::wait_record;
using detail::waiting;

std::vector<wait_record> watchdog::read_waits() {
    std::vector<wait_record> waits(static_cast<std::size_t>(state_.ranks()));
    constexpr std::size_t words = sizeof(wait_record) / sizeof(std::uint32_t);
    static_assert(sizeof(wait_record) % sizeof(std::uint32_t) == 0);
    link_.read_words(reinterpret_cast<std::uint32_t*>(waits.data()),
                     reinterpret_cast<const std::uint32_t*>(state_.fields().waits), waits.size() * words);
    for (wait_record& wait : waits) name_source(wait, state_.fields().tags);
    const auto now = clock::now();
    for (std::size_t rank = 0; rank < waits.size(); ++rank) {
        sighting& last = sightings_[rank];
        if (last.kind != waits[rank].kind || last.epoch != waits[rank].epoch)
            last = {waits[rank].kind, waits[rank].epoch, now};
        if (last.kind == waiting::no) continue;
        const auto age = std::chrono::duration_cast<std::chrono::milliseconds>(now - last.first).count();
        waits[rank].age_ms = static_cast<std::uint32_t>(std::min<std::int64_t>(age, UINT32_MAX));
    }
    return waits;
}

void watchdog::poll(bool is_quiet) {
    if (interval_.count() == 0 || clock::now() < next_) return;
    next_ = clock::now() + interval_;
    std::vector<wait_record> waits = read_waits();
    bool all_wait = is_quiet, all_looked_again = true;
    std::uint64_t digest = 14695981039346656037u; // FNV-1a over what changes when a rank moves
    for (std::size_t rank = 0; rank < waits.size(); ++rank) {
        const waiting kind = waits[rank].kind;
        // A rank is done when all ranks of the job have come to the end of the kernel: the rest are about to be.
        // The threads that a rank waits for in its constructor may compute as long as they like.
        if (kind == waiting::no || kind == waiting::done || kind == waiting::threads) all_wait = false;
        if (waits[rank].heartbeat == previous_[rank].heartbeat) all_looked_again = false;
        for (const std::uint32_t word : {static_cast<std::uint32_t>(kind), waits[rank].epoch, waits[rank].seen})
            digest = (digest ^ word) * 1099511628211u;
    }
    previous_ = std::move(waits);
    if (!all_wait)
        control_.report_busy();
    else if (all_looked_again)
        control_.report_quiet(digest);
    // else: no rank has moved, but not every rank has had the time to look again. The next sample tells.
}

} // namespace dcuda
