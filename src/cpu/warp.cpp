// SPDX-License-Identifier: BSD-3-Clause
// Warp operations: the lanes of a mask meet, the last to arrive computes everybody's result.
#include <bit>

#include <fmt/format.h>

#include "block.hpp"
#include "dcuda/detail/ops/check.hpp"
#include "dcuda/error.hpp"
#include "sanitizer.hpp"

namespace dcuda::detail::cpu {

namespace {

// The lane that a shuffle reads from: its own if the source lies outside its segment of `width` lanes.
unsigned source_lane(warp_operation operation, unsigned lane, unsigned argument, int width) {
    if (width < 1 || width > warpSize || !std::has_single_bit(static_cast<unsigned>(width)))
        throw error(error_code::invalid_argument,
                    fmt::format("a shuffle of width {}: expected 1, 2, 4, 8, 16 or 32", width));
    const unsigned inside = static_cast<unsigned>(width) - 1;
    const unsigned first = lane & ~inside, last = lane | inside;
    switch (operation) {
    case warp_operation::shuffle:
        return first | (argument & inside);
    case warp_operation::shuffle_up:
        return argument > lane - first ? lane : lane - argument;
    case warp_operation::shuffle_down:
        return argument > last - lane ? lane : lane + argument;
    case warp_operation::shuffle_xor:
        return (lane ^ argument) > last ? lane : lane ^ argument;
    default:
        return lane;
    }
}

template <class Visit>
void each_lane(unsigned lanes, Visit visit) {
    for (; lanes != 0; lanes &= lanes - 1) visit(static_cast<unsigned>(std::countr_zero(lanes)));
}

std::uint64_t reduce(warp_operation operation, const warp& w, unsigned lanes) {
    auto total = static_cast<std::uint32_t>(w.value[static_cast<unsigned>(std::countr_zero(lanes))]);
    each_lane(lanes & (lanes - 1), [&](unsigned lane) {
        const auto x = static_cast<std::uint32_t>(w.value[lane]);
        switch (operation) {
        case warp_operation::add:
            total += x;
            break;
        case warp_operation::min_signed:
            total = static_cast<int>(x) < static_cast<int>(total) ? x : total;
            break;
        case warp_operation::max_signed:
            total = static_cast<int>(x) > static_cast<int>(total) ? x : total;
            break;
        case warp_operation::min_unsigned:
            total = x < total ? x : total;
            break;
        case warp_operation::max_unsigned:
            total = x > total ? x : total;
            break;
        case warp_operation::bit_and:
            total &= x;
            break;
        case warp_operation::bit_or:
            total |= x;
            break;
        case warp_operation::bit_xor:
            total ^= x;
            break;
        default:
            break;
        }
    });
    return total;
}

void compute(warp_operation operation, warp& w, unsigned lanes) {
    switch (operation) {
    case warp_operation::synchronize:
        return;
    case warp_operation::shuffle:
    case warp_operation::shuffle_up:
    case warp_operation::shuffle_down:
    case warp_operation::shuffle_xor:
        // A lane that takes no part has no value: CUDA leaves the result undefined, here it is the reader's own.
        each_lane(lanes, [&](unsigned lane) {
            const unsigned source = w.source[lane];
            w.result[lane] = w.value[lanes >> source & 1 ? source : lane];
        });
        return;
    case warp_operation::ballot: {
        std::uint64_t votes = 0;
        each_lane(lanes, [&](unsigned lane) { votes |= (w.value[lane] & 1) << lane; });
        each_lane(lanes, [&](unsigned lane) { w.result[lane] = votes; });
        return;
    }
    case warp_operation::match_any:
    case warp_operation::match_all:
        each_lane(lanes, [&](unsigned lane) {
            std::uint64_t equal = 0;
            each_lane(lanes, [&](unsigned other) {
                if (w.value[other] == w.value[lane]) equal |= std::uint64_t{1} << other;
            });
            w.result[lane] = operation == warp_operation::match_any || equal == lanes ? equal : 0;
        });
        return;
    default: {
        const std::uint64_t total = reduce(operation, w, lanes);
        each_lane(lanes, [&](unsigned lane) { w.result[lane] = total; });
    }
    }
}

} // namespace

std::uint64_t block::warp_exchange(warp_operation operation, unsigned mask, std::uint64_t value, unsigned argument,
                                   int width) {
    sanitizer::unobserved guard;
    if (unwinding()) return value;
    if (stopping()) leave();
    const unsigned linear = current_->linear, lane = linear % warpSize;
    warp& w = warps_[linear / warpSize];
    if ((mask >> lane & 1) == 0)
        throw error(
            error_code::invalid_argument,
            fmt::format("a warp operation with mask {:#010x}, called by lane {} that is not in it", mask, lane));
    w.value[lane] = value;
    w.mask[lane] = mask;
    w.operation[lane] = operation;
    w.source[lane] = source_lane(operation, lane, argument, width);
    w.arrived |= 1u << lane;
    const auto clock = static_cast<unsigned>(std::countr_zero(mask));
    sanitizer::release(&w.in[clock]);
    if (!complete_warp(w, mask)) {
        wait(fiber_state::in_warp_operation);
        if (stopping()) leave();
        sanitizer::acquire(&w.out[clock]);
    }
    return w.result[lane];
}

// Lets the lanes of the mask go if all of them are there; lanes that have exited are not waited for.
bool block::complete_warp(warp& w, unsigned mask) {
    const unsigned lanes = mask & w.alive;
    if ((lanes & ~w.arrived) != 0) return false;
    bool same = true;
    each_lane(lanes, [&](unsigned lane) { same = same && w.mask[lane] == mask; });
    if (!same) return false;
    fiber* of_lane = &fibers_[static_cast<std::size_t>(&w - warps_.data()) * warpSize];
    const fiber& leader = of_lane[std::countr_zero(lanes)];
    each_lane(lanes, [&](unsigned lane) { same = same && are_in_same_operation(of_lane[lane], leader); });
    if (!same && !check::watches_threads()) {
        fail_parted(nullptr);
        return false;
    }
    const auto clock = static_cast<unsigned>(std::countr_zero(mask));
    sanitizer::acquire(&w.in[clock]);
    const auto first = static_cast<unsigned>(std::countr_zero(lanes));
    each_lane(lanes & (lanes - 1), [&](unsigned lane) {
        if (w.operation[lane] != w.operation[first])
            throw error(error_code::invalid_argument,
                        fmt::format("lanes {} and {} of a warp meet in different warp operations", first, lane));
    });
    compute(w.operation[first], w, lanes);
    sanitizer::release(&w.out[clock]);
    w.arrived &= ~lanes;
    each_lane(lanes, [&](unsigned lane) {
        fiber& f = of_lane[lane];
        if (f.state != fiber_state::in_warp_operation) return; // the caller itself
        f.state = fiber_state::ready;
        ready_.push(f);
    });
    return true;
}

} // namespace dcuda::detail::cpu
