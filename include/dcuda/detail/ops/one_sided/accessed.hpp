// SPDX-License-Identifier: BSD-3-Clause
// What gets and atomic operations access: elements and ranges of windows of other ranks.
#pragma once

#include "dcuda/detail/ops/targets.hpp"

namespace dcuda::detail {

// Says what is wrong with such an access, of which something is wrong. The leader.
DCUDA_COLD void report_access(lone_thread leader, shared_state shared, const accessed_range range) {
    rank_state& state = shared.get();
    send_request request = range.as_put();
    std::uint64_t limit = 0;
    const fault wrong = find_fault(state, request, find_window(state, window{range.window}), limit);
    request.kind = range.where;
    report_request(leader, shared, wrong, request, limit);
}

// Checks an access and brings its target near. Its place among the targets, or cached_targets if a rule is broken,
// which ends the run. The lead warp.
DCUDA_COLD unsigned find_accessed(lead_warp warp, shared_state shared, const accessed_range range) {
    rank_state& state = shared.get();
    endpoint& own = state.own.of(warp);
    const send_request request = range.as_put();
    target_entry found;
    unsigned target = find_near_target(warp, own, target_key(range.window, range.rank), found);
    if (target == cached_targets || !is_allowed(state, found, request))
        target = exec::far(load_target<false, lead_warp>)(warp, state, request);
    if (target == cached_targets) {
        if (warp.leads()) exec::far(report_access)(exec::lead_access::alone(), state, range);
        return target;
    }
    sync(warp);
    if (warp.leads()) own.doing.target = target;
    return target;
}

// Whether the elements at `home` are aligned; if not the run ends. The lead warp.
DCUDA_DEVICE bool is_aligned(const lead_warp& warp, rank_state& state, const accessed_range& range,
                             const std::byte* home, std::size_t element_bytes) {
#if DCUDA_CHECKS
    if (reinterpret_cast<std::uintptr_t>(home) % element_bytes == 0) return true;
    if (warp.leads())
        report_fault(exec::lead_access::alone(), state, fault::alignment, range.where, range.window, range.rank,
                     range.offset, range.bytes, 0);
    return false;
#else
    (void)warp, (void)state, (void)range, (void)home, (void)element_bytes;
    return true;
#endif
}

// Waits until this rank's earlier small puts to the range are in its place. False if the run ended. The lead warp.
DCUDA_DEVICE bool await_own_puts(const lead_warp& warp, rank_state& state, const target_entry& entry,
                                 const accessed_range& range) {
    return !is_under_way(warp, state, entry.connection, entry.home + range.offset, range.bytes) ||
           await_delivery(warp, state, entry.connection, range.where);
}

} // namespace dcuda::detail
