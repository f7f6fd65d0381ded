// SPDX-License-Identifier: BSD-3-Clause
// Reductions and broadcasts of large arrays, through bounce buffers. A part of the array at a time is cut into slices,
// one for each member. In a first step each member sends every other one its values of that one's slice, and each
// combines its slice; in a second it sends the result to all. So members send and combine alike, and about twice the
// array in all. Of two members each does the whole of a part in one step: as many bytes, and they meet once.
#pragma once

#include "dcuda/detail/ops/collectives/bounce.hpp"

namespace dcuda::detail {

// How an operation on an array goes.
struct slice_request {
    operation where;
    communicator comm;
    std::uint32_t root; // 0 where there is none
    std::uint32_t digest;
    std::size_t count; // of values: of a member's array; of reduce_scatter, of each member's part of it
    bool by_number;    // the order in which values are combined
};

// Values that a thread loads at once: 16 bytes where they fill these.
template <class T>
inline constexpr unsigned pack_values = 16 % sizeof(T) == 0 ? 16 / sizeof(T) : 1;
template <class T>
DCUDA_DEVICE bool is_aligned(const T* values) {
    return reinterpret_cast<std::uintptr_t>(values) % (pack_values<T> * sizeof(T)) == 0;
}

// Before a loop over the values of a pack. GCC 12 dies of vectorizing such a loop over unsigned integers of 8 or 16
// bits
// (-O2): it gets none.
#if defined(__GNUC__) && !defined(__clang__) && !defined(__CUDACC__)
#define DCUDA_UNROLL_PACK _Pragma("GCC unroll 16")
#else
#define DCUDA_UNROLL_PACK DCUDA_UNROLL
#endif

// `Values` values that lie together, as they are combined.
template <class T, unsigned Values>
class pack {
    using element = accumulator_t<T>;
    struct alignas(Values == 1 ? alignof(T) : 16) stored {
        bytes_of<T> each[Values];
    };

public:
    DCUDA_DEVICE void load(const T* source) {
        const stored loaded = *reinterpret_cast<const stored*>(source);
        DCUDA_UNROLL_PACK
        for (unsigned i = 0; i < Values; ++i) set(i, static_cast<element>(__builtin_bit_cast(T, loaded.each[i])));
    }
    DCUDA_DEVICE void store(T* target) const {
        stored rounded;
        DCUDA_UNROLL_PACK
        for (unsigned i = 0; i < Values; ++i) rounded.each[i] = __builtin_bit_cast(bytes_of<T>, static_cast<T>(get(i)));
        *reinterpret_cast<stored*>(target) = rounded;
    }
    template <class Op>
    DCUDA_DEVICE void combine(const pack& second, const Op& op) {
        DCUDA_UNROLL_PACK
        for (unsigned i = 0; i < Values; ++i) set(i, static_cast<element>(op(get(i), second.get(i))));
    }

private:
    DCUDA_DEVICE element get(unsigned i) const { return __builtin_bit_cast(element, elements_[i]); }
    DCUDA_DEVICE void set(unsigned i, const element& value) {
        elements_[i] = __builtin_bit_cast(bytes_of<element>, value);
    }
    bytes_of<element> elements_[Values];
};
#undef DCUDA_UNROLL_PACK

// Packs of many members in a tree: pairs of neighbours, pairs of these, and so on; what has no partner goes on alone.
template <class Pack, class Op, unsigned Levels>
class pack_tree {
public:
    DCUDA_DEVICE explicit pack_tree(const Op& op) : op_(op) {}
    DCUDA_DEVICE void add(Pack value) {
        unsigned level = 0;
        for (; (count_ >> level & 1) != 0; ++level) value = join(partial_[level], value);
        partial_[level] = value;
        ++count_;
    }
    // When some have been added. The tree is empty then.
    DCUDA_DEVICE Pack take_result() {
        unsigned level = lowest(count_);
        Pack result = partial_[level];
        for (++level; count_ >> level != 0; ++level)
            if ((count_ >> level & 1) != 0) result = join(partial_[level], result);
        count_ = 0;
        return result;
    }

private:
    DCUDA_DEVICE Pack join(Pack before, const Pack& value) const {
        before.combine(value, op_);
        return before;
    }
    const Op& op_;
    Pack partial_[Levels];
    unsigned count_ = 0;
};

// The values of one slice, of all members that bring some.
template <class T>
struct slice_values {
    const std::byte* places; // of the members
    std::size_t place_bytes;
    const T* own; // this rank's own, which do not stand in its place
    std::uint32_t own_place;
    std::uint32_t first, end; // places of those that bring values
    bool by_device;           // the members of each device are combined first

    DCUDA_DEVICE const T* of(std::uint32_t place) const {
        return place == own_place ? own : reinterpret_cast<const T*>(places + place * place_bytes);
    }
};

// A thread loads the packs of so many members at once: they are the lowest levels of the tree.
inline constexpr unsigned levels_at_once = 3, packs_at_once = 1u << levels_at_once;

// Loads the values from number `i` on of up to `Members` members, and combines them.
template <unsigned Members, class Pack, class T, class Op>
DCUDA_DEVICE Pack combine_some(const slice_values<T>& values, std::uint32_t first, std::uint32_t end, std::size_t i,
                               const Op& op) {
    Pack loaded[Members];
    DCUDA_UNROLL
    for (unsigned k = 0; k < Members; ++k) loaded[k].load(values.of(first + k < end ? first + k : end - 1) + i);
    DCUDA_UNROLL
    for (unsigned step = 1; step < Members; step *= 2) {
        DCUDA_UNROLL
        for (unsigned k = 0; k + step < Members; k += 2 * step)
            if (first + k + step < end) loaded[k].combine(loaded[k + step], op);
    }
    return loaded[0];
}

// Of one or two members: several packs at once. All threads of the rank.
template <unsigned Values, class T, class Op>
DCUDA_COLD void combine_two(shared_state shared, const slice_values<T>& values, T* target, std::size_t count,
                            const Op& op) {
    using pack_type = pack<T, Values>;
    constexpr unsigned packs = 2; // PERF: with more, kernels of 64 registers a thread spill them
    const piece_team team(shared.get().group(), SIZE_MAX);
    const std::size_t stride = std::size_t(team.threads()) * Values;
    if (!team.works()) return;
    DCUDA_NO_UNROLL
    for (std::size_t i = std::size_t(team.thread()) * Values; i < count; i += packs * stride) {
        pack_type results[packs];
        DCUDA_UNROLL
        for (unsigned k = 0; k < packs; ++k)
            results[k] = combine_some<2, pack_type>(values, values.first, values.end,
                                                    i + k * stride < count ? i + k * stride : i, op);
        DCUDA_UNROLL
        for (unsigned k = 0; k < packs; ++k)
            if (i + k * stride < count) results[k].store(target + i + k * stride);
    }
}

// Of many. All threads of the rank.
template <unsigned Values, class T, class Op>
DCUDA_COLD void combine_many(shared_state shared, communicator number, const slice_values<T>& values, T* target,
                             std::size_t count, const Op& op) {
    using pack_type = pack<T, Values>;
    rank_state& state = shared.get();
    const communicator_record& comm = *find_communicator(state, number);
    const piece_team team(state.group(), SIZE_MAX);
    if (!team.works()) return;
    pack_tree<pack_type, Op, 7> devices(op);                              // at most 64
    pack_tree<pack_type, Op, bounce_levels - levels_at_once> members(op); // of packs_at_once each
    const std::uint32_t groups = values.by_device ? comm.shape.devices : 1;
    DCUDA_NO_UNROLL
    for (std::size_t i = std::size_t(team.thread()) * Values; i < count; i += std::size_t(team.threads()) * Values) {
        DCUDA_NO_UNROLL
        for (std::uint32_t group = 0; group < groups; ++group) {
            const member_range all = values.by_device ? exchange_stage::of_device(state, comm, group)
                                                      : member_range{values.first, values.end, 1};
            DCUDA_NO_UNROLL
            for (std::uint32_t first = all.first; first < all.end; first += packs_at_once)
                members.add(combine_some<packs_at_once, pack_type>(values, first, all.end, i, op));
            devices.add(members.take_result());
        }
        devices.take_result().store(target + i);
    }
}

// Combines a slice. All threads of the rank.
template <class T, class Op>
DCUDA_COLD void combine_slice(shared_state shared, communicator comm, slice_values<T> values, T* target,
                              std::size_t count, const Op& op) {
    const bool in_packs = pack_values<T> > 1 && is_aligned(values.own) && is_aligned(target);
    const std::size_t packed = in_packs ? count / pack_values<T> * pack_values<T> : 0;
    const bool are_many = values.end - values.first > 2;
    if (packed != 0) {
        if (are_many)
            combine_many<pack_values<T>>(shared, comm, values, target, packed, op);
        else
            combine_two<pack_values<T>>(shared, values, target, packed, op);
    }
    if (packed == count) return;
    values.places += packed * sizeof(T);
    values.own += values.own == nullptr ? 0 : packed;
    if (are_many)
        combine_many<1>(shared, comm, values, target + packed, count - packed, op);
    else
        combine_two<1>(shared, values, target + packed, count - packed, op);
}

// How a part of an array, from a value on, is cut into slices.
struct slice_layout {
    std::size_t first, slice, count; // values: before the part, of a slice, of the array

    // `room`: values that a place has room for.
    template <class T>
    DCUDA_DEVICE static slice_layout make(std::size_t first, std::size_t count, std::uint32_t slices,
                                          std::size_t room) {
        // As long as the array has so many values slices lie in it as in memory lines.
        constexpr std::size_t line = 16 * pack_values<T>;
        const std::size_t even = ((count - first + slices - 1) / slices + line - 1) / line * line;
        return {first, even < room ? even : room, count};
    }
    DCUDA_DEVICE std::size_t begin_of(std::uint32_t number) const { return first + number * slice; }
    DCUDA_DEVICE std::size_t length_of(std::uint32_t number) const {
        return begin_of(number) >= count ? 0 : count - begin_of(number) < slice ? count - begin_of(number) : slice;
    }
};

// Copies slices, of which each lies in a place of its own, to where they belong. All threads of the rank.
template <class T>
DCUDA_DEVICE void copy_slices(rank_state& state, const slice_layout& part, std::uint32_t slices,
                              const std::byte* places, std::size_t place_bytes, T* out) {
    const piece_team team(state.group(), part.slice * sizeof(T));
    if (!team.works()) return;
    for (std::uint32_t number = team.number; number < slices; number += team.teams)
        if (part.length_of(number) != 0)
            exec::copy_bytes(team, reinterpret_cast<std::byte*>(out + part.begin_of(number)),
                             places + number * place_bytes, part.length_of(number) * sizeof(T));
}

// Whether an array goes as combine_by_devices says.
template <class T>
DCUDA_DEVICE bool goes_by_devices(const communicator_record& comm, const slice_request& request) {
    const exchange_shape& shape = comm.shape;
    return std::is_same_v<accumulator_t<T>, T> && shape.spans_network != 0 && shape.is_even != 0 && shape.width > 1 &&
           request.where != operation::reduce_scatter && !request.by_number;
}

// Over a network: a slice for each member of a device. Each combines its slice of what the members of its device have;
// then those with the same slice on all devices exchange and combine that; and the members of each device share what
// came of it. So a device sends the others the array once, not once for each of its members. A root sends members of
// all devices their slices, and these share them. Devices have as many members each. Values whose sums are rounded go
// the other way: they would be rounded twice. All threads of the rank, all members, when all have begun.
template <class T, class Op>
DCUDA_COLD void combine_by_devices(shared_state shared, const slice_request& request, bounce_exchange by, T* out,
                                   const T* in, const Op& op) {
    rank_state& state = shared.get();
    const communicator_record& comm = *find_communicator(state, request.comm);
    const exchange_shape& shape = comm.shape;
    const std::uint32_t slices = shape.members;
    const member_range on_device{shape.before, shape.before + slices, 1}, alike{shape.member, by.members, slices};
    const bool broadcasts = request.where == operation::broadcast, is_root = comm.number == request.root;
    by.order = place_order::processes;
    by.place = shape.before + shape.member;
    // Places are those of the members of a device, or of devices.
    by.place_bytes = bounce_place_bytes(state, slices < shape.devices ? shape.devices : slices);
    const std::size_t count = request.count, room = by.place_bytes / sizeof(T) / pack_values<T> * pack_values<T>;
    // A place for the step that is stored next, or that has come.
    const auto place_at = [&](std::uint32_t step, std::uint32_t place) {
        return bounce_places(state, state.world_rank, step) + place * by.place_bytes;
    };
    for (std::size_t first = 0; first < count;) {
        const slice_layout part = slice_layout::make<T>(first, count, slices, room);
        const std::size_t length = part.length_of(shape.member), slice_bytes = part.slice * sizeof(T);
        outgoing_pieces pieces{reinterpret_cast<const std::byte*>(in == nullptr ? nullptr : in + first), slice_bytes,
                               slice_bytes, (count - first) * sizeof(T), false};
        pieces.stored_at = broadcasts ? 0 : shape.member;
        pieces.places = on_device;
        if (!broadcasts) {
            exec::far(store_pieces)(state, by, pieces, 0);
        } else if (is_root) {
            for (pieces.places = {0, slices, 1}; pieces.places.first < by.members;
                 pieces.places = {pieces.places.end, pieces.places.end + slices, 1})
                exec::far(store_pieces)(state, by, pieces, 0);
        }
        end_step(state, by);
        // Where nobody else stores in the next step.
        T* result = reinterpret_cast<T*>(place_at(by.step, broadcasts ? shape.member : shape.device));
        slice_values<T> values{place_at(by.step - 1, 0),
                               by.place_bytes,
                               in == nullptr ? nullptr : in + part.begin_of(shape.member),
                               !broadcasts ? shape.member
                               : is_root   ? 0
                                           : no_rank,
                               0,
                               broadcasts ? 1 : slices,
                               false};
        if (length != 0) combine_slice(state, request.comm, values, result, length, op);
        state.group().sync(); // all threads have combined
        if (!broadcasts) {
            pieces = {reinterpret_cast<const std::byte*>(result), 0, length * sizeof(T)};
            pieces.places = alike;
            pieces.stored_at = shape.device;
            exec::far(store_pieces)(state, by, pieces, 0);
            end_step(state, by);
            values.places = place_at(by.step - 1, 0);
            values.own = result;
            values.own_place = shape.device;
            values.end = shape.devices;
            result = reinterpret_cast<T*>(place_at(by.step, shape.member));
            if (length != 0) combine_slice(state, request.comm, values, result, length, op);
            state.group().sync();
        }
        pieces = {reinterpret_cast<const std::byte*>(result), 0, length * sizeof(T)};
        pieces.places = on_device;
        pieces.stored_at = shape.member;
        if (request.where == operation::reduce) pieces.only = request.root;
        exec::far(store_pieces)(state, by, pieces, 0);
        end_step(state, by);
        if (out != nullptr) copy_slices(state, part, slices, place_at(by.step - 1, 0), by.place_bytes, out);
        first += part.slice * slices;
    }
    state.group().sync();
}

// A slice for each member, or of two members the whole for each. All threads of the rank, all members, when all have
// begun.
template <class T, class Op>
DCUDA_COLD void combine_by_members(shared_state shared, const slice_request& request, bounce_exchange by, T* out,
                                   const T* in, const Op& op) {
    rank_state& state = shared.get();
    const communicator_record& comm = *find_communicator(state, request.comm);
    const bool broadcasts = request.where == operation::broadcast,
               scatters = request.where == operation::reduce_scatter;
    const std::size_t room = by.place_bytes / sizeof(T) / pack_values<T> * pack_values<T>, count = request.count;
    slice_values<T> values{nullptr,
                           by.place_bytes,
                           nullptr,
                           by.place,
                           broadcasts ? request.root : 0,
                           broadcasts ? request.root + 1 : by.members,
                           by.order == place_order::processes && comm.shape.devices > 1 && comm.shape.width > 1};
    const bool is_root = comm.number == request.root, brings = !broadcasts || is_root;
    // Combines what the step before has brought.
    const auto combine = [&](const T* own, T* target, std::size_t length) {
        values.places = bounce_places(state, state.world_rank, by.step - 1);
        values.own = own;
        if (length != 0) combine_slice(state, request.comm, values, target, length, op);
    };

    if (scatters || by.members <= 2) {
        const bool combines = out != nullptr && !(broadcasts && is_root);
        for (std::size_t first = 0; first < count; first += room) {
            const std::size_t length = count - first < room ? count - first : room;
            const T* const part = in == nullptr ? nullptr : in + first;
            if (brings)
                exec::far(store_pieces)(state, by,
                                        outgoing_pieces{reinterpret_cast<const std::byte*>(part),
                                                        scatters ? count * sizeof(T) : 0, length * sizeof(T)},
                                        0);
            end_step(state, by);
            const std::size_t own = scatters ? comm.number * count : 0;
            if (combines) combine(in == nullptr ? nullptr : part + own, out + first, length);
        }
        return state.group().sync();
    }
    for (std::size_t first = 0; first < count;) {
        const slice_layout part = slice_layout::make<T>(first, count, by.members, room);
        const std::size_t length = part.length_of(by.place), slice_bytes = part.slice * sizeof(T);
        outgoing_pieces pieces{reinterpret_cast<const std::byte*>(in == nullptr ? nullptr : in + first), slice_bytes,
                               slice_bytes, (count - first) * sizeof(T), false};
        if (brings) exec::far(store_pieces)(state, by, pieces, 0);
        end_step(state, by);
        // In this rank's own place for the next step, where nobody else stores.
        T* const result =
            reinterpret_cast<T*>(bounce_places(state, state.world_rank, by.step) + by.place * by.place_bytes);
        combine(in == nullptr ? nullptr : in + part.begin_of(by.place), result, length);
        state.group().sync(); // all threads have combined
        pieces = {reinterpret_cast<const std::byte*>(result), 0, length * sizeof(T)};
        if (request.where == operation::reduce) pieces.only = request.root;
        exec::far(store_pieces)(state, by, pieces, 0);
        end_step(state, by);
        if (out != nullptr)
            copy_slices(state, part, by.members, bounce_places(state, state.world_rank, by.step - 1), by.place_bytes,
                        out);
        first += part.slice * by.members;
    }
    state.group().sync();
}

// All members begin. All threads of the rank.
DCUDA_COLD bounce_exchange begin_slices(shared_state shared, const slice_request& request, std::uint32_t value_bytes) {
    const bool in_order = request.by_number || request.where == operation::broadcast;
    std::uint64_t nothing = 0;
    return begin_bounce(
        shared.get(), value_bytes, {request.where, request.comm, request.digest, request.by_number, 1, request.root},
        in_order ? place_order::numbers : place_order::processes, [](const lead_warp&) { return std::uint64_t{0}; },
        nothing);
}

// All threads of the rank, all members. PERF: a small frame on the stack, below those of the ways.
template <class T, class Op>
DCUDA_COLD void combine_slices(shared_state shared, const slice_request& request, T* out, const T* in, const Op op) {
    rank_state& state = shared.get();
    const bounce_exchange by = exec::far(begin_slices)(state, request, sizeof(T));
    if (goes_by_devices<T>(*find_communicator(state, request.comm), request))
        exec::far(combine_by_devices<T, Op>)(state, request, by, out, in, op);
    else
        exec::far(combine_by_members<T, Op>)(state, request, by, out, in, op);
}

} // namespace dcuda::detail
