// SPDX-License-Identifier: BSD-3-Clause
// Reductions and broadcasts, made of exchanges: all members exchange what they have, and each combines it for itself.
// A broadcast is a reduction to which all but the root bring nothing.
#pragma once

#include "dcuda/detail/ops/collectives/communicators.hpp"
#include "dcuda/operators.hpp"

#include <type_traits>

namespace dcuda::detail {

// What values are combined as: those of 16-bit floating point types as float.
template <class T, bool = sizeof(T) == 2 && !std::is_arithmetic_v<T> && std::is_convertible_v<T, float>>
struct accumulator {
    using type = T;
};
template <class T>
struct accumulator<T, true> {
    using type = float;
};
template <class T>
using accumulator_t = typename accumulator<T>::type;

// What the program's operator is for values of that type.
template <class Op>
struct operator_traits {
    using type = Op;
    static constexpr bool by_number = false;
    DCUDA_DEVICE static const Op& of(const Op& op) { return op; }
};
template <class Op>
struct operator_traits<by_rank<Op>> {
    using type = Op;
    static constexpr bool by_number = true;
    DCUDA_DEVICE static const Op& of(const by_rank<Op>& op) { return op.combine; }
};

// A number for a type, as good as the compiler's name for it.
template <class... Types>
DCUDA_HOST_DEVICE constexpr std::uint32_t number_of_types() {
    std::uint32_t hash = 2166136261u; // FNV-1a
    for (const char* c = __PRETTY_FUNCTION__; *c != 0; ++c) hash = (hash ^ static_cast<unsigned char>(*c)) * 16777619u;
    return hash;
}

// The elements of a unit.
template <class Element>
inline constexpr unsigned unit_elements = unit_bytes / sizeof(Element);

// Types need no default constructor.
template <class Element>
struct bytes_of {
    std::byte bytes[sizeof(Element)];
};
template <class Element>
DCUDA_DEVICE Element element_of(const value_unit& unit, unsigned number) {
    bytes_of<Element> bytes;
    memcpy(&bytes, reinterpret_cast<const std::byte*>(unit.words) + number * sizeof(Element), sizeof bytes);
    return __builtin_bit_cast(Element, bytes);
}
template <class Element>
DCUDA_DEVICE void set_element(value_unit& unit, unsigned number, const Element& element) {
    memcpy(reinterpret_cast<std::byte*>(unit.words) + number * sizeof(Element), &element, sizeof element);
}

// Combines the first `Elements` elements of two units.
template <unsigned Elements, class Element, class Op>
DCUDA_DEVICE value_unit combine_elements(const value_unit& a, const value_unit& b, const Op& op) {
    value_unit result{};
    DCUDA_UNROLL
    for (unsigned i = 0; i < Elements; ++i)
        set_element(result, i, static_cast<Element>(op(element_of<Element>(a, i), element_of<Element>(b, i))));
    return result;
}

// One value of every member.
template <class Element, class Op>
struct single_value {
    Op op;
    DCUDA_DEVICE value_unit combine(const value_unit& a, const value_unit& b) const {
        return combine_elements<1, Element>(a, b, op);
    }
};

// An array of every member. `in` is null where a member brings nothing, `out` where it gets nothing. An array of no
// elements is a unit of nothing, so that a member that gives another number of elements is noticed.
template <class T, class Op>
struct value_array {
    using element = accumulator_t<T>;
    T* out;
    const T* in;
    std::size_t count;
    Op op;
    DCUDA_DEVICE std::size_t units() const {
        return (count + (count == 0 ? 1 : 0) + unit_elements<element> - 1) / unit_elements<element>;
    }
    DCUDA_DEVICE value_unit load(std::size_t unit) const {
        value_unit result{};
        if (in == nullptr || count == 0) return result;
        const std::size_t first = unit * unit_elements<element>, left = count - first;
        // Behind the end stands the last element again: operators get no others than members have brought.
        DCUDA_UNROLL
        for (unsigned i = 0; i < unit_elements<element>; ++i)
            set_element(result, i, static_cast<element>(in[first + (i < left ? i : left - 1)]));
        return result;
    }
    DCUDA_DEVICE value_unit combine(const value_unit& a, const value_unit& b) const {
        if (count == 0) return a;
        return combine_elements<unit_elements<element>, element>(a, b, op);
    }
    // Leaves out the first units.
    DCUDA_DEVICE void skip(std::size_t units) {
        const std::size_t elements = units * unit_elements<element> < count ? units * unit_elements<element> : count;
        if (out != nullptr) out += elements;
        if (in != nullptr) in += elements;
        count -= elements;
    }
    DCUDA_DEVICE void store(std::size_t unit, const value_unit& value, const exchange_team& team) {
        if (out == nullptr) return;
        const std::size_t first = unit * unit_elements<element>, left = count - first;
        DCUDA_UNROLL
        for (unsigned i = 0; i < unit_elements<element>; ++i)
            if (i < left && i % team.width == team.thread)
                out[first + i] = static_cast<T>(element_of<element>(value, i));
    }
};

// Values as bits, of which all but the root's are 0; in so many packets.
template <unsigned Packets>
struct value_bits {
    std::uint32_t words[3 * Packets];
};
struct combine_bits {
    template <unsigned Packets>
    DCUDA_DEVICE value_bits<Packets> operator()(const value_bits<Packets>& a, const value_bits<Packets>& b) const {
        value_bits<Packets> result;
        DCUDA_UNROLL
        for (unsigned i = 0; i < 3 * Packets; ++i) result.words[i] = a.words[i] | b.words[i];
        return result;
    }
};

// Whether an operation may have these arguments; else the run ends. `root`: 0 where there is none. The lead warp.
DCUDA_COLD bool check_collective(lead_warp warp, shared_state shared, operation where, communicator number,
                                 std::uint32_t root, bool by_number) {
    rank_state& state = shared.get();
    if (!prepare_exchange(warp, state, number, where, by_number)) return false;
#if DCUDA_CHECKS
    if (root == 0) return true;
    const std::uint32_t size = size_of(state, number);
    if (root < size) return true;
    if (warp.leads()) report_fault(exec::lead_access::alone(), state, fault::root, where, 0, root, size, 0, 0);
    return false;
#else
    (void)root;
    return true;
#endif
}

// The part of a digest that says what is exchanged: by the types of the operation.
template <class... Types>
DCUDA_DEVICE std::uint32_t digest_of(operation where, std::uint32_t root, std::uint32_t count) {
    constexpr std::uint32_t types = number_of_types<Types...>();
    return exchange_digest(where, types + root * 0x85EBCA6Bu + count * 0xC2B2AE35u);
}

// Puts down that an allreduce is started on a communicator. The number of the start, for mark_finished; 0 if the run
// ends, since there is none such, or another one is started. The lead warp.
DCUDA_COLD unsigned mark_started(lead_warp warp, shared_state shared, communicator number, bool by_number) {
    rank_state& state = shared.get();
    if (!check_collective(warp, state, operation::start_allreduce, number, 0, by_number)) return 0;
    communicator_record& comm = *find_communicator(state, number);
    const std::uint32_t start = start_number(comm.sequence);
    sync(warp);
    if (warp.leads()) comm.started = start;
    return start;
}

// Puts down that it is finished. False if the run ends, since that one was not started. The lead warp.
DCUDA_COLD bool mark_finished(lead_warp warp, shared_state shared, communicator number, unsigned start) {
    rank_state& state = shared.get();
    communicator_record* const comm = find_communicator(state, number);
    const bool is_started = comm != nullptr && start != 0 && comm->started == start;
    sync(warp);
    if (warp.leads()) {
        if (is_started)
            comm->started = 0;
        else
            report_fault(exec::lead_access::alone(), state, comm == nullptr ? fault::communicator : fault::not_started,
                         operation::finish_allreduce, 0, static_cast<std::uint32_t>(number), 0, 0, 0);
    }
    return is_started;
}

// Exchanges one value. The turn in which the result is posted, or the number of the start as an answer, + 1; 0 if the
// run ends. `start`: that number, to finish. The lead warp.
template <class T, class Element, class Op, bool ByNumber, exchange_phase Phase>
DCUDA_COLD unsigned exchange_value(lead_warp warp, shared_state shared, operation where, communicator number,
                                   std::uint32_t root, value_unit value, Op op, unsigned start) {
    rank_state& state = shared.get();
    if constexpr (Phase == exchange_phase::start) {
        start = mark_started(warp, state, number, ByNumber);
        if (start == 0) return 0;
    } else if constexpr (Phase == exchange_phase::finish) {
        if (!mark_finished(warp, state, number, start)) return 0;
    } else {
        if (!check_collective(warp, state, where, number, root, ByNumber)) return 0;
    }
    const exchange_request request{
        where, number, digest_of<single_value<T, Op>, std::bool_constant<ByNumber>>(where, root, 1), ByNumber, 1};
    constexpr unsigned packets = sizeof(Element) <= packet_payload_bytes ? 1 : 2;
    const single_value<Element, Op> values{op};
    if (!exchange_one<packets, false, Phase>(warp, state, *find_communicator(state, number), request, value, values))
        return 0;
    return 1 + (Phase == exchange_phase::start ? post_answer(warp, state, start) : post_value(warp, state, value));
}

// How an array is exchanged: by the lead warp alone, or by all full warps of the block.
inline constexpr unsigned by_lead_warp = 1, by_all_warps = 3; // and one of two turns in which that is posted

// Decides that, and posts the number of the last exchange before, and how many units are exchanged at once. 0 if the
// run ends. The lead warp.
//
// With all warps no slot is cleared between exchanges: that takes that no other warp sends. So it is not when the
// numbers of this array come past one that clears. Nor with members that are reached over a network: what their
// commands need of the rank's books is the lead warp's.
DCUDA_COLD unsigned begin_array(lead_warp warp, shared_state shared, operation where, communicator number,
                                std::uint32_t root, bool by_number, std::size_t units) {
    rank_state& state = shared.get();
    if (!check_collective(warp, state, where, number, root, by_number)) return 0;
    communicator_record& comm = *find_communicator(state, number);
    const exchange_plan& plan = comm.plan_of_array(by_number);
    const std::uint32_t sequence = comm.sequence;
    const std::size_t exchanges = (units + plan.units - 1) / plan.units;
    const std::uint32_t until_clear = exchanges_until_clear - 1 - sequence % exchanges_until_clear;
    const bool clears = sequence % exchanges_until_clear == 0 || exchanges > until_clear;
    const bool by_all =
        DCUDA_BACKEND_CUDA && state.group().threads() >= 64 && !clears && units > 1 && comm.shape.is_networked == 0;
    sync(warp);
    if (by_all && warp.leads()) {
        comm.sequence = sequence + static_cast<std::uint32_t>(exchanges);
        state.finished_shares = 0;
    }
    value_unit begun{};
    begun.words[0] = sequence;
    begun.words[1] = plan.units;
    return (by_all ? by_all_warps : by_lead_warp) + post_value(warp, state, begun);
}

// Exchanges an array alone: one exchange after the other, since some clear. False if the run has ended. The lead warp.
template <class T, class Op, bool ByNumber>
DCUDA_COLD bool exchange_alone(lead_warp warp, shared_state shared, exchange_request request, std::uint32_t sequence,
                               value_array<T, Op> values) {
    rank_state& state = shared.get();
    communicator_record& comm = *find_communicator(state, request.comm);
    const exchange_plan& plan = comm.plan_of_array(ByNumber);
    const std::size_t units = request.units;
    bool going = true;
    for (std::size_t first = 0; going && first < units; first += plan.units) {
        request.units = units - first < plan.units ? units - first : plan.units;
        clear_if_due(warp, plan, sequence + 1);
        going = exchange_many(warp, {0, 1}, state, plan, request, sequence++, values);
        values.skip(plan.units);
    }
    sync(warp);
    if (warp.leads()) comm.sequence = sequence;
    return going;
}

#if DCUDA_BACKEND_CUDA
// Warps that have finished a share are counted in rank_state::finished_shares, with this if the run has ended.
inline constexpr std::uint32_t share_failed = 1u << 16;

// The lead warp waits for the other warps' shares, as long as the run goes on.
DCUDA_COLD bool await_shares(lead_warp warp, shared_state shared, const exchange_request& request,
                             std::uint32_t shares) {
    rank_state& state = shared.get();
    bool is_first = true;
    std::uint32_t finished = 0;
    const bool going = poll_until(
        [&](unsigned) {
            finished = broadcast(warp, warp.leads() ? load_relaxed(&state.finished_shares) : 0, 0);
            return finished % share_failed == shares || finished >= share_failed ? poll_result::all
                                                                                 : poll_result::nothing;
        },
        [&] {
            if (warp.leads() && is_first)
                begin_wait(exec::lead_access::alone(), state, waiting::member, request.where,
                           static_cast<std::uint32_t>(request.comm), no_rank);
            is_first = false;
            return any(warp, warp.leads() && keep_waiting(exec::lead_access::alone(), state, 0));
        },
        nullptr);
    if (!is_first && warp.leads()) end_wait(exec::lead_access::alone(), state);
    return going && finished < share_failed;
}

// A warp's share of the exchanges of an array. False if the run has ended.
template <class T, class Op, bool ByNumber, class Group>
DCUDA_COLD bool exchange_share_of(Group warp, shared_state shared, exchange_request request, std::uint32_t sequence,
                                  value_array<T, Op> values) {
    rank_state& state = shared.get();
    const exchange_plan& plan = find_communicator(state, request.comm)->plan_of_array(ByNumber);
    const exchange_share share{state.group().thread() / 32, state.group().threads() / 32};
    return exchange_many(warp, share, state, plan, request, sequence, values);
}

// Some exchanges of an array, by all full warps of the block. Leaves the kernel if the run has ended. All threads of
// the rank. `shares`: that all warps but the lead warp have finished then, since the array was begun.
template <class T, class Op, bool ByNumber>
DCUDA_DEVICE void exchange_together(rank_state& state, const exchange_request& request, std::uint32_t sequence,
                                    const value_array<T, Op>& values, std::uint32_t shares) {
    const unsigned thread = state.group().thread();
    if (thread >= 32 && thread < state.group().threads() / 32 * 32) {
        const warp_group warp{thread % 32, 32};
        const bool going = exchange_share_of<T, Op, ByNumber>(warp, state, request, sequence, values);
        sync(warp);
        if (warp.leads()) add_in_block(&state.finished_shares, going ? 1 : share_failed);
    }
    leave(exec::decide(state.group(), state.decision, [&](const lead_warp& warp) {
        const bool going = exchange_share_of<T, Op, ByNumber>(warp, state, request, sequence, values) &&
                           await_shares(warp, state, request, shares);
        return going ? 1u : 0u;
    }));
}

// An array, by all warps.
//
// All of them meet before the last exchange. Who has heard from a member in the last one, of whatever unit, knows then
// that all warps of that member have finished the one before; without that the next array could overwrite what a slow
// warp has still to read. In all other exchanges a unit has the same team, which keeps its own order.
template <class T, class Op, bool ByNumber>
DCUDA_DEVICE void exchange_by_all(rank_state& state, exchange_request request, std::uint32_t sequence,
                                  value_array<T, Op> values, std::size_t units_at_once) {
    const std::uint32_t others = state.group().threads() / 32 - 1;
    const std::size_t units = request.units, exchanges = (units + units_at_once - 1) / units_at_once;
    const std::size_t before = (exchanges - 1) * units_at_once;
    if (before != 0) {
        request.units = before;
        exchange_together<T, Op, ByNumber>(state, request, sequence, values, others);
        values.skip(before);
    }
    request.units = units - before;
    exchange_together<T, Op, ByNumber>(state, request, sequence + static_cast<std::uint32_t>(exchanges - 1), values,
                                       before != 0 ? 2 * others : others);
}
#endif

// --- Operations: all threads of the rank, all members ----------------------------------------------------------------

// `T`: what the program calls the type.
template <class T, class Element, class Op, bool ByNumber = false, exchange_phase Phase = exchange_phase::whole>
DCUDA_DEVICE Element combine_value(rank_state& state, operation where, communicator comm, std::uint32_t root,
                                   const Element& own, const Op& op, unsigned start = 0) {
    value_unit unit{};
    set_element(unit, 0, own);
    const unsigned turn = exec::decide(state.group(), state.decision, [&](const lead_warp& warp) {
        return exchange_value<T, Element, Op, ByNumber, Phase>(warp, state, where, comm, root, unit, op, start);
    });
    leave(turn);
    return element_of<Element>(state.puts[turn - 1].value, 0);
}
// What all threads make of a decision that is an answer's turn + 1.
DCUDA_DEVICE unsigned answer_of_start(const rank_state& state, unsigned decision) {
    leave(decision);
    return state.answers[decision - 1];
}

// Starts it. The number of the start.
template <class T, class Element, class Op, bool ByNumber>
DCUDA_DEVICE unsigned start_value(rank_state& state, communicator comm, const Element& own, const Op& op) {
    value_unit unit{};
    set_element(unit, 0, own);
    return answer_of_start(state, exec::decide(state.group(), state.decision, [&](const lead_warp& warp) {
                               return exchange_value<T, Element, Op, ByNumber, exchange_phase::start>(
                                   warp, state, operation::allreduce, comm, 0, unit, op, 0);
                           }));
}

// The memory of a collective operation: all threads of the rank must see it, and results must not lie over what is
// still to be read, unless they may be the same memory.
DCUDA_DEVICE void check_memory(rank_state& state, operation where, const void* out, std::size_t out_bytes,
                               const void* in, std::size_t in_bytes, bool may_be_same) {
#if DCUDA_CHECKS
    const auto number = [](const void* pointer) {
        return static_cast<std::uint64_t>(reinterpret_cast<std::uintptr_t>(pointer));
    };
    for (const void* each : {out, in})
        if (each != nullptr && exec::is_local_memory(each))
            report_and_leave(state, fault::local_memory, where, 0, 0, number(each), 0);
    const bool overlap = !(may_be_same && out == in) && out != nullptr && in != nullptr &&
                         number(out) < number(in) + in_bytes && number(in) < number(out) + out_bytes;
    if (overlap) report_and_leave(state, fault::overlap, where, 0, 0, number(out), out_bytes);
#else
    (void)state, (void)where, (void)out, (void)out_bytes, (void)in, (void)in_bytes, (void)may_be_same;
#endif
}

template <class T, class Op, bool ByNumber>
DCUDA_DEVICE void exchange_array(rank_state& state, operation where, communicator comm, std::uint32_t root,
                                 std::uint32_t digest, T* out, const T* in, std::size_t count, const Op& op) {
    value_array<T, Op> values{out, in, count, op};
    const exchange_request request{where, comm, digest, ByNumber, values.units()};
    // Behind this barrier of the block all warps read what all threads have written.
    const unsigned decision = exec::decide(state.group(), state.decision, [&](const lead_warp& warp) {
        return begin_array(warp, state, where, comm, root, ByNumber, request.units);
    });
    leave(decision);
    const bool is_alone = decision < by_all_warps;
    const value_unit begun = state.puts[decision - (is_alone ? by_lead_warp : by_all_warps)].value;
#if DCUDA_BACKEND_CUDA
    if (!is_alone) return exchange_by_all<T, Op, ByNumber>(state, request, begun.words[0], values, begun.words[1]);
#endif
    leave(exec::decide(state.group(), state.decision, [&](const lead_warp& warp) {
        return exchange_alone<T, Op, ByNumber>(warp, state, request, begun.words[0], values) ? 1u : 0u;
    }));
}

// --- The same in two parts ------------------------------------------------------------------------------------------

// An allreduce of an array is started. The turn of the answer that is the number of the start, + 1; 0 if the run has
// ended. The lead warp.
DCUDA_DEVICE unsigned begin_start(const lead_warp& warp, rank_state& state, communicator comm, bool by_number) {
    const unsigned start = mark_started(warp, state, comm, by_number);
    return start == 0 ? 0 : 1 + post_answer(warp, state, start);
}

// Sends what the first exchange of an array takes, if the array goes in packets: for more, others would have to be
// ready. The lead warp, after the block's barrier.
template <class T, class Op, bool ByNumber>
DCUDA_COLD void send_start(lead_warp warp, shared_state shared, exchange_request request, value_array<T, Op> values) {
    rank_state& state = shared.get();
    communicator_record& comm = *find_communicator(state, request.comm);
    const exchange_plan& plan = comm.plan_of_array(ByNumber);
    const std::uint32_t sequence = comm.sequence;
    if (request.units > plan.units) request.units = plan.units;
    clear_if_due(warp, plan, sequence + 1);
    exchange_many<exchange_phase::start>(warp, {0, 1}, state, plan, request, sequence, values);
}

// The rest of that; nothing but that it is no longer started, if the array does not go in packets. False if the run has
// ended. The lead warp.
template <class T, class Op, bool ByNumber>
DCUDA_COLD bool finish_array(lead_warp warp, shared_state shared, exchange_request request, value_array<T, Op> values,
                             bool in_packets, unsigned start) {
    rank_state& state = shared.get();
    if (!mark_finished(warp, state, request.comm, start)) return false;
    if (!in_packets) return true;
    const std::size_t units = request.units;
    communicator_record& comm = *find_communicator(state, request.comm);
    const exchange_plan& plan = comm.plan_of_array(ByNumber);
    const std::uint32_t sequence = comm.sequence;
    request.units = units < plan.units ? units : plan.units;
    if (!exchange_many<exchange_phase::finish>(warp, {0, 1}, state, plan, request, sequence, values)) return false;
    values.skip(request.units);
    request.units = units - request.units;
    return exchange_alone<T, Op, ByNumber>(warp, state, request, sequence + 1, values);
}

} // namespace dcuda::detail
