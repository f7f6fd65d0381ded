// SPDX-License-Identifier: BSD-3-Clause
// The collective operations on values and data, and which way each goes: packets (reduce.hpp, pieces.hpp) or bounce
// buffers (slices.hpp, move.hpp, scan.hpp). All threads of the rank, all members.
#pragma once

#include "dcuda/detail/ops/collectives/pieces.hpp"
#include "dcuda/detail/ops/collectives/scan.hpp"
#include "dcuda/detail/ops/collectives/slices.hpp"

namespace dcuda::detail {

// From so many bytes on arrays of the communicator go through bounce buffers. What is no communicator is reported
// later.
DCUDA_COLD std::uint32_t bounce_from(shared_state shared, communicator comm) {
    const communicator_record* const found = find_communicator(shared.get(), comm);
    return found != nullptr ? found->bounce_from : 0;
}

// Whether an array goes through bounce buffers. All members choose alike.
// PERF: for two members packets are as fast at 8 KiB, and for eight and more at 2 KiB: each packet goes to all members,
// and of what goes through bounce buffers each member gets a slice (H100, dcuda-bench collectives).
DCUDA_DEVICE bool is_large(rank_state& state, communicator comm, std::size_t bytes) {
    const std::size_t from = exec::far(bounce_from)(state, comm);
    return bytes >= from || (bytes >= from / 4 && bytes * size_of(state, comm) >= 2 * from);
}

// What members that reduce arrays must agree on. `Called`: the type that the program has called it with.
template <class T, class Op, bool ByNumber, class Called>
DCUDA_DEVICE std::uint32_t digest_of_array(operation where, std::uint32_t root, std::size_t count) {
    return digest_of<value_array<T, Op>, std::bool_constant<ByNumber>, Called>(where, root,
                                                                               static_cast<std::uint32_t>(count));
}

// An array: in packets, or if it is large through bounce buffers.
template <class T, class Op, bool ByNumber = false, class Called = T>
DCUDA_DEVICE void combine_array(rank_state& state, operation where, communicator comm, std::uint32_t root, T* out,
                                const T* in, std::size_t count, const Op& op) {
    check_memory(state, where, out, count * sizeof(T), in, count * sizeof(T), true);
    const std::uint32_t digest = digest_of_array<T, Op, ByNumber, Called>(where, root, count);
    if (!is_large(state, comm, count * sizeof(T)))
        return exchange_array<T, Op, ByNumber>(state, where, comm, root, digest, out, in, count, op);
    exec::far(combine_slices<T, Op>)(state, slice_request{where, comm, root, digest, count, ByNumber}, out, in, op);
}

template <class T, class Op>
DCUDA_DEVICE T allreduce_value(rank_state& state, communicator comm, const T& value, const Op& op) {
    using traits = operator_traits<Op>;
    using element = accumulator_t<T>;
    return static_cast<T>(combine_value<T, element, typename traits::type, traits::by_number>(
        state, operation::allreduce, comm, 0, static_cast<element>(value), traits::of(op)));
}

// The same in two parts. The start gives a number, which the finish takes.
template <class T, class Op>
DCUDA_DEVICE unsigned start_allreduce_value(rank_state& state, communicator comm, const T& value, const Op& op) {
    using traits = operator_traits<Op>;
    using element = accumulator_t<T>;
    return start_value<T, element, typename traits::type, traits::by_number>(state, comm, static_cast<element>(value),
                                                                             traits::of(op));
}
template <class T, class Op>
DCUDA_DEVICE T finish_allreduce_value(rank_state& state, communicator comm, const T& value, const Op& op,
                                      unsigned start) {
    using traits = operator_traits<Op>;
    using element = accumulator_t<T>;
    return static_cast<T>(combine_value<T, element, typename traits::type, traits::by_number, exchange_phase::finish>(
        state, operation::allreduce, comm, 0, static_cast<element>(value), traits::of(op), start));
}

template <class T, class Op>
DCUDA_DEVICE void allreduce_array(rank_state& state, communicator comm, T* out, const T* in, std::size_t count,
                                  const Op& op) {
    using traits = operator_traits<Op>;
    combine_array<T, typename traits::type, traits::by_number>(state, operation::allreduce, comm, 0, out, in, count,
                                                               traits::of(op));
}

// The same in two parts, as for a value.
template <bool ByNumber, class T, class Op>
DCUDA_DEVICE exchange_request request_of_array(communicator comm, const value_array<T, Op>& values) {
    constexpr operation where = operation::allreduce;
    return {where, comm, digest_of_array<T, Op, ByNumber, T>(where, 0, values.count), ByNumber, values.units()};
}
template <class T, class Op>
DCUDA_DEVICE unsigned start_allreduce_array(rank_state& state, communicator comm, T* out, const T* in,
                                            std::size_t count, const Op& op) {
    using traits = operator_traits<Op>;
    using operator_type = typename traits::type;
    check_memory(state, operation::start_allreduce, out, count * sizeof(T), in, count * sizeof(T), true);
    const bool in_packets = !is_large(state, comm, count * sizeof(T));
    const value_array<T, operator_type> values{out, in, count, traits::of(op)};
    const exchange_request request = request_of_array<traits::by_number>(comm, values);
    // ORDER: what the rank's threads have stored into `in` is read behind the barrier of the decision.
    const unsigned answer = exec::decide(
        state.group(), state.decision,
        [&](const lead_warp& warp) { return begin_start(warp, state, comm, traits::by_number); },
        [&](const lead_warp& warp, unsigned begun) {
            if (begun != 0 && in_packets) send_start<T, operator_type, traits::by_number>(warp, state, request, values);
        });
    return answer_of_start(state, answer);
}
template <class T, class Op>
DCUDA_DEVICE void finish_allreduce_array(rank_state& state, communicator comm, T* out, const T* in, std::size_t count,
                                         const Op& op, unsigned start) {
    using traits = operator_traits<Op>;
    using operator_type = typename traits::type;
    const bool in_packets = !is_large(state, comm, count * sizeof(T));
    const value_array<T, operator_type> values{out, in, count, traits::of(op)};
    const exchange_request request = request_of_array<traits::by_number>(comm, values);
    leave(exec::decide(state.group(), state.decision, [&](const lead_warp& warp) {
        return finish_array<T, operator_type, traits::by_number>(warp, state, request, values, in_packets, start) ? 1u
                                                                                                                  : 0u;
    }));
    if (!in_packets)
        combine_array<T, operator_type, traits::by_number>(state, operation::allreduce, comm, 0, out, in, count,
                                                           traits::of(op));
}

// Only the root gets the result.
template <class T, class Op>
DCUDA_DEVICE void reduce_array(rank_state& state, communicator comm, T* out, const T* in, std::size_t count,
                               const Op& op, int root) {
    using traits = operator_traits<Op>;
    T* const target = comm_rank(state, comm) == root ? out : nullptr;
    combine_array<T, typename traits::type, traits::by_number>(
        state, operation::reduce, comm, static_cast<std::uint32_t>(root), target, in, count, traits::of(op));
}

template <class T, class Op>
DCUDA_DEVICE void reduce_scatter_array(rank_state& state, communicator comm, T* out, const T* in, std::size_t count,
                                       const Op& op) {
    using traits = operator_traits<Op>;
    constexpr operation where = operation::reduce_scatter;
    check_memory(state, where, out, count * sizeof(T), in, count * size_of(state, comm) * sizeof(T), true);
    const std::uint32_t digest = digest_of<value_array<T, Op>, std::bool_constant<traits::by_number>>(
        where, 0, static_cast<std::uint32_t>(count));
    exec::far(combine_slices<T, typename traits::type>)(
        state, slice_request{where, comm, 0, digest, count, traits::by_number}, out, in, traits::of(op));
}

template <class T>
DCUDA_DEVICE T broadcast_value(rank_state& state, communicator comm, const T& value, int root) {
    using bits = value_bits<sizeof(T) <= packet_payload_bytes ? 1 : unit_packets>;
    bits own{};
    if (comm_rank(state, comm) == root) memcpy(own.words, &value, sizeof value);
    const bits all = combine_value<T, bits, combine_bits>(state, operation::broadcast, comm,
                                                          static_cast<std::uint32_t>(root), own, combine_bits{});
    bytes_of<T> result;
    memcpy(&result, all.words, sizeof result);
    return __builtin_bit_cast(T, result);
}

template <class T>
DCUDA_DEVICE void broadcast_array(rank_state& state, communicator comm, T* data, std::size_t count, int root) {
    using word = std::conditional_t<alignof(T) % 4 == 0, std::uint32_t,
                                    std::conditional_t<alignof(T) % 2 == 0, std::uint16_t, std::uint8_t>>;
    const bool is_root = comm_rank(state, comm) == root;
    auto* const words = reinterpret_cast<word*>(data);
    combine_array<word, bit_or, false, T>(state, operation::broadcast, comm, static_cast<std::uint32_t>(root),
                                          is_root ? nullptr : words, is_root ? words : nullptr,
                                          count * sizeof(T) / sizeof(word), bit_or{});
}

// gather, all_gather, scatter and all_to_all, of pieces of `count` elements.
template <operation Kind, class T>
DCUDA_DEVICE void move_pieces(rank_state& state, communicator comm, int root, T* out, const T* in, std::size_t count) {
    constexpr bool brings_all = Kind == operation::scatter || Kind == operation::all_to_all;
    constexpr bool gets_all = Kind != operation::scatter;
    const auto number = static_cast<std::size_t>(comm_rank(state, comm)), members = std::size_t(size_of(state, comm));
    const bool is_root = comm_rank(state, comm) == root;
    // What lies where it belongs is not copied.
    const bool is_in_place =
        brings_all != gets_all && (gets_all ? in == out + number * count : out == in + number * count);
    const bool reads = Kind != operation::scatter || is_root, writes = Kind != operation::gather || is_root;
    check_memory(state, Kind, writes ? out : nullptr, (gets_all ? members : 1) * count * sizeof(T),
                 reads && !is_in_place ? in : nullptr, (brings_all ? members : 1) * count * sizeof(T), false);
    const auto target = static_cast<std::uint32_t>(root);
    exec::far(move_equal)(state, move_request{.where = Kind,
                                              .comm = comm,
                                              .root = target,
                                              .digest = digest_of<T>(Kind, target, static_cast<std::uint32_t>(count)),
                                              .out = reinterpret_cast<std::byte*>(out),
                                              .in = reinterpret_cast<const std::byte*>(in),
                                              .count = count,
                                              .element_bytes = sizeof(T)});
}

// The same with pieces that differ, in elements.
struct differing_pieces {
    std::size_t count; // that this member brings, if it is one piece
    const std::size_t* counts;
    const std::size_t* displacements;
    const std::size_t* out_displacements;
    std::size_t* received;
};
template <operation Kind, class T>
DCUDA_DEVICE void move_differing(rank_state& state, communicator comm, int root, T* out, const T* in,
                                 const differing_pieces& pieces) {
    check_memory(state, Kind, out, 0, in, 0, true);
    check_memory(state, Kind, pieces.received, 0, nullptr, 0, true);
    const auto target = static_cast<std::uint32_t>(root);
    exec::far(move_data)(state, move_request{.where = Kind,
                                             .comm = comm,
                                             .root = target,
                                             .digest = digest_of<T, differing_pieces>(Kind, target, 0),
                                             .out = reinterpret_cast<std::byte*>(out),
                                             .in = reinterpret_cast<const std::byte*>(in),
                                             .count = pieces.count,
                                             .element_bytes = sizeof(T),
                                             .differs = true,
                                             .counts = pieces.counts,
                                             .displacements = pieces.displacements,
                                             .out_displacements = pieces.out_displacements,
                                             .received = pieces.received});
}

} // namespace dcuda::detail
