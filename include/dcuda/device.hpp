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
/// rank. All threads of the rank call each function, with the same arguments, as they call __syncthreads(), unless the
/// function says "any thread" or "any single thread".
///
/// A violated contract (bounds, rank, tag, window) ends the run: runtime::run throws an error that names the rank and
/// the operation. Programs that are compiled with -DDCUDA_CHECKS=0 do without most of these checks.
///
/// Order: puts and notifications from one rank to one other rank arrive in the order in which they were issued. The
/// target sees a notification only after the data of every earlier put of its source to the target; notify_relaxed is
/// the exception. Nothing orders notifications of different sources. Notifications order puts, not ordinary stores:
/// where ranks of a device share memory by pointers, use barrier(device), or flush() before notify().
class rank {
public:
    /// All threads of the rank, all ranks; `from_host` is the kernel's first argument, `shared` lies in the block's
    /// shared memory. Waits for all ranks of the system.
    DCUDA_DEVICE rank(context from_host, state& shared)
        : self_(detail::init(from_host, shared)), profiled_(from_host.profiled) {}

#if DCUDA_PARTS
    /// A rank that is a part of its block. launch_config::ranks_per_block says how many ranks each block has. The
    /// rank's number in the world: the first number of the device + block * ranks_per_block + own.index. All threads of
    /// the part call it, on all ranks, and each rank has a state of its own; other threads of the block need not call
    /// it. The call waits for all threads of the part (dcuda-top and `kill -QUIT` show how many are missing), then for
    /// all ranks of the system. The rank's threads meet at a hardware barrier of their own, or as a warp: no operation
    /// of the rank waits for other threads of the block.
    ///
    /// The run ends (error_code::device_fault) if a part is not made of whole warps, extends past the block or overlaps
    /// another part; if a thread outside of the part calls; if the index is not below ranks_per_block; and if another
    /// part has the same barrier or state. Programs need -DDCUDA_PARTS=1 on a GPU.
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

    // --- Windows and puts --------------------------------------------------------------------------------------------

    /// Opens `bytes` bytes at `base` for puts by the ranks of `comm`. All threads of all ranks of `comm` call it. Each
    /// rank gives its own base and bytes; bytes may be 0. Windows may overlap: window_kind says how puts come into such
    /// a window. If members are in other processes, the base must be cudaMalloc memory (CPU backend: memory from its
    /// cudaMalloc). The window has no memory of its own: free_window leaves the memory alone. On return all ranks of
    /// `comm` may put into the window, and no others; targets are their numbers in `comm`. A window of a communicator
    /// that split has made is freed before the communicator. Members of windows of others than `world` and `device` are
    /// in the first 64 processes; others end the run (error_code::device_fault).
    ///
    /// One window more than options::max_windows ends the run (error_code::out_of_resources); with
    /// options::windows_may_fail all ranks get a window that is false instead, and the host prints the reason. Memory
    /// that other processes cannot map ends the run (error_code::no_path), as do a communicator that the rank is not
    /// in, bytes at a null pointer, and bytes in shared or local memory (error_code::device_fault).
    DCUDA_DEVICE window create_window(communicator comm, void* base, std::size_t bytes,
                                      window_kind kind = window_kind::usual) {
        return detail::perform<detail::create_window_operation>(self_, is_profiled(), comm, base, bytes, kind);
    }

    /// Closes the window. All threads of all ranks of its communicator call it. On return all puts to it are complete,
    /// and its memory is the rank's own again. A window that is not open any more ends the run
    /// (error_code::device_fault), as does a window of the host, which only runtime::free_window frees.
    DCUDA_DEVICE void free_window(window win) {
        detail::perform<detail::free_window_operation>(self_, is_profiled(), win);
    }

    /// Copies `bytes` bytes at `source` into the window of rank `target`, `offset` bytes behind the base of that rank's
    /// window. `target` is the rank's number in the window's communicator. All threads of the rank call it; the source
    /// is read when all of them have. The call returns when the put is issued: `source` may change after flush(), or
    /// after a notification that proves the arrival. Source and target ranges are the same (then nothing is copied), or
    /// do not overlap.
    ///
    /// The call does not wait for the target, with one exception: a put over bytes of small notified puts that the
    /// target has not taken yet waits for the target if it has 64 KiB or more, or if the queue to the target has no
    /// room for it. A put over a network also waits while the network has no room. Bounds that the window does not
    /// have, a wrong target and a closed window end the run (error_code::device_fault).
    DCUDA_DEVICE void put(window win, int target, std::size_t offset, std::size_t bytes, const void* source) {
        detail::perform<detail::put_operation>(self_, is_profiled(), win, target, offset, bytes, source);
    }

    /// Makes a put, then adds one to the number of notifications with `tag` that the target has received. All threads
    /// of the rank call it. The data is in the window when the target has seen the notification, or when flush() of
    /// this rank or free_window() has returned. Data of a small put (DCUDA_SMALL_PUT_BYTES) need not be there earlier,
    /// unless the window is a direct one.
    ///
    /// The source of a small put may change when the rank's threads have met after the call (sync()); on GPUs this
    /// holds for any notified put of up to 1152 bytes by a rank of 32 threads or more. For other sources, waits and
    /// errors, see put. Tags count from 0 to options::tags - 1; others end the run (error_code::device_fault).
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
    /// put_notify of one value to element `index` of the target's window. All threads of the rank call it, with the
    /// same value. The value has been read on return and needs no memory, so the next call needs no flush before it.
    /// Guarantees and errors are those of put_notify; the errors count bytes.
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

    /// Returns when all earlier puts and gets of this rank, of any window, are complete: data of puts is in the
    /// targets' memory for every rank that learns of it from this rank, and their sources may change; data of gets is
    /// at its destination. What add() adds is there. All threads of the rank call it. It waits until the targets have
    /// taken small notified puts; since a target takes them in any operation, two ranks may flush at the same time. A
    /// window that is not open ends the run (error_code::device_fault).
    DCUDA_DEVICE void flush(window win) { detail::perform<detail::flush_operation>(self_, is_profiled(), win); }
    /// flush of a typed window.
    template <class Element>
    DCUDA_DEVICE void flush(typed_window<Element> win) {
        flush(win.bytes);
    }

    /// Copies `bytes` bytes from the window of rank `target`, `offset` bytes behind its base, to `destination` in this
    /// rank's own memory. `target` is the rank's number in the window's communicator; it takes no part. All threads of
    /// the rank call it, with the same arguments, and the destination is the same memory for all of them. The data is
    /// there when flush() has returned; until then nobody reads or writes the destination. It is what this rank has put
    /// there before, and what others had put that this rank knows of, by a notification, a barrier or an atomic
    /// operation; and what the target's own threads had stored there, if the target has called flush() before it
    /// notified this rank, or has met it in a barrier. Nothing tells whether what others do meanwhile is among it.
    ///
    /// A get waits until this rank's earlier small notified puts to the same bytes are placed. Over a network the
    /// destination must be global memory; elsewhere it may be shared memory, too. Bounds that the window does not have,
    /// a wrong target, a closed window and a wrong destination end the run (error_code::device_fault).
    DCUDA_DEVICE void get(window win, int target, std::size_t offset, std::size_t bytes, void* destination) {
        detail::perform<detail::get_operation<detail::operation::get>>(self_, is_profiled(), win, target, offset, bytes,
                                                                       destination);
    }
    /// get, and then a notification with `tag` for the target: what was read may be changed. The destination is valid
    /// after flush(), as with get. Tags that do not exist end the run (error_code::device_fault).
    DCUDA_DEVICE void get_notify(window win, int target, std::size_t offset, std::size_t bytes, void* destination,
                                 int tag) {
        detail::perform<detail::get_operation<detail::operation::get_notify>>(self_, is_profiled(), win, target, offset,
                                                                              bytes, destination, tag);
    }
    /// get of `count` elements from number `index` on of the target's window. Guarantees and errors are those of get.
    template <class Element>
    DCUDA_DEVICE void get(typed_window<Element> win, int target, std::size_t index, std::size_t count,
                          std::type_identity_t<Element>* destination) {
        get(win.bytes, target, index * sizeof(Element), count * sizeof(Element), destination);
    }
    /// get_notify of `count` elements, likewise.
    template <class Element>
    DCUDA_DEVICE void get_notify(typed_window<Element> win, int target, std::size_t index, std::size_t count,
                                 std::type_identity_t<Element>* destination, int tag) {
        get_notify(win.bytes, target, index * sizeof(Element), count * sizeof(Element), destination, tag);
    }

    // --- Boxes -------------------------------------------------------------------------------------------------------

    /// put of what is not contiguous: `shape` says how many rows of how many bytes, in how many slices; they lie
    /// `source_pitch` apart from `source` on, and come to lie `target_pitch` apart in the window of rank `target`, from
    /// byte `offset` on. This puts a column of a matrix of doubles:
    ///
    ///     const dcuda::pitch rows{columns * sizeof(double)};
    ///     self.put_notify(win, right, 0, rows, dcuda::box{sizeof(double), height}, &matrix[columns - 1], rows, tag);
    ///
    /// All threads of the rank call it, with the same arguments, and share its rows and their elements. It goes
    /// straight into the target's memory, never by way of its mailbox, and is quickest if all rows at both ends begin
    /// at multiples of 16 bytes and are as long. If small notified puts of this rank to anything between the box's
    /// first and last byte are on their way, it waits until the target has taken them. Over a network each row is a
    /// message of its own.
    ///
    /// Order, completion and errors are those of put(); the whole box must lie in the window. Rows that
    /// overlap at either end end the run (error_code::device_fault). A box of no bytes does nothing.
    DCUDA_DEVICE void put(window win, int target, std::size_t offset, pitch target_pitch, box shape, const void* source,
                          pitch source_pitch) {
        detail::perform<detail::box_operation<detail::operation::put, const void>>(
            self_, is_profiled(), win, target, offset, target_pitch, shape, source, source_pitch);
    }
    /// put of a box, and then a notification with `tag` for the target, which sees it after the whole box has come. The
    /// source may change after flush(), or after a notification that proves the arrival.
    DCUDA_DEVICE void put_notify(window win, int target, std::size_t offset, pitch target_pitch, box shape,
                                 const void* source, pitch source_pitch, int tag) {
        detail::perform<detail::box_operation<detail::operation::put_notify, const void>>(
            self_, is_profiled(), win, target, offset, target_pitch, shape, source, source_pitch, tag);
    }
    /// get of a box, likewise: from the window of rank `target`, where its rows lie `target_pitch` apart, to
    /// `destination`, where they come to lie `destination_pitch` apart. It is there when flush() has returned; what
    /// get() says of order and errors holds.
    DCUDA_DEVICE void get(window win, int target, std::size_t offset, pitch target_pitch, box shape, void* destination,
                          pitch destination_pitch) {
        detail::perform<detail::box_operation<detail::operation::get, void>>(
            self_, is_profiled(), win, target, offset, target_pitch, shape, destination, destination_pitch);
    }
    /// get of a box, and then a notification with `tag` for the target: what was read may be changed.
    DCUDA_DEVICE void get_notify(window win, int target, std::size_t offset, pitch target_pitch, box shape,
                                 void* destination, pitch destination_pitch, int tag) {
        detail::perform<detail::box_operation<detail::operation::get_notify, void>>(
            self_, is_profiled(), win, target, offset, target_pitch, shape, destination, destination_pitch, tag);
    }

    // --- Atomic operations -------------------------------------------------------------------------------------------

    /// Adds `value` to an element of another rank's window (or its own), and returns what the element held before. The
    /// element is the T at byte `offset` of the window of member `target`. T is an integer of 32 or 64 bits, float or
    /// double. All threads of the rank call it, with the same arguments; it is done once, and all threads get the
    /// result. Each rank of the window's communicator may do so at any time, and nobody's operation falls between
    /// another's reading and writing, on whatever devices they are. Integers wrap around. This gives each rank of all
    /// devices another ticket:
    ///
    ///     const int ticket = self.fetch_add(window, 0, 0, 1);
    ///
    /// Order: atomic operations are made after the earlier puts of this rank to the element, and whoever sees the
    /// result by an atomic operation of its own sees what this rank had stored to its own windows, and put into windows
    /// of ranks whose memory is mapped (same GPU, NVLink), but for small notified puts, which their targets place. Use
    /// flush() before where others must see those, too. The target sees the new value by an atomic operation of its own
    /// (fetch_or of 0, say), or by plain loads after a barrier or a notification.
    ///
    /// The run ends (error_code::device_fault) if there is no such window or member, the element is not within the
    /// window, or its address is no multiple of its size. Do not mix atomic operations with puts to the same element,
    /// or with plain stores, without a barrier or a notification in between.
    template <class T>
    DCUDA_DEVICE T fetch_add(window win, int target, std::size_t offset, T value) {
        return update<detail::operation::fetch_add>(win, target, offset, value, T{});
    }
    /// The same of the element with number `index` in a typed window.
    template <class T>
    DCUDA_DEVICE T fetch_add(typed_window<T> win, int target, std::size_t index, std::type_identity_t<T> value) {
        return fetch_add<T>(win.bytes, target, index * sizeof(T), value);
    }
    /// fetch_add with the bits of integers: the element keeps those bits that are set in `value`, too. Otherwise as
    /// fetch_add.
    template <class T>
    DCUDA_DEVICE T fetch_and(window win, int target, std::size_t offset, T value) {
        return update<detail::operation::fetch_and>(win, target, offset, value, T{});
    }
    /// The same of the element with number `index` in a typed window.
    template <class T>
    DCUDA_DEVICE T fetch_and(typed_window<T> win, int target, std::size_t index, std::type_identity_t<T> value) {
        return fetch_and<T>(win.bytes, target, index * sizeof(T), value);
    }
    /// fetch_add with the bits of integers: sets those that are set in `value`. Otherwise as fetch_add.
    template <class T>
    DCUDA_DEVICE T fetch_or(window win, int target, std::size_t offset, T value) {
        return update<detail::operation::fetch_or>(win, target, offset, value, T{});
    }
    /// The same of the element with number `index` in a typed window.
    template <class T>
    DCUDA_DEVICE T fetch_or(typed_window<T> win, int target, std::size_t index, std::type_identity_t<T> value) {
        return fetch_or<T>(win.bytes, target, index * sizeof(T), value);
    }
    /// fetch_add with the bits of integers: changes those that are set in `value`. Otherwise as fetch_add.
    template <class T>
    DCUDA_DEVICE T fetch_xor(window win, int target, std::size_t offset, T value) {
        return update<detail::operation::fetch_xor>(win, target, offset, value, T{});
    }
    /// The same of the element with number `index` in a typed window.
    template <class T>
    DCUDA_DEVICE T fetch_xor(typed_window<T> win, int target, std::size_t index, std::type_identity_t<T> value) {
        return fetch_xor<T>(win.bytes, target, index * sizeof(T), value);
    }
    /// The element becomes `value` if that is smaller. Otherwise as fetch_add.
    template <class T>
    DCUDA_DEVICE T fetch_min(window win, int target, std::size_t offset, T value) {
        return update<detail::operation::fetch_min>(win, target, offset, value, T{});
    }
    /// The same of the element with number `index` in a typed window.
    template <class T>
    DCUDA_DEVICE T fetch_min(typed_window<T> win, int target, std::size_t index, std::type_identity_t<T> value) {
        return fetch_min<T>(win.bytes, target, index * sizeof(T), value);
    }
    /// The element becomes `value` if that is larger. Otherwise as fetch_add.
    template <class T>
    DCUDA_DEVICE T fetch_max(window win, int target, std::size_t offset, T value) {
        return update<detail::operation::fetch_max>(win, target, offset, value, T{});
    }
    /// The same of the element with number `index` in a typed window.
    template <class T>
    DCUDA_DEVICE T fetch_max(typed_window<T> win, int target, std::size_t index, std::type_identity_t<T> value) {
        return fetch_max<T>(win.bytes, target, index * sizeof(T), value);
    }
    /// The element becomes `value`. Otherwise as fetch_add.
    template <class T>
    DCUDA_DEVICE T exchange(window win, int target, std::size_t offset, T value) {
        return update<detail::operation::exchange>(win, target, offset, value, T{});
    }
    /// The same of the element with number `index` in a typed window.
    template <class T>
    DCUDA_DEVICE T exchange(typed_window<T> win, int target, std::size_t index, std::type_identity_t<T> value) {
        return exchange<T>(win.bytes, target, index * sizeof(T), value);
    }
    /// The element becomes `desired` if it holds `expected`, bit for bit; the result is `expected` then. Otherwise as
    /// fetch_add.
    template <class T>
    DCUDA_DEVICE T compare_swap(window win, int target, std::size_t offset, T expected, T desired) {
        return update<detail::operation::compare_swap>(win, target, offset, desired, expected);
    }
    /// The same of the element with number `index` in a typed window.
    template <class T>
    DCUDA_DEVICE T compare_swap(typed_window<T> win, int target, std::size_t index, std::type_identity_t<T> expected,
                                std::type_identity_t<T> desired) {
        return compare_swap<T>(win.bytes, target, index * sizeof(T), expected, desired);
    }
    /// fetch_add without a result, which waits for nothing: over a network the element may change later; flush() waits
    /// until it has. Otherwise as fetch_add.
    template <class T>
    DCUDA_DEVICE void add(window win, int target, std::size_t offset, T value) {
        update<detail::operation::add>(win, target, offset, value, T{});
    }
    /// The same of the element with number `index` in a typed window.
    template <class T>
    DCUDA_DEVICE void add(typed_window<T> win, int target, std::size_t index, std::type_identity_t<T> value) {
        add<T>(win.bytes, target, index * sizeof(T), value);
    }

    /// Combines `count` elements of another rank's window (or its own), from byte `offset` on, with those at `source`:
    /// each element becomes op(element, source element), by an atomic operation. So several ranks may accumulate into
    /// the same elements at a time, and nothing is lost; each element is atomic, the array is not. `Operator` is sum,
    /// minimum, maximum, or of integers bit_and, bit_or or bit_xor; T is as for fetch_add. Sums of floating point
    /// numbers depend on the order in which ranks come: for the same bits on every run use reduce(). All threads of the
    /// rank call it, with the same arguments. This adds a rank's forces to its neighbour's:
    ///
    ///     self.accumulate_notify(win, neighbour, 0, count, forces, dcuda::sum{}, tag);
    ///
    /// Order: as of put(). An accumulate is made after the earlier puts of this rank to the elements, and complete when
    /// flush() has returned, or for the target when it has seen a later notification of this rank; then the target's
    /// threads may read the elements. Unlike fetch_add it orders nothing else. The source may change when all threads
    /// of the rank have returned. Over a network each element is a message of its own, which is slow.
    ///
    /// The run ends (error_code::device_fault) as for fetch_add. Do not mix accumulates with puts to the same elements,
    /// or with plain stores, without a barrier or a notification in between.
    template <class T, class Operator>
    DCUDA_DEVICE void accumulate(window win, int target, std::size_t offset, std::size_t count, const T* source,
                                 Operator) {
        detail::perform<accumulate_operation<detail::operation::accumulate, T, Operator>>(
            self_, is_profiled(), win, target, offset, count, source);
    }
    /// accumulate, and then a notification with `tag` for the target, which sees it after all elements have changed.
    /// Tags that do not exist end the run (error_code::device_fault).
    template <class T, class Operator>
    DCUDA_DEVICE void accumulate_notify(window win, int target, std::size_t offset, std::size_t count, const T* source,
                                        Operator, int tag) {
        detail::perform<accumulate_operation<detail::operation::accumulate_notify, T, Operator>>(
            self_, is_profiled(), win, target, offset, count, source, tag);
    }
    /// accumulate into `count` elements from number `index` on of the target's window. Guarantees and errors are those
    /// of accumulate.
    template <class T, class Operator>
    DCUDA_DEVICE void accumulate(typed_window<T> win, int target, std::size_t index, std::size_t count,
                                 const std::type_identity_t<T>* source, Operator op) {
        accumulate(win.bytes, target, index * sizeof(T), count, source, op);
    }
    /// accumulate_notify, likewise.
    template <class T, class Operator>
    DCUDA_DEVICE void accumulate_notify(typed_window<T> win, int target, std::size_t index, std::size_t count,
                                        const std::type_identity_t<T>* source, Operator op, int tag) {
        accumulate_notify(win.bytes, target, index * sizeof(T), count, source, op, tag);
    }

    // --- Notifications and waits -------------------------------------------------------------------------------------

    /// Adds one to the number of notifications with `tag` that rank `target` has received; `target` is the rank's
    /// number in `comm`. The target sees the notification after all earlier puts of this rank to it. All threads of the
    /// rank call it. It returns when the notification is issued, and does not wait for the target; over a network it
    /// waits while the network has no room. A tag, a target or a communicator that does not exist ends the run
    /// (error_code::device_fault).
    DCUDA_DEVICE void notify(int target, communicator comm, int tag) {
        detail::perform<detail::notify_operation>(self_, is_profiled(), target, comm, tag);
    }

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

    // --- Collective operations ---------------------------------------------------------------------------------------

    /// Waits until all ranks of the communicator have called it. All threads of all these ranks call it. On return all
    /// of them see what any of them wrote before, and their puts to each other have arrived; a notified put has arrived
    /// at least as far as its target can see. A communicator that does not exist ends the run
    /// (error_code::device_fault). So do, in a barrier of `node` or of a communicator that split has made, a member
    /// that calls something else, and a member outside the first 64 processes.
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
    /// order, and no member puts off its call until something has happened that this rank does only after its own call.
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

    template <detail::operation Kind, class T, class Operator>
    struct accumulate_operation : detail::accumulate_operation<Kind, T, Operator> {
        static_assert(detail::has_action(detail::type_of<T>(), detail::action_with<Operator>),
                      "accumulate takes sum, minimum, maximum, and for integers bit_and, bit_or and bit_xor");
    };

    template <detail::operation Kind, class T>
    DCUDA_DEVICE auto update(window win, int target, std::size_t offset, T operand, T expected) {
        static_assert(detail::has_action(detail::type_of<T>(), detail::action_of(Kind)),
                      "fetch_and, fetch_or and fetch_xor take integers");
        return detail::perform<detail::atomic_operation<Kind, T>>(self_, is_profiled(), win, target, offset, operand,
                                                                  expected);
    }

    // This run is traced or counted.
    DCUDA_DEVICE bool is_profiled() const { return DCUDA_PROFILING != 0 && profiled_ != 0; }

    detail::caller self_;
    std::uint32_t profiled_;
};

/// Returns the part of its block that the calling thread is in, if the block is cut into `parts` equal ones. `parts` is
/// 1 or more, and divides the block into whole warps; else the rank's constructor ends the run. Any single thread may
/// call it.
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
