// SPDX-License-Identifier: BSD-3-Clause
/// @file
/// What the ranks of a communicator do together: barriers, reductions, and moves of data. Programs include dcuda.hpp,
/// and call these functions of dcuda::rank.
#pragma once

#include "dcuda/windows.hpp"

namespace dcuda {

/// The collective operations of a rank; a base of rank.
class rank_with_collectives : public rank_with_windows {
public:
    /// Waits until all ranks of the communicator have called it. All threads of all these ranks call it. On return all
    /// of them see what any of them wrote before, and their puts to each other have arrived; a notified put has arrived
    /// at least as far as its target can see. What any of them has put or got over a network is complete. So is what
    /// was put without a notification over bytes of small notified puts: a barrier of `device`, `node` or of a
    /// communicator that split has made may wait for its target, which need not be a member, until that calls the
    /// library. A communicator that does not exist ends the run (error_code::device_fault). So do, in a barrier of
    /// `node` or of a communicator that split has made, a member that calls something else, and a member outside the
    /// first 64 processes.
    DCUDA_DEVICE void barrier(communicator comm) {
        detail::perform<detail::barrier_operation>(self_, is_profiled(), comm);
    }

    /// Combines one value of each member, and returns the result to all threads of all members. All threads of all
    /// members call it. All threads of a rank give the same value: it is one value of the rank, not one of each thread.
    /// T is any trivially copyable type of at most 24 bytes, among them integers and floating point types; `op` is one
    /// of operators.hpp, or a commutative function object that takes two T and returns one. 16-bit floating point
    /// values are combined as float, and rounded once.
    ///
    /// The result has the same bits on all members and in every run. Values are combined in pairs. On each device the
    /// members' values are combined in the order of their numbers: first 0 with 1, 2 with 3 and so on, then these
    /// results with each other. Then the results of the devices are combined in the same way. A value without a partner
    /// goes on alone. With by_rank(op) there is one such tree over all members, whatever devices they are on.
    ///
    /// It orders nothing: on return a member need not see what others wrote before, and must not yet overwrite what
    /// others read before. All threads of the rank meet in it. While a rank waits for others, it takes messages that
    /// arrive. The run ends (error_code::device_fault) if one member calls something else, or uses another type,
    /// operator or root (1 of 128 such differences is not noticed), and if a member is in none of the first 64
    /// processes.
    template <class T, class Op>
    DCUDA_DEVICE T allreduce(communicator comm, T value, Op op) {
        static_assert(detail::is_plain<T> && sizeof(T) <= detail::unit_bytes,
                      "values to reduce must be trivially copyable, and have at most 24 bytes");
        return detail::perform<detail::allreduce_value_operation<T, Op>>(self_, is_profiled(), comm, value, op);
    }
    /// allreduce of an array: combines each of the `count` values at `in` with the values at the same place of the
    /// other members, and stores the results at `out`. `out` is `in`, or does not overlap it. Both are shared or global
    /// memory, and neither needs a window. All threads of all members call it, with the same count. On return all
    /// threads of the rank may read the results, and `in` may be changed. The run ends as in the allreduce of a value,
    /// and if counts differ, the arrays overlap or are one thread's own memory, or more than 32,768 members reduce a
    /// large array (error_code::device_fault).
    template <class T, class Op>
    DCUDA_DEVICE void allreduce(communicator comm, T* out, const std::type_identity_t<T>* in, std::size_t count,
                                Op op) {
        static_assert(detail::is_plain<T> && sizeof(T) <= detail::unit_bytes,
                      "values to reduce must be trivially copyable, and have at most 24 bytes");
        detail::perform<detail::allreduce_array_operation<T, Op>>(self_, is_profiled(), comm, out, in, count, op);
    }
    /// Starts an allreduce of a value, which finish_allreduce ends. The rank's value leaves now, and the rank does
    /// something else while the values of other members are on their way. The call waits for nobody. Callers, types,
    /// operators, result and errors are those of allreduce. A communicator can have one started operation at a time:
    /// until that is finished, there may be no other collective operation on the communicator, except barriers of world
    /// and device. An operation that is not finished when the kernel ends ends the run, too (error_code::device_fault).
    template <class T, class Op>
    DCUDA_DEVICE started_value<T, Op> start_allreduce(communicator comm, T value, Op op) {
        static_assert(detail::is_plain<T> && sizeof(T) <= detail::unit_bytes,
                      "values to reduce must be trivially copyable, and have at most 24 bytes");
        using start = detail::start_value_operation<T, Op>;
        return {comm, value, op, detail::perform<start>(self_, is_profiled(), comm, value, op)};
    }
    /// Starts an allreduce of an array. Until finish_allreduce has returned, nobody changes `in`, and nobody reads or
    /// writes `out`. Of a small array, what one exchange takes (a few hundred bytes with 8 members) leaves now, and the
    /// rest in finish_allreduce. Of an array that goes through bounce buffers (from DCUDA_BOUNCE_BYTES on; with many
    /// members from a quarter of that on; over a network from less on) all leaves in finish_allreduce. Everything else
    /// is as for a value, with the errors of the allreduce of an array.
    template <class T, class Op>
    DCUDA_DEVICE started_array<T, Op> start_allreduce(communicator comm, T* out, const std::type_identity_t<T>* in,
                                                      std::size_t count, Op op) {
        static_assert(detail::is_plain<T> && sizeof(T) <= detail::unit_bytes,
                      "values to reduce must be trivially copyable, and have at most 24 bytes");
        using start = detail::start_array_operation<T, Op>;
        return {comm, out, in, count, op, detail::perform<start>(self_, is_profiled(), comm, out, in, count, op)};
    }
    /// Ends an allreduce that start_allreduce has started: waits for the values of the other members, and returns the
    /// result to all threads of the rank. All threads of the rank call it, with what start_allreduce has returned. Like
    /// allreduce, it may wait until all members have called it. So all members finish several operations in the same
    /// order, and no member delays its call until another member has done something after its own call.
    /// A member that has started nothing may call allreduce instead. An operation that was not started, or is finished
    /// already, ends the run (error_code::device_fault).
    template <class T, class Op>
    DCUDA_DEVICE T finish_allreduce(const started_value<T, Op>& started) {
        using finish = detail::finish_value_operation<T, Op>;
        return detail::perform<finish>(self_, is_profiled(), started.comm, started.value, started.op, started.start);
    }
    /// The same of an array: all threads of the rank read the results at `out` on return.
    template <class T, class Op>
    DCUDA_DEVICE void finish_allreduce(const started_array<T, Op>& started) {
        using finish = detail::finish_array_operation<T, Op>;
        detail::perform<finish>(self_, is_profiled(), started.comm, started.out, started.in, started.count, started.op,
                                started.start);
    }
    /// allreduce of an array with results for one member only, the one with number `root`; the other members may give a
    /// null `out`. All threads of all members call it, with the same count and root. Types, operators, guarantees and
    /// errors are those of the allreduce of an array; a `root` that is no member also ends the run
    /// (error_code::device_fault).
    template <class T, class Op>
    DCUDA_DEVICE void reduce(communicator comm, T* out, const std::type_identity_t<T>* in, std::size_t count, Op op,
                             int root) {
        static_assert(detail::is_plain<T> && sizeof(T) <= detail::unit_bytes,
                      "values to reduce must be trivially copyable, and have at most 24 bytes");
        detail::perform<detail::reduce_operation<T, Op>>(self_, is_profiled(), comm, out, in, count, op, root);
    }
    /// Returns the value of the member with number `root` to all threads of all members. All threads of all members
    /// call it, with the same root. T is any trivially copyable type of at most 24 bytes. Guarantees and errors are
    /// those of allreduce; a `root` that is no member also ends the run (error_code::device_fault).
    template <class T>
    DCUDA_DEVICE T broadcast(communicator comm, T value, int root) {
        static_assert(detail::is_plain<T> && sizeof(T) <= detail::unit_bytes,
                      "a value to broadcast must be trivially copyable, and have at most 24 bytes");
        return detail::perform<detail::broadcast_value_operation<T>>(self_, is_profiled(), comm, value, root);
    }
    /// broadcast of an array: the member with number `root` has `count` values at `data`, and each other member gets
    /// them at its own `data`. A value may have any size. All threads of all members call it, with the same count and
    /// root. On return all threads of each member may read the values. Errors are those of the allreduce of an array; a
    /// `root` that is no member ends the run, too.
    template <class T>
    DCUDA_DEVICE void broadcast(communicator comm, T* data, std::size_t count, int root) {
        static_assert(detail::is_plain<T>, "values to broadcast must be trivially copyable, and not const");
        detail::perform<detail::broadcast_array_operation<T>>(self_, is_profiled(), comm, data, count, root);
    }

    /// Combines arrays of size(comm) * count values, each value with those at the same place of the other members, and
    /// gives each member its part of the results: member i gets the `count` values from number i * count on, at `out`.
    /// `out` is `in`, or does not overlap it. All threads of all members call it, with the same count. The results have
    /// the same bits as those of allreduce; guarantees and errors are those of the allreduce of an array, for up to
    /// 32,768 members.
    template <class T, class Op>
    DCUDA_DEVICE void reduce_scatter(communicator comm, T* out, const std::type_identity_t<T>* in, std::size_t count,
                                     Op op) {
        static_assert(detail::is_plain<T> && sizeof(T) <= detail::unit_bytes,
                      "values to reduce must be trivially copyable, and have at most 24 bytes");
        detail::perform<detail::reduce_scatter_operation<T, Op>>(self_, is_profiled(), comm, out, in, count, op);
    }
    /// Combines the values of the members with numbers up to this rank's own, its own among them, and returns the
    /// result to all threads of the rank. Values are combined in pairs in the order of numbers, as allreduce does with
    /// by_rank: the result has the same bits in every run and for any number of devices. All threads of all members
    /// call it, and there may be up to 32,768 members. Types, operators, guarantees and errors are those of allreduce.
    template <class T, class Op>
    DCUDA_DEVICE T scan(communicator comm, T value, Op op) {
        static_assert(detail::is_plain<T> && sizeof(T) <= detail::unit_bytes,
                      "values to scan must be trivially copyable, and have at most 24 bytes");
        return detail::perform<detail::scan_operation<detail::operation::scan, T, Op>>(self_, is_profiled(), comm,
                                                                                       value, op, value);
    }
    /// scan without the rank's own value: combines the values of the members before this rank. Member 0 gets
    /// `identity`. Callers, guarantees and errors are those of scan.
    template <class T, class Op>
    DCUDA_DEVICE T exclusive_scan(communicator comm, T value, Op op, std::type_identity_t<T> identity) {
        static_assert(detail::is_plain<T> && sizeof(T) <= detail::unit_bytes,
                      "values to scan must be trivially copyable, and have at most 24 bytes");
        return detail::perform<detail::scan_operation<detail::operation::exclusive_scan, T, Op>>(
            self_, is_profiled(), comm, value, op, identity);
    }

    /// Brings `count` values of each member to the member with number `root`: the values at `in` of member i go to
    /// out + i * count at the root. Other members may give a null `out`. If the root's own values lie in place already
    /// (`in` is out + root * count), they stay; else `in` and `out` do not overlap. Both are shared or global memory,
    /// and neither needs a window. All threads of all members call it, with the same count and root. On return all
    /// threads of the root may read the values, and `in` may be changed. It orders nothing else.
    ///
    /// The run ends (error_code::device_fault) if one member calls something else, or uses another count, type or root
    /// (1 of 128 such differences is not noticed); if `root` is no member; if memory overlaps otherwise, or is one
    /// thread's own; and if there are more than 32,768 members, or members outside the first 64 processes.
    template <class T>
    DCUDA_DEVICE void gather(communicator comm, T* out, const std::type_identity_t<T>* in, std::size_t count,
                             int root) {
        static_assert(detail::is_plain<T>, "values to gather must be trivially copyable, and not const");
        detail::perform<detail::move_operation<detail::operation::gather, T>>(self_, is_profiled(), comm, out, in,
                                                                              count, root);
    }
    /// gather with results at all members: the values at `in` of member i go to out + i * count everywhere. A member's
    /// own values stay if they lie in place already. All threads of all members call it, with the same count;
    /// guarantees and errors are those of gather.
    template <class T>
    DCUDA_DEVICE void all_gather(communicator comm, T* out, const std::type_identity_t<T>* in, std::size_t count) {
        static_assert(detail::is_plain<T>, "values to gather must be trivially copyable, and not const");
        detail::perform<detail::move_operation<detail::operation::all_gather, T>>(self_, is_profiled(), comm, out, in,
                                                                                  count, 0);
    }
    /// The reverse of gather: the member with number `root` has `count` values for each member at `in`, those for
    /// member i at in + i * count, and each member gets its own values at `out`. Other members may give a null `in`. On
    /// return all threads of each member may read the values, and the root may change `in`. Callers, memory and errors
    /// are as for gather.
    template <class T>
    DCUDA_DEVICE void scatter(communicator comm, T* out, const std::type_identity_t<T>* in, std::size_t count,
                              int root) {
        static_assert(detail::is_plain<T>, "values to scatter must be trivially copyable, and not const");
        detail::perform<detail::move_operation<detail::operation::scatter, T>>(self_, is_profiled(), comm, out, in,
                                                                               count, root);
    }
    /// Each member has `count` values for each member at `in`, those for member i at in + i * count, and gets as many
    /// from each at `out`, in the same order. `in` and `out` do not overlap. As gather otherwise.
    template <class T>
    DCUDA_DEVICE void all_to_all(communicator comm, T* out, const std::type_identity_t<T>* in, std::size_t count) {
        static_assert(detail::is_plain<T>, "values to exchange must be trivially copyable, and not const");
        detail::perform<detail::move_operation<detail::operation::all_to_all, T>>(self_, is_profiled(), comm, out, in,
                                                                                  count, 0);
    }
    /// gather in which members bring different numbers of values: counts[i] values of member i go to
    /// out + displacements[i]. Counts and displacements are in elements. Only the root's arrays `counts` and
    /// `displacements` are read; all of its threads may read them, and nobody changes them during the call. `count` is
    /// the number of values that this member brings; the run ends if the root expects another number
    /// (error_code::device_fault). `in` and `out` do not overlap, which is not checked here. Callers, guarantees and
    /// other errors are those of gather.
    template <class T>
    DCUDA_DEVICE void gather_v(communicator comm, T* out, const std::size_t* counts, const std::size_t* displacements,
                               const std::type_identity_t<T>* in, std::size_t count, int root) {
        static_assert(detail::is_plain<T>, "values to gather must be trivially copyable, and not const");
        detail::perform<detail::move_differing_operation<detail::operation::gather, T>>(
            self_, is_profiled(), comm, root, out, in,
            detail::differing_pieces{count, counts, displacements, nullptr, nullptr});
    }
    /// gather_v to all members, which all have the arrays.
    template <class T>
    DCUDA_DEVICE void all_gather_v(communicator comm, T* out, const std::size_t* counts,
                                   const std::size_t* displacements, const std::type_identity_t<T>* in,
                                   std::size_t count) {
        static_assert(detail::is_plain<T>, "values to gather must be trivially copyable, and not const");
        detail::perform<detail::move_differing_operation<detail::operation::all_gather, T>>(
            self_, is_profiled(), comm, 0, out, in,
            detail::differing_pieces{count, counts, displacements, nullptr, nullptr});
    }
    /// all_to_all in which members get different numbers of values: counts[i] values for member i, from
    /// in + displacements[i]. The values that member i sends to this member go to out + out_displacements[i], and
    /// received[i] gets their number; so nobody need know it before. There must be room at `out`: the library does not
    /// check that. `received` may be null. All numbers are in elements. All threads of all members call it, each member
    /// with arrays of its own. Guarantees and other errors are those of gather_v.
    template <class T>
    DCUDA_DEVICE void all_to_all_v(communicator comm, T* out, const std::size_t* out_displacements,
                                   const std::type_identity_t<T>* in, const std::size_t* counts,
                                   const std::size_t* displacements, std::size_t* received) {
        static_assert(detail::is_plain<T>, "values to exchange must be trivially copyable, and not const");
        detail::perform<detail::move_differing_operation<detail::operation::all_to_all, T>>(
            self_, is_profiled(), comm, 0, out, in,
            detail::differing_pieces{0, counts, displacements, out_displacements, received});
    }

    /// @cond
protected:
    using rank_with_windows::rank_with_windows;
    ~rank_with_collectives() = default;
    /// @endcond
};

} // namespace dcuda
