// SPDX-License-Identifier: BSD-3-Clause
// Accumulates: all threads of the rank combine elements of the target's memory with the source's; or the delivery
// kernel of its device does. No element is a release: who wants to know that all are there
// waits for a notification, or a barrier.
#pragma once

#include "dcuda/detail/ops/one_sided/rows.hpp"
#include "dcuda/detail/ops/one_sided/straight.hpp"

namespace dcuda::detail {

struct accumulate_request {
    accessed_range range;
    const std::byte* source;
    std::uint32_t code; // update_code

    DCUDA_DEVICE std::uint32_t element_bytes() const { return size_of_element(update_of(code, 0, 0).type); }
    DCUDA_DEVICE std::size_t count() const { return range.bytes / element_bytes(); }
    // Of the element with this number.
    DCUDA_DEVICE atomic_update update(std::size_t element) const {
        return update_of(code, bits_at(source + element * element_bytes(), update_of(code, 0, 0).type), 0);
    }
};

// The same with all that is not known when the program is compiled. PERF: as much as travels in registers from function
// to function.
template <class T, atomic_action action>
struct source_elements {
    accessed_range range;
    const std::byte* source;

    DCUDA_DEVICE accumulate_request request() const {
        return {range, source, update_code({action, type_of<T>(), 0, 0})};
    }
};

// All threads of the rank.
DCUDA_COLD void accumulate_far_away(shared_state shared, const posted_put place, const accumulate_request request) {
    if (request.count() == 1) { // which needs no payload behind its command
        auto* const home = reinterpret_cast<std::byte*>(static_cast<std::uintptr_t>(place.home));
        return exec::leader_then_sync(shared.get().group(), [&](lone_thread leader) {
            update_far_away(leader, shared, place.rank, home, request.update(0));
        });
    }
    distant_rows part{place.rank, request.code, place.home, 0, request.source, 0, 0, 1};
    for (std::size_t left = request.range.bytes; left != 0; left -= part.width) {
        part.width = left < max_ring_bytes ? static_cast<std::uint32_t>(left) : max_ring_bytes;
        send_rows(shared, part);
        part.home += part.width;
        part.source += part.width;
    }
}

// Elements that one instruction combines: one of type T, or four, to which floats are added.
template <class T, atomic_action action>
struct one_element {
    T value;
    DCUDA_DEVICE void combine_with(std::byte* element) const {
        update_element(element, {action, type_of<T>(), bits_of(value), 0});
    }
};
#if defined(__CUDA_ARCH__)
struct alignas(16) four_floats {
    float values[4];
    __device__ void combine_with(std::byte* elements) const {
        add_relaxed_system(reinterpret_cast<float*>(elements), values);
    }
};
#endif

// PERF: a thread has several loads of the source under way. Nobody waits for what an element held before, so an action
// that is an instruction is sent like a store.
template <class Unit>
DCUDA_DEVICE void combine_units(const exec::rank_group& team, std::byte* target, const std::byte* source,
                                std::size_t count) {
    constexpr std::size_t under_way = 4;
    const auto* const units = reinterpret_cast<const Unit*>(source);
    const std::size_t step = team.threads();
    for (std::size_t first = team.thread(); first < count; first += under_way * step) {
        Unit some[under_way];
        for (std::size_t i = 0; i < under_way; ++i)
            if (first + i * step < count) some[i] = units[first + i * step];
        for (std::size_t i = 0; i < under_way; ++i)
            if (first + i * step < count) some[i].combine_with(target + (first + i * step) * sizeof(Unit));
    }
}

// All threads of the rank; nobody waits.
template <class T, atomic_action action>
DCUDA_COLD void combine_elements(const exec::rank_group team, std::byte* target, const std::byte* source,
                                 std::size_t count) {
#if defined(__CUDA_ARCH__)
    if constexpr (std::is_same_v<T, float> && action == atomic_action::add) {
        const auto places = reinterpret_cast<std::uintptr_t>(target) | reinterpret_cast<std::uintptr_t>(source);
        if (places % sizeof(four_floats) == 0) {
            const std::size_t fours = count / 4;
            combine_units<four_floats>(team, target, source, fours);
            target += fours * sizeof(four_floats), source += fours * sizeof(four_floats), count -= fours * 4;
        }
    }
#endif
    combine_units<one_element<T, action>>(team, target, source, count);
}

// Whatever the fast path cannot do. All threads of the rank.
template <class T, atomic_action action>
DCUDA_COLD void accumulate_slowly(shared_state shared, const accumulate_request& request) {
    rank_state& state = shared.get();
    const unsigned begun = exec::far(begin_straight)(shared, {request.range, request.element_bytes()});
    const posted_put place = posted(state, begun / post_turn);
    if (route_of(begun) == route::proxied)
        accumulate_far_away(shared, place, request);
    else
        combine_elements<T, action>(state.group(), place.target, request.source, request.count());
    exec::far(end_straight)(shared, request.range, route_of(begun), place);
}

// --- The operation --------------------------------------------------------------------------------------------------

#if DCUDA_WARPS
// Combines what begin_near() has posted. All threads of the rank.
template <class T, atomic_action action>
DCUDA_COLD void combine_posted(const caller by, const std::byte* source, std::size_t count, unsigned chosen,
                               bool notifies) {
    rank_state& state = by.state();
    const std::uint32_t requests = load_requests(state); // PERF: on its way while the elements are
    combine_elements<T, action>(state.group(), posted(state, chosen % 2).target, source, count);
    end_direct(by, notifies, requests);
}
#endif

// All threads of the rank. When a thread returns, others may still be reading the source.
template <class T, atomic_action action>
DCUDA_COLD void accumulate_in_window(const caller by, const source_elements<T, action> elements) {
#if DCUDA_WARPS
    const accessed_range& range = elements.range;
    const unsigned chosen = begin_near(by, {range, sizeof(T)});
    if (chosen != direct_is_slow)
        return combine_posted<T, action>(by, elements.source, range.bytes / sizeof(T), chosen, range.notifies());
#endif
    exec::far(accumulate_slowly<T, action>)(by.state(), elements.request());
}

} // namespace dcuda::detail
