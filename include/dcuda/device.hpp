// SPDX-License-Identifier: BSD-3-Clause
/// @file
/// The device side: what a rank does inside a running kernel.
#pragma once

#include "dcuda/detail/ops/operations.hpp"
#include "dcuda/types.hpp"

#include <initializer_list>
#include <type_traits>

#if !defined(__CUDA_ARCH__)
namespace dcuda::detail {
[[gnu::used]] static void (*const same_headers_as_the_library)() =
    this_program_was_compiled_with_headers_of_another_dcuda<fingerprint>;
} // namespace dcuda::detail
#endif

namespace dcuda {

namespace detail {

template <class Element>
inline constexpr bool is_plain = std::is_trivially_copyable_v<Element> && !std::is_const_v<Element>;

// A value that every thread of the rank has for itself, in words as messages are read.
template <class Element>
struct alignas(alignof(Element) > 4 ? alignof(Element) : 4) value_to_put {
    Element value;
};

} // namespace detail

/// What the library keeps of a rank, in its block's shared memory: `__shared__ dcuda::state state;`
using state = detail::rank_state;

/// A rank: the calling thread block, or a part of it. Construct one at the top of the kernel, in all threads of the
/// rank. Unless a function says "any thread" or "any single thread", all threads of the rank call it, with the same
/// arguments, like __syncthreads().
///
/// A violated contract (bounds, rank, tag, window) ends the run: runtime::run throws and names rank and operation.
///
/// Order: puts and notifications from one rank to one other rank arrive in the order in which they were issued. A
/// notification is seen only after the data of every earlier put of its source to that rank. Nothing orders
/// notifications of different sources. Notifications order puts, not ordinary stores: to memory that ranks of a device
/// share by pointers, use barrier(device), or flush() before notify().
class rank {
public:
    /// All threads of the rank, all ranks; `from_host` is the kernel's first argument, `shared` lies in the block's
    /// shared memory. Waits for all ranks of the system.
    DCUDA_DEVICE rank(context from_host, state& shared)
        : self_(detail::init(from_host, shared)), profiled_(from_host.profiled) {}

#if DCUDA_PARTS
    /// A rank that is a part of its block, of which the launch says how many there are
    /// (launch_config::ranks_per_block). World rank: the first of the device + block * ranks_per_block + part.index.
    /// All threads of the part, all ranks, each with a state of its own; other threads of the block need not come here.
    /// It waits for all threads of the part: dcuda-top and `kill -QUIT` show how many of them are missing.
    /// Threads of the rank meet at a hardware barrier of their own, or as a warp: nothing that the rank does waits for
    /// other threads of the block. A part that is no whole warps, leaves the block, or overlaps another, an index that
    /// is not below ranks_per_block, and a barrier that another part uses end the run (error_code::device_fault). With
    /// -DDCUDA_PARTS=1.
    DCUDA_DEVICE rank(context from_host, state& shared, const part& own)
        : self_(detail::init(from_host, shared, own)), profiled_(from_host.profiled) {}
#endif

    /// All threads of the rank, all ranks. Waits for all ranks of the system: no rank ends while another may still put
    /// into its windows.
    DCUDA_DEVICE ~rank() noexcept(false) { finish(); }
    rank(const rank&) = delete;
    rank& operator=(const rank&) = delete;

    /// Ends the rank before the destructor does. All threads of the rank, all ranks. Nothing but the destructor may
    /// follow.
    DCUDA_DEVICE void finish() { detail::finish(self_.state()); }

    /// Number of the calling thread among those of the rank, from 0 in the order of the block. Any single thread may
    /// call it.
    DCUDA_DEVICE unsigned thread() const { return self_.state().group().thread_in_order(); }
    /// How many threads the rank has. Any single thread may call it.
    DCUDA_DEVICE unsigned threads() const { return self_.group().threads(); }
    /// The rank's threads meet: __syncthreads() of a rank, whether it is its block or a part of it. All threads of the
    /// rank. What they wrote before is visible to all of them after, in shared and global memory.
    DCUDA_DEVICE void sync() const { self_.group().sync(); }

    // --- Communicators -----------------------------------------------------------------------------------------------

    /// This rank's number in the communicator, from 0; -1 if there is no such communicator, or the rank is no member.
    /// Any single thread may call it.
    DCUDA_DEVICE int id(communicator comm = world) const { return detail::comm_rank(self_.state(), comm); }
    /// The number of ranks in the communicator; 0 if there is none such. Any single thread may call it.
    DCUDA_DEVICE int size(communicator comm = world) const { return detail::comm_size(self_.state(), comm); }

    /// Makes communicators of the ranks of `parent`: those that give the same color form one, in the order of their
    /// keys, and of their numbers in parent where keys are equal. A rank that gives a negative color is in none, and
    /// gets `none`. All threads of all ranks of parent call it, each rank with its own color and key. One that makes
    /// all columns, the ranks with the same number on every device:
    ///
    ///     dcuda::communicator column = self.split(dcuda::world, self.id(dcuda::device), 0);
    ///
    /// Everything that takes a communicator takes the new one, but create_window: windows are of the world or a device,
    /// and translate() says where a member is there. A rank may be in 64 communicators at a time, `world`, `device` and
    /// `node` among them; one too many ends the run (error_code::device_fault), as does one for which a rank has
    /// no memory left: a communicator of thousands of ranks takes up to an eighth of what a rank has, one of few
    /// members a fiftieth. Its ranks are in the first 64 processes.
    DCUDA_DEVICE communicator split(communicator parent, int color, int key) {
        return detail::perform<detail::split_operation>(self_, is_profiled(), parent, color, key);
    }
    /// A communicator of `size` ranks of `parent`: number `first`, and each `stride` further. All threads of all ranks
    /// of parent call it, with the same arguments; those that are no members get `none`. Errors are those of split.
    DCUDA_DEVICE communicator split_strided(communicator parent, int first, int stride, int size) {
        const int distance = id(parent) - first;
        const bool is_member = stride == 0
                                   ? distance == 0 && size > 0
                                   : distance % stride == 0 && distance / stride >= 0 && distance / stride < size;
        return split(parent, is_member ? 0 : -1, stride == 0 ? 0 : distance / stride);
    }
    /// Ends a communicator that split has made. All threads of all members call it. On return all of them have, and the
    /// number names nothing any more: its use ends the run.
    DCUDA_DEVICE void free_communicator(communicator comm) {
        detail::perform<detail::free_communicator_operation>(self_, is_profiled(), comm);
    }
    /// The number in `target` of the rank that has this number in `from`. -1: it has none, or this rank is not a member
    /// of both. Any single thread may call it.
    DCUDA_DEVICE int translate(communicator from, int number, communicator target) const {
        return detail::translate(self_.state(), from, number, target);
    }

    // --- Windows and puts --------------------------------------------------------------------------------------------

    /// Opens `bytes` bytes at `base` for puts by the ranks of the communicator. All of them call it; base and bytes may
    /// differ, bytes may be 0, and windows may overlap: how puts come into one of them, window_kind says. With several
    /// processes, base must be cudaMalloc memory (CPU backend: from its cudaMalloc). The window has no memory of its
    /// own: freeing it leaves the memory alone. On return all ranks of the communicator may put into it. One window too
    /// many (options::max_windows) ends the run (error_code::out_of_resources), unless options::windows_may_fail says
    /// that all ranks get a window that is false, and the host prints the reason. Memory that other processes cannot
    /// map ends the run, too (error_code::no_path), as do bytes at a null pointer (error_code::device_fault).
    DCUDA_DEVICE window create_window(communicator comm, void* base, std::size_t bytes,
                                      window_kind kind = window_kind::usual) {
        return detail::perform<detail::create_window_operation>(self_, is_profiled(), comm, base, bytes, kind);
    }

    /// Closes the window. All ranks of its communicator call it. On return all puts to it are complete, and its memory
    /// is the rank's own again. A window that is not open any more ends the run (error_code::device_fault).
    DCUDA_DEVICE void free_window(window win) {
        detail::perform<detail::free_window_operation>(self_, is_profiled(), win);
    }

    /// Copies `bytes` bytes at `source` to the window of `target` (its number in the window's communicator), `offset`
    /// bytes from the window's base. Reads the source when all threads of the rank have called it. Returns when issued:
    /// source may change after flush(), or after a notification that proves the arrival. Source and target ranges are
    /// the same (nothing is copied then) or do not overlap. Does not wait for the target, unless the put has more than
    /// 64 KiB and goes over bytes of small notified puts that the target has not taken. All threads of the rank call
    /// it; bounds that the window does not have, a wrong target or a closed window end the run
    /// (error_code::device_fault).
    DCUDA_DEVICE void put(window win, int target, std::size_t offset, std::size_t bytes, const void* source) {
        detail::perform<detail::put_operation>(self_, is_profiled(), win, target, offset, bytes, source);
    }

    /// put, then adds one to the target's counter of notifications with this tag. The data is in the window when the
    /// target has seen the notification, or when flush() of this rank or free_window() has returned; not earlier, if it
    /// is small (DCUDA_SMALL_PUT_BYTES) and the window is no direct one. The source of a small one may change when the
    /// block has met after the call; on GPUs that of any put of up to 1152 bytes by a rank of 32 threads or more. Tags
    /// count from 0 to options::tags - 1; others end the run (error_code::device_fault).
    DCUDA_DEVICE void put_notify(window win, int target, std::size_t offset, std::size_t bytes, const void* source,
                                 int tag) {
        detail::perform<detail::put_notify_operation>(self_, is_profiled(), win, target, offset, bytes, source, tag);
    }

    /// create_window over `count` elements at `base`: a window whose places count elements, with the same guarantees
    /// and errors. All ranks of the communicator call it, with one type.
    template <class Element>
    DCUDA_DEVICE typed_window<Element> create_typed_window(communicator comm, Element* base, std::size_t count,
                                                           window_kind kind = window_kind::usual) {
        static_assert(detail::is_plain<Element>, "elements of a window must be trivially copyable, and not const");
        return {create_window(comm, base, count * sizeof(Element), kind)};
    }
    /// free_window of a typed window.
    template <class Element>
    DCUDA_DEVICE void free_window(typed_window<Element> win) {
        free_window(win.bytes);
    }

    /// put of `count` elements at `source` to those of the target's window from number `index` on. What put guarantees
    /// holds; errors are told in bytes.
    template <class Element>
    DCUDA_DEVICE void put(typed_window<Element> win, int target, std::size_t index, std::size_t count,
                          const std::type_identity_t<Element>* source) {
        put(win.bytes, target, index * sizeof(Element), count * sizeof(Element), source);
    }
    /// put_notify of `count` elements at `source` to those of the target's window from number `index` on. What
    /// put_notify guarantees holds; errors are told in bytes.
    template <class Element>
    DCUDA_DEVICE void put_notify(typed_window<Element> win, int target, std::size_t index, std::size_t count,
                                 const std::type_identity_t<Element>* source, int tag) {
        put_notify(win.bytes, target, index * sizeof(Element), count * sizeof(Element), source, tag);
    }
    /// put_notify of one value to element `index` of the target's window. The value needs no memory, and nothing has to
    /// be flushed before the next one: every thread of the rank calls it with the same value, which has been read on
    /// return.
    template <class Element>
    DCUDA_DEVICE void put_value_notify(typed_window<Element> win, int target, std::size_t index,
                                       const std::type_identity_t<Element>& value, int tag) {
        const detail::value_to_put<Element> copy{value};
        put_notify(win, target, index, 1, &copy.value, tag);
    }
    /// put of one value, likewise; flush() or a later notification completes it.
    template <class Element>
    DCUDA_DEVICE void put_value(typed_window<Element> win, int target, std::size_t index,
                                const std::type_identity_t<Element>& value) {
        const detail::value_to_put<Element> copy{value};
        put(win, target, index, 1, &copy.value);
    }

    /// Returns when all earlier puts of this rank are complete: their data is in the targets' memory, for every rank
    /// that learns of it from this one, and their sources may change. Waits until targets have taken small notified
    /// puts, which they do in any operation; so two ranks may flush at the same time. All threads of the rank call it.
    DCUDA_DEVICE void flush(window win) { detail::perform<detail::flush_operation>(self_, is_profiled(), win); }
    /// flush of a typed window.
    template <class Element>
    DCUDA_DEVICE void flush(typed_window<Element> win) {
        flush(win.bytes);
    }

    // --- Notifications and waits -------------------------------------------------------------------------------------

    /// Adds one to the target's counter of notifications with this tag; the target sees it after all earlier puts of
    /// this rank to it. `target` is its number in the communicator. Returns when issued, and does not wait for the
    /// target.
    DCUDA_DEVICE void notify(int target, communicator comm, int tag) {
        detail::perform<detail::notify_operation>(self_, is_profiled(), target, comm, tag);
    }

    /// A notification that orders nothing: the target may see it before earlier puts of this rank, and may see none of
    /// their data when it has. It does not wait until these are stored, which a notify() after a direct put does. For
    /// signals that say all there is to know. Notifications of either kind arrive in the order in which they were
    /// issued, and are counted alike. As notify() otherwise.
    DCUDA_DEVICE void notify_relaxed(int target, communicator comm, int tag) {
        detail::perform<detail::notify_relaxed_operation>(self_, is_profiled(), target, comm, tag);
    }

    /// Waits until `count` notifications with this tag have arrived and consumes them. What their sources put before is
    /// then visible to all threads of the rank. Ends the run with an error after the runtime's wait_timeout, if one is
    /// set, and when nothing moves anywhere any more (deadlock). A tag that is
    /// none, or a negative count, ends it, too (error_code::device_fault).
    DCUDA_DEVICE void wait_notifications(int tag, int count) {
        detail::perform<detail::wait_operation>(self_, is_profiled(), tag, count);
    }

    /// wait_notifications for each of these, one after the other:
    ///
    ///     self.wait_all({{from_left, 1}, {from_right, 1}, {from_all, 3}});
    ///
    /// All threads of the rank call it, with the same list.
    DCUDA_DEVICE void wait_all(std::initializer_list<tag_count> all) {
        for (const tag_count& each : all) wait_notifications(each.tag, each.count);
    }

    /// Waits until a notification has arrived with one of the tags from `first_tag` on, `tags` of them; consumes it,
    /// and returns its tag, the same to all threads. Fair: of the tags whose notifications are there already it takes
    /// the first one after the tag that it returned last. What the source put before is visible to all threads of the
    /// rank then. The time that it takes grows with `tags`. All threads of the rank call it; ends the run as
    /// wait_notifications does, and if not all of these are tags (error_code::device_fault).
    DCUDA_DEVICE int wait_any(int first_tag, int tags) {
        return detail::perform<detail::wait_any_operation>(self_, is_profiled(), first_tag, tags);
    }

    /// wait_any for all at once: waits until there is a notification with one of these tags, consumes one of each tag
    /// that has any, and returns how many tags those are. `arrived` has room for `tags` numbers and gets these tags, in
    /// their order; it is the same memory for all threads of the rank, shared or global
    /// (error_code::device_fault if it is a thread's own), and they may read it on return.
    DCUDA_DEVICE int wait_some(int first_tag, int tags, int* arrived) {
        return detail::perform<detail::wait_some_operation>(self_, is_profiled(), first_tag, tags, arrived);
    }

    /// wait_notifications for those that this member of the communicator has issued; those of others with the tag stay
    /// for their own waits. The tag is one of the last ones, which are matched by source (options::match_sources): it
    /// serves this wait only, and notifications with it take the slow path of their source. All threads of the rank
    /// call it; ends the run as wait_notifications does, and if there is no such member, or the tag is another
    /// (error_code::device_fault).
    DCUDA_DEVICE void wait_notifications_from(int source, communicator comm, int tag, int count) {
        detail::perform<detail::wait_from_operation>(self_, is_profiled(), source, comm, tag, count);
    }

    /// wait_notifications for at most so many nanoseconds: false if not as many have arrived in that time; then nothing
    /// is consumed, and the run goes on. With 0 it looks once. Neither wait_timeout nor the watchdog ends it. All
    /// threads of the rank call it and get the same answer; errors as of wait_notifications.
    DCUDA_DEVICE bool wait_notifications_for(int tag, int count, std::uint64_t nanoseconds) {
        return detail::perform<detail::wait_for_operation>(self_, is_profiled(), tag, count, nanoseconds);
    }

    /// How many notifications with this tag have arrived that no wait has consumed; consumes none. What their sources
    /// put before is visible when they are consumed. All threads of the rank call it and get the same number. A tag
    /// that is none ends the run (error_code::device_fault).
    DCUDA_DEVICE int pending_notifications(int tag) const {
        return detail::perform<detail::pending_operation>(self_, is_profiled(), tag);
    }

    /// The same as wait_notifications, and true, if they have arrived already; else returns false at once and consumes
    /// nothing. All threads of the rank call it and get the same answer.
    DCUDA_DEVICE bool test_notifications(int tag, int count) {
        return detail::perform<detail::test_operation>(self_, is_profiled(), tag, count);
    }

    // --- Collective operations ---------------------------------------------------------------------------------------

    /// Waits until all ranks of the communicator have called it. What they wrote before is visible after, and their
    /// puts have arrived: those with a notification at least as far as their target can see.
    DCUDA_DEVICE void barrier(communicator comm) {
        detail::perform<detail::barrier_operation>(self_, is_profiled(), comm);
    }

    /// Combines a value of each member, and returns the result to all threads of all of them. All threads call it, with
    /// the same value in all threads of a rank: one value of the rank, not one of each thread. T is an integer,
    /// floating point type or any trivially copyable type of at most 24 bytes; `op` one of operators.hpp, or a
    /// commutative function object that takes two T and returns one. 16-bit floating point values are combined as
    /// float, and rounded once.
    ///
    /// The result has the same bits on all members and in every run. Values are combined in pairs: of the members of
    /// each device, in the order of their numbers, first 0 with 1, 2 with 3 and so on, then these with each other, and
    /// last the devices' results in the same way; what has no partner goes on alone. With by_rank(op) it is one such
    /// tree over all members, wherever they are.
    ///
    /// It orders nothing: what members wrote before need not be visible after, and what they read before must not be
    /// overwritten yet. All threads of the rank meet in it. While a rank waits for others it takes messages that come.
    /// Members of which one calls something else, or with another type, operator or root, end the run
    /// (error_code::device_fault; 1 of 256 such differences is not seen), as do members in other than the first 64
    /// processes.
    template <class T, class Op>
    DCUDA_DEVICE T allreduce(communicator comm, T value, Op op) {
        static_assert(detail::is_plain<T> && sizeof(T) <= detail::unit_bytes,
                      "values to reduce must be trivially copyable, and have at most 24 bytes");
        return detail::perform<detail::allreduce_value_operation<T, Op>>(self_, is_profiled(), comm, value, op);
    }
    /// allreduce of `count` values at `in`, each with those at the same place of the other members; the results go to
    /// `out`, which is `in`, or does not overlap it. Neither needs a window. All threads of the rank read the results
    /// on return, and `in` may be changed then.
    template <class T, class Op>
    DCUDA_DEVICE void allreduce(communicator comm, T* out, const std::type_identity_t<T>* in, std::size_t count,
                                Op op) {
        static_assert(detail::is_plain<T> && sizeof(T) <= detail::unit_bytes,
                      "values to reduce must be trivially copyable, and have at most 24 bytes");
        detail::perform<detail::allreduce_array_operation<T, Op>>(self_, is_profiled(), comm, out, in, count, op);
    }
    /// Starts an allreduce, which finish_allreduce ends: the value leaves now, and the rank does something else while
    /// those of others are on their way. It waits for nobody. Result, types, operators, errors and who calls are as of
    /// allreduce. One at a time on a communicator: until it is finished there may be no other collective operation on
    /// it, but barriers of world and device (error_code::device_fault). It must be finished before the kernel ends.
    template <class T, class Op>
    DCUDA_DEVICE started_value<T, Op> start_allreduce(communicator comm, T value, Op op) {
        static_assert(detail::is_plain<T> && sizeof(T) <= detail::unit_bytes,
                      "values to reduce must be trivially copyable, and have at most 24 bytes");
        using start = detail::start_value_operation<T, Op>;
        return {comm, value, op, detail::perform<start>(self_, is_profiled(), comm, value, op)};
    }
    /// The same of an array. Until finish_allreduce has returned `in` stays as it is, and `out` is not read. What goes
    /// in packets leaves now, as far as one exchange takes it (a few hundred bytes with 8 members); the rest of it, and
    /// arrays from DCUDA_BOUNCE_BYTES on, in finish_allreduce.
    template <class T, class Op>
    DCUDA_DEVICE started_array<T, Op> start_allreduce(communicator comm, T* out, const std::type_identity_t<T>* in,
                                                      std::size_t count, Op op) {
        static_assert(detail::is_plain<T> && sizeof(T) <= detail::unit_bytes,
                      "values to reduce must be trivially copyable, and have at most 24 bytes");
        using start = detail::start_array_operation<T, Op>;
        return {comm, out, in, count, op, detail::perform<start>(self_, is_profiled(), comm, out, in, count, op)};
    }
    /// Waits for what the other members bring, and returns the result to all threads of the rank, which call it with
    /// what start_allreduce has returned. It may wait until all members have called it, as allreduce may; so all of
    /// them finish several operations in one order, and none does so only after something that waits for this rank. A
    /// member may call allreduce in its place, and have started nothing. An operation that was not started, or is
    /// finished, ends the run (error_code::device_fault).
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
    /// The same with results for one member only, the one with number `root`. `out` may be null elsewhere.
    template <class T, class Op>
    DCUDA_DEVICE void reduce(communicator comm, T* out, const std::type_identity_t<T>* in, std::size_t count, Op op,
                             int root) {
        static_assert(detail::is_plain<T> && sizeof(T) <= detail::unit_bytes,
                      "values to reduce must be trivially copyable, and have at most 24 bytes");
        detail::perform<detail::reduce_operation<T, Op>>(self_, is_profiled(), comm, out, in, count, op, root);
    }
    /// The value of the member with number `root`, to all threads of all members, which all call it. What is said of
    /// allreduce holds; T is any trivially copyable type of at most 24 bytes.
    template <class T>
    DCUDA_DEVICE T broadcast(communicator comm, T value, int root) {
        static_assert(detail::is_plain<T> && sizeof(T) <= detail::unit_bytes,
                      "a value to broadcast must be trivially copyable, and have at most 24 bytes");
        return detail::perform<detail::broadcast_value_operation<T>>(self_, is_profiled(), comm, value, root);
    }
    /// The same for `count` values of any size at `data`, which the root has there and the others get there.
    template <class T>
    DCUDA_DEVICE void broadcast(communicator comm, T* data, std::size_t count, int root) {
        static_assert(detail::is_plain<T>, "values to broadcast must be trivially copyable, and not const");
        detail::perform<detail::broadcast_array_operation<T>>(self_, is_profiled(), comm, data, count, root);
    }

    /// Combines arrays of size(comm) times `count` values, each with those at the same place of the other members, and
    /// gives each member its part of the results: the member with number i gets `count` values from number i * count
    /// on, at `out`, which is `in`, or does not overlap it. All threads of all members call it, with the same count;
    /// else as allreduce, with the same bits.
    template <class T, class Op>
    DCUDA_DEVICE void reduce_scatter(communicator comm, T* out, const std::type_identity_t<T>* in, std::size_t count,
                                     Op op) {
        static_assert(detail::is_plain<T> && sizeof(T) <= detail::unit_bytes,
                      "values to reduce must be trivially copyable, and have at most 24 bytes");
        detail::perform<detail::reduce_scatter_operation<T, Op>>(self_, is_profiled(), comm, out, in, count, op);
    }
    /// Combines the values of the members with numbers up to this rank's own, its own among them, and returns the
    /// result to all threads of the rank. They are combined in pairs in the order of numbers, as by allreduce with
    /// by_rank: the same bits in every run and for any number of devices. All threads of all members call it; types,
    /// operators, guarantees and errors are those of allreduce.
    template <class T, class Op>
    DCUDA_DEVICE T scan(communicator comm, T value, Op op) {
        static_assert(detail::is_plain<T> && sizeof(T) <= detail::unit_bytes,
                      "values to scan must be trivially copyable, and have at most 24 bytes");
        return detail::perform<detail::scan_operation<detail::operation::scan, T, Op>>(self_, is_profiled(), comm,
                                                                                       value, op, value);
    }
    /// The same without the rank's own value: that of the members before it. Member 0 gets `identity`.
    template <class T, class Op>
    DCUDA_DEVICE T exclusive_scan(communicator comm, T value, Op op, std::type_identity_t<T> identity) {
        static_assert(detail::is_plain<T> && sizeof(T) <= detail::unit_bytes,
                      "values to scan must be trivially copyable, and have at most 24 bytes");
        return detail::perform<detail::scan_operation<detail::operation::exclusive_scan, T, Op>>(
            self_, is_profiled(), comm, value, op, identity);
    }

    /// Brings `count` values at `in` of each member to the one with number `root`: those of member i go to
    /// out + i * count there; elsewhere `out` may be null. Where the root's own values lie there already (`in` is
    /// out + root * count) they stay; else `in` and `out` do not overlap. Neither needs a window. All threads of all
    /// members call it, with the same count and root. On return all threads of the root read the values, and `in` may
    /// be changed. It orders nothing else. Members of which one calls something else, or with another count, type or
    /// root, end the run (error_code::device_fault; 1 of 256 such differences is not seen), as does a root that is
    /// none.
    template <class T>
    DCUDA_DEVICE void gather(communicator comm, T* out, const std::type_identity_t<T>* in, std::size_t count,
                             int root) {
        static_assert(detail::is_plain<T>, "values to gather must be trivially copyable, and not const");
        detail::perform<detail::move_operation<detail::operation::gather, T>>(self_, is_profiled(), comm, out, in,
                                                                              count, root);
    }
    /// gather to all members.
    template <class T>
    DCUDA_DEVICE void all_gather(communicator comm, T* out, const std::type_identity_t<T>* in, std::size_t count) {
        static_assert(detail::is_plain<T>, "values to gather must be trivially copyable, and not const");
        detail::perform<detail::move_operation<detail::operation::all_gather, T>>(self_, is_profiled(), comm, out, in,
                                                                                  count, 0);
    }
    /// The other way: the member with number `root` has `count` values for each member at `in`, those for member i at
    /// in + i * count, and each gets its own at `out`. `in` may be null elsewhere. As gather otherwise.
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
    /// gather with another number of values from each member: counts[i] from member i, which go to
    /// out + displacements[i]. Both arrays are read at the root alone. `count` is what this member brings; the run ends
    /// if the root expects another number (error_code::device_fault). All threads of the rank may read the arrays, and
    /// nobody changes them meanwhile.
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
    /// all_to_all with another number of values for each member: counts[i] for member i, from in + displacements[i].
    /// What member i sends goes to out + out_displacements[i], and received[i] gets the number of values; so nobody
    /// need know it before, but there must be room. `received` may be null. As gather_v otherwise.
    template <class T>
    DCUDA_DEVICE void all_to_all_v(communicator comm, T* out, const std::size_t* out_displacements,
                                   const std::type_identity_t<T>* in, const std::size_t* counts,
                                   const std::size_t* displacements, std::size_t* received) {
        static_assert(detail::is_plain<T>, "values to exchange must be trivially copyable, and not const");
        detail::perform<detail::move_differing_operation<detail::operation::all_to_all, T>>(
            self_, is_profiled(), comm, 0, out, in,
            detail::differing_pieces{0, counts, displacements, out_displacements, received});
    }

    // --- Beside communication ----------------------------------------------------------------------------------------

    /// The pointer that the host gave to runtime::set_user_data; null if it gave none. Any single thread may call it.
    DCUDA_DEVICE void* user_data() const { return detail::user_data(self_.state()); }

    /// Starts the device's timer, which runs on the CPU's clock. All ranks of the device call it; the time runs between
    /// the moments when the last of them has called start and stop: runtime::timings.
    DCUDA_DEVICE void start_timer() { detail::perform<detail::start_timer_operation>(self_, is_profiled()); }
    /// Stops the device's timer. All ranks of the device call it.
    DCUDA_DEVICE void stop_timer() { detail::perform<detail::stop_timer_operation>(self_, is_profiled()); }

    /// A line that the host prints while the kernel runs, when the line object ends:
    ///
    ///     self.log() << "x = " << x;
    ///
    /// Any thread may call it; the rank's first thread writes, the others do nothing. Lines of a rank stay in order.
    DCUDA_DEVICE detail::log_line log() { return detail::log_line(self_.state()); }

    /// A range of the timeline (DCUDA_TRACE), from here to the end of the object's scope or to its end(). The name is a
    /// string literal; with a number the range is shown as "name number". Ranges may nest. Costs a test in runs that
    /// are not traced; in those that are, the threads of the rank meet there on the CPU backend. All threads of the
    /// rank call it.
    ///
    ///     auto inner = self.range("inner points");
    template <std::size_t Size>
    DCUDA_DEVICE detail::range_scope range(const char (&name)[Size]) {
        return {self_.state(), is_profiled() ? 1u : 0u, name, name_length<Size>, 0};
    }
    /// The same with a number behind the name.
    template <std::size_t Size>
    DCUDA_DEVICE detail::range_scope range(const char (&name)[Size], int number) {
        return {self_.state(), is_profiled() ? 1u : 0u, name, name_length<Size> | detail::range_numbered,
                static_cast<std::uint32_t>(number)};
    }

private:
    template <std::size_t Size>
    static constexpr std::uint32_t name_length = Size - 1 < detail::most_name_bytes
                                                     ? static_cast<std::uint32_t>(Size - 1)
                                                     : detail::most_name_bytes;

    // This run is traced or counted.
    DCUDA_DEVICE bool is_profiled() const { return DCUDA_PROFILING != 0 && profiled_ != 0; }

    detail::caller self_;
    std::uint32_t profiled_;
};

/// Which part of its block the calling thread is in, if it is cut into so many equal ones: from 1 to the number of its
/// threads. Any single thread may call it.
DCUDA_DEVICE part equal_part(unsigned parts) {
    const unsigned threads = detail::exec::block_threads() / parts, index = detail::exec::thread_index() / threads;
    return {index, index * threads, threads};
}

/// Whether the run ends with an error. For threads that are no rank, and wait for one that may have left the kernel
/// because of that: they leave it, too. Any single thread may call it.
DCUDA_DEVICE bool is_ending(context from_host) { return detail::load_relaxed(from_host.device->aborted) != 0; }

/// The block's dynamic shared memory (launch_config::shared_bytes), for both backends. Any single thread may call it.
template <class Element>
DCUDA_DEVICE Element* dynamic_shared() {
    return static_cast<Element*>(detail::exec::dynamic_shared());
}

} // namespace dcuda
