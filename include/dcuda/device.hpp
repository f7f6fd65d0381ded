// SPDX-License-Identifier: BSD-3-Clause
/// @file
/// The device side: what a rank does inside a running kernel.
#pragma once

#include "dcuda/collectives.hpp"
#include "dcuda/types.hpp"
#include "dcuda/windows.hpp"

#include <initializer_list>

#if !defined(__CUDA_ARCH__)
namespace dcuda::detail {
[[gnu::used]] static void (*const same_headers_as_the_library)() =
    this_program_was_compiled_with_headers_of_another_dcuda<fingerprint>;
} // namespace dcuda::detail
#endif

namespace dcuda {

/// What the library keeps of a rank, in its block's shared memory: `__shared__ dcuda::state state;`
using state = detail::rank_state;

/// A rank: the calling thread block, or a part of it. Construct one at the top of the kernel, in all threads of the
/// rank. All threads of the rank call each function, with the same arguments, as they call __syncthreads(), unless the
/// function says "any thread" or "any single thread".
///
/// A violated contract (bounds, rank, tag, window) ends the run: runtime::run throws an error that names the rank and
/// the operation. Programs that are compiled with -DDCUDA_CHECKS=0 do without most of these checks.
///
/// Order: puts and notifications from one rank to one other rank arrive in the order in which they were issued. The
/// target sees a notification only after the data of every earlier put of its source to the target; notify_relaxed is
/// the exception. Nothing orders notifications of different sources. Notifications order puts, not ordinary stores:
/// where ranks of a device share memory by pointers, use barrier(device), or release() before notify().
///
/// Its operations on windows are in windows.hpp, and collective operations in collectives.hpp; both are its members.
class rank : public rank_with_collectives {
public:
    /// All threads of all ranks call it; `from_host` is the kernel's first argument, `shared` lies in the block's
    /// shared memory. Waits for all ranks of the job.
    DCUDA_DEVICE rank(context from_host, state& shared)
        : rank_with_collectives(detail::init(from_host, shared), from_host.profiled) {}

#if DCUDA_PARTS
    /// A rank that is a part of its block. launch_config::ranks_per_block says how many ranks each block has. The
    /// rank's number in the world: the first number of the device + block * ranks_per_block + own.index. All threads of
    /// the part call it, on all ranks, and each rank has a state of its own; other threads of the block need not call
    /// it. The call waits for all threads of the part (dcuda-top and `kill -QUIT` show how many are missing), then for
    /// all ranks of the job. The rank's threads meet at a hardware barrier of their own, or as a warp: no operation
    /// of the rank waits for other threads of the block.
    ///
    /// The run ends (error_code::device_fault) if a part is not made of whole warps, extends past the block or overlaps
    /// another part; if a thread outside of the part calls; if the index is not below ranks_per_block; and if another
    /// part has the same barrier or state. Programs need -DDCUDA_PARTS=1 on a GPU.
    DCUDA_DEVICE rank(context from_host, state& shared, const part& own)
        : rank_with_collectives(detail::init(from_host, shared, own), from_host.profiled) {}
#endif

    /// All threads of all ranks call it. Waits for all ranks of the job: no rank ends while another may still put into
    /// its windows.
    DCUDA_DEVICE ~rank() noexcept(false) { finish(); }
    rank(const rank&) = delete;
    rank& operator=(const rank&) = delete;

    /// Ends the rank before the destructor does. All threads of all ranks call it. Nothing but the destructor may
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
    /// The number of ranks in the communicator; 0 if there is no such communicator, or the rank is no member. Any
    /// single thread may call it.
    DCUDA_DEVICE int size(communicator comm = world) const { return detail::comm_size(self_.state(), comm); }

    /// Makes communicators of the ranks of `parent`. Ranks that give the same color form one communicator, in the order
    /// of their keys; ranks with equal keys keep the order of their numbers in `parent`. A rank that gives a negative
    /// color is in none, and gets `none`. All threads of all ranks of `parent` call it, each rank with its own color
    /// and key. This call makes all columns, each of the ranks with the same number on every device:
    ///
    ///     dcuda::communicator column = self.split(dcuda::world, self.id(dcuda::device), 0);
    ///
    /// Every function that takes a communicator takes a new one. A rank may be in 64 communicators at a time, `world`,
    /// `device` and `node` among them.
    ///
    /// The run ends (error_code::device_fault) if a rank would be in one communicator too many; if a rank has no memory
    /// left for the new one (a communicator of thousands of ranks takes up to an eighth of a rank's memory for
    /// communicators, one of few members a fiftieth); if `parent` does not exist; and if a rank of `parent` is not in
    /// the first 64 processes.
    DCUDA_DEVICE communicator split(communicator parent, int color, int key) {
        return detail::perform<detail::split_operation>(self_, is_profiled(), parent, color, key);
    }
    /// Makes a communicator of `size` ranks of `parent`: number `first`, and every `stride`-th after it, in this order.
    /// A negative stride counts down. Numbers that `parent` does not have are left out. All threads of all ranks of
    /// `parent` call it, with the same arguments; ranks that are no members get `none`. Errors are those of split.
    DCUDA_DEVICE communicator split_strided(communicator parent, int first, int stride, int size) {
        const int distance = id(parent) - first;
        const bool is_member = stride == 0
                                   ? distance == 0 && size > 0
                                   : distance % stride == 0 && distance / stride >= 0 && distance / stride < size;
        return split(parent, is_member ? 0 : -1, stride == 0 ? 0 : distance / stride);
    }
    /// Ends a communicator that split has made. All threads of all members call it. On return all members have called
    /// it, and `comm` names no communicator any more: id() gives -1, size() gives 0, and operations on `comm` end the
    /// run (error_code::device_fault). To free `world`, `device` or `node`, or a communicator of which a window is
    /// open, ends the run, too (error_code::device_fault).
    DCUDA_DEVICE void free_communicator(communicator comm) {
        detail::perform<detail::free_communicator_operation>(self_, is_profiled(), comm);
    }
    /// Returns a rank's number in communicator `target`; `number` is its number in communicator `from`. Returns -1 if
    /// the rank is not a member of both, or the calling rank is not. Any single thread may call it.
    DCUDA_DEVICE int translate(communicator from, int number, communicator target) const {
        return detail::translate(self_.state(), from, number, target);
    }

    // --- Notifications and waits -------------------------------------------------------------------------------------

    /// Adds one to the number of notifications with `tag` that rank `target` has received; `target` is the rank's
    /// number in `comm`. The target sees the notification after all earlier puts of this rank to it; not after puts to
    /// other ranks (call flush() before), nor after what the rank's threads have stored without a put (call release()
    /// before). All threads of the rank call it. It returns when the notification is issued, and does not wait for the
    /// target; over a network it waits while the network has no room. A tag, a target or a communicator that does not
    /// exist ends the run (error_code::device_fault).
    DCUDA_DEVICE void notify(int target, communicator comm, int tag) {
        detail::perform<detail::notify_operation>(self_, is_profiled(), target, comm, tag);
    }

    /// notify() for each of the `count` ranks targets[0], ..., targets[count - 1] of `comm`. A rank that is there twice
    /// is notified twice. Up to 31 notifications at a time leave together, which is faster than one call for each; to
    /// ranks that this rank has sent nothing before, or whose queue is full, they leave one by one. All threads of the
    /// rank call it with the same list, in global or in shared memory. All of them see what the list holds
    /// (__syncthreads() after it was written), and none changes it before all have returned. Return and errors are as
    /// for notify(); a negative count ends the run.
    DCUDA_DEVICE void notify_each(const int* targets, int count, communicator comm, int tag) {
        detail::perform_notify_each(self_, is_profiled(), targets, count, comm, tag);
    }

    /// Lets this rank's next notification to each rank, with or without a put, order what the rank's threads have
    /// stored before without a put, in memory that others reach by pointers: whoever has waited for that notification
    /// sees it. All threads of the rank call it, each after its stores. It waits for nothing and takes a few
    /// instructions: the notification does what is left. Where anything else tells the others (an atomic operation,
    /// notify_relaxed, what a third rank notifies), or they get what was stored, flush() is to be called.
    DCUDA_DEVICE void release() { detail::release(self_); }

    /// notify() without order: the target may see this notification before earlier puts of this rank, and when it has
    /// seen the notification it need not see any of their data. After a direct put, notify() waits until the data is
    /// stored; notify_relaxed does not. Use it for signals that say all there is to know. Notifications of both kinds
    /// are counted alike; one by notify_relaxed may arrive before an earlier one with another tag. Callers, return and
    /// errors are as for notify().
    DCUDA_DEVICE void notify_relaxed(int target, communicator comm, int tag) {
        detail::perform<detail::notify_relaxed_operation>(self_, is_profiled(), target, comm, tag);
    }

    /// Waits until `count` notifications with `tag` have arrived, and consumes them. All threads of the rank call it.
    /// On return all threads of the rank see what the sources put before these notifications (notify_relaxed promises
    /// none of that).
    ///
    /// The run ends if the wait exceeds the runtime's wait_timeout, where one is set (error_code::wait_timeout); if
    /// nothing moves anywhere any more (error_code::deadlock); and if `tag` does not exist or is matched by source, or
    /// `count` is negative (error_code::device_fault). Where some tags are matched by source, a tag that does not exist
    /// may go unnoticed.
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

    /// Waits until a notification has arrived with one of the `tags` tags from `first_tag` on, consumes it, and returns
    /// its tag. All threads of the rank call it and get the same tag. The choice is fair: of the tags whose
    /// notifications the rank has found before the call, it takes the first one after the tag that wait_any returned
    /// last, and no notification is passed over for ever. On return all threads of the rank see what the source put
    /// before. The time that the call takes grows with `tags`. The run ends as in wait_notifications, and if `tags` is
    /// less than 1, or one of the tags does not exist or is matched by source (error_code::device_fault).
    DCUDA_DEVICE int wait_any(int first_tag, int tags) {
        return detail::perform<detail::wait_any_operation>(self_, is_profiled(), first_tag, tags);
    }

    /// wait_any for several tags at once: waits until a notification has arrived with one of the tags, consumes one
    /// notification with each tag that has any, and returns how many tags these are. `arrived` gets these tags in
    /// ascending order. It has room for `tags` numbers and is the same memory for all threads of the rank, shared or
    /// global; memory that is one thread's own ends the run (error_code::device_fault). All threads of the rank call
    /// it, get the same number, and may read `arrived` on return. What is visible then, and the other errors, are as
    /// for wait_any.
    DCUDA_DEVICE int wait_some(int first_tag, int tags, int* arrived) {
        return detail::perform<detail::wait_some_operation>(self_, is_profiled(), first_tag, tags, arrived);
    }

    /// wait_notifications for the notifications that one member of the communicator has issued: the member with number
    /// `source`. Notifications of other members with the same tag stay for their own waits. `tag` is one of the last
    /// options::match_sources tags, which are matched by source. Such a tag serves this wait only, and to notify with
    /// it takes the slow path of the source. All threads of the rank call it. The run ends as in wait_notifications,
    /// and if there is no such member, or `tag` is not matched by source (error_code::device_fault).
    DCUDA_DEVICE void wait_notifications_from(int source, communicator comm, int tag, int count) {
        detail::perform<detail::wait_from_operation>(self_, is_profiled(), source, comm, tag, count);
    }

    /// wait_notifications for at most `nanoseconds` nanoseconds. Returns true if `count` notifications have arrived in
    /// that time, and has consumed them. Else it returns false, has consumed nothing, and the run goes on. With 0 it
    /// looks once. Neither wait_timeout nor the watchdog ends it. All threads of the rank call it and get the same
    /// answer. A wrong tag or count ends the run as in wait_notifications.
    DCUDA_DEVICE bool wait_notifications_for(int tag, int count, std::uint64_t nanoseconds) {
        return detail::perform<detail::wait_for_operation>(self_, is_profiled(), tag, count, nanoseconds);
    }

    /// Returns how many notifications with `tag` have arrived that no wait has consumed, and consumes none. What their
    /// sources put before becomes visible only when a wait or a test consumes them. All threads of the rank call it and
    /// get the same number. A tag that does not exist, or is matched by source, ends the run
    /// (error_code::device_fault).
    DCUDA_DEVICE int pending_notifications(int tag) const {
        return detail::perform<detail::pending_operation>(self_, is_profiled(), tag);
    }

    /// wait_notifications that never waits. If `count` notifications with `tag` have arrived already, it consumes them
    /// and returns true, and what the sources put before is visible as after wait_notifications. Else it returns false
    /// at once and consumes nothing. All threads of the rank call it and get the same answer. A wrong tag or count ends
    /// the run as in wait_notifications.
    DCUDA_DEVICE bool test_notifications(int tag, int count) {
        return detail::perform<detail::test_operation>(self_, is_profiled(), tag, count);
    }

    // --- Beside communication ----------------------------------------------------------------------------------------

    /// The pointer that the host gave to runtime::set_user_data; null if it gave none. Any single thread may call it.
    DCUDA_DEVICE void* user_data() const { return detail::user_data(self_.state()); }

    /// Starts the device's timer, which runs on the device's clock. All ranks of the device call it; the
    /// time runs between the moments when the last of them has called start and stop: runtime::timings.
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
    /// string literal; with a number the range is shown as "name number". Ranges may nest. A range costs a test in runs
    /// that are not traced; in those that are, the threads of the rank meet there on the CPU backend. All threads of
    /// the rank call it.
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
};

/// Returns the part of its block that the calling thread is in, if the block is cut into `parts` equal ones. `parts` is
/// 1 or more, and divides the block into whole warps; else the rank's constructor ends the run. Any single thread may
/// call it.
DCUDA_DEVICE part equal_part(unsigned parts) {
    const unsigned threads = detail::exec::block_threads() / parts, index = detail::exec::thread_index() / threads;
    return {index, index * threads, threads};
}

/// Returns whether the run is ending with an error. For threads that are no rank, and wait for one that may have left
/// the kernel because of that: they leave it, too. Any single thread may call it.
DCUDA_DEVICE bool is_ending(context from_host) { return detail::load_relaxed(from_host.device->aborted) != 0; }

/// The block's dynamic shared memory (launch_config::shared_bytes), for both backends. Any single thread may call it.
template <class Element>
DCUDA_DEVICE Element* dynamic_shared() {
    return static_cast<Element*>(detail::exec::dynamic_shared());
}

} // namespace dcuda
