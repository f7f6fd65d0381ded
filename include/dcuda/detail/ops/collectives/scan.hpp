// SPDX-License-Identifier: BSD-3-Clause
// Scans: each member gets the combination of the values of those before it. Members store their values into the bounce
// buffers of all that need them, and each combines what has come in the order of numbers.
#pragma once

#include "dcuda/detail/ops/collectives/bounce.hpp"

namespace dcuda::detail {

// Combines the values of the members before `end`, of which there is at least one, in a pairwise tree. As post_value
// leaves it. The lead warp.
template <class Element, class Op>
DCUDA_COLD unsigned combine_before(lead_warp warp, shared_state shared, const bounce_exchange& by, std::uint32_t end,
                                   value_unit own, const Op op) {
    rank_state& state = shared.get();
    const single_value<Element, Op> values{op};
    const std::byte* const places = bounce_places(state, state.world_rank, by.step - 1);
    value_tree<single_value<Element, Op>, bounce_levels> tree(values); // a thread alone has all of them
    const unsigned width = 1u << highest(warp.count);
    const std::uint32_t each = power_above((end + width - 1) / width), begin = warp.index * each;
    DCUDA_NO_UNROLL
    for (std::uint32_t place = begin; place < begin + each; ++place) {
        maybe_value one{own, warp.index < width && place < end};
        if (one.is_there && place != by.place)
            memcpy(one.value.words, places + place * by.place_bytes, sizeof(Element));
        tree.add(one);
    }
    maybe_value result = tree.result();
    combine_threads<unit_packets>(warp, width, result, values);
    return post_value(warp, state, result.value);
}

// All threads of the rank, all members. `first`: what member 0 gets in an exclusive scan.
template <class T, class Op>
DCUDA_DEVICE T scan_value(rank_state& state, operation where, communicator comm, const T& value, const Op& op,
                          const T& first) {
    using element = accumulator_t<T>;
    value_unit unit{};
    set_element(unit, 0, static_cast<element>(value));
    const exchange_request begin{where, comm, digest_of<single_value<T, Op>>(where, 0, 1), false, 1};
    std::uint64_t nothing = 0;
    bounce_exchange by = begin_bounce(
        state, sizeof(element), begin, place_order::numbers, [](const lead_warp&) { return std::uint64_t{0}; },
        nothing);
    const bool is_exclusive = where == operation::exclusive_scan;
    outgoing_pieces pieces{reinterpret_cast<const std::byte*>(unit.words), 0, sizeof(element)};
    pieces.from_number = by.place + 1;
    exec::far(store_pieces)(state, by, pieces, 0);
    end_step(state, by);
    if (is_exclusive && by.place == 0) return first;
    const unsigned turn = exec::decide(state.group(), state.decision, [&](const lead_warp& warp) {
        return exec::far(combine_before<element, Op>)(warp, state, by, by.place + (is_exclusive ? 0 : 1), unit, op);
    });
    return static_cast<T>(element_of<element>(state.puts[turn].value, 0));
}

} // namespace dcuda::detail
