// SPDX-License-Identifier: BSD-3-Clause
/// @file
/// What a rank does with windows: opens them, puts, gets, accumulates, and makes atomic operations. Programs include
/// dcuda.hpp, and call these functions of dcuda::rank.
#pragma once

#include "dcuda/detail/ops/operations.hpp"
#include "dcuda/types.hpp"

#include <type_traits>

namespace dcuda {

namespace detail {

template <class Element>
inline constexpr bool is_plain = std::is_trivially_copyable_v<Element> && !std::is_const_v<Element>;

// So many elements in bytes; more than there can be are the largest number, which exceeds every window.
template <class Element>
DCUDA_DEVICE constexpr std::size_t array_bytes(std::size_t elements) {
    return multiply_bounded(elements, sizeof(Element));
}

// A value that every thread of the rank has for itself, in words as messages are read.
template <class Element>
struct alignas(alignof(Element) > 4 ? alignof(Element) : 4) value_to_put {
    Element value;
};

} // namespace detail

/// The operations of a rank on windows; a base of rank.
class rank_with_windows {
public:
    rank_with_windows(const rank_with_windows&) = delete;
    rank_with_windows& operator=(const rank_with_windows&) = delete;

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
    /// The call does not wait for the target, with two exceptions. A put over bytes of small notified puts that the
    /// target has not taken yet waits for the target if it has 64 KiB or more, or if the queue to the target has no
    /// room for it. A put over a network waits while the network has no room. Bounds that the window does not
    /// have, a wrong target and a closed window end the run (error_code::device_fault).
    DCUDA_DEVICE void put(window win, int target, std::size_t offset, std::size_t bytes, const void* source) {
        detail::perform<detail::put_operation>(self_, is_profiled(), win, target, offset, bytes, source);
    }

    /// Makes a put, then adds one to the number of notifications with `tag` that the target has received. All threads
    /// of the rank call it. The data is in the window when the target has seen the notification, or when flush() of
    /// this rank or free_window() has returned. Data of a small put (DCUDA_SMALL_PUT_BYTES) need not be there earlier,
    /// unless the window is a direct one.
    ///
    /// The source of a small put may change after the rank's next sync(), or any operation; on GPUs this
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
        return {create_window(comm, base, detail::array_bytes<Element>(count), kind)};
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
        put(win.bytes, target, detail::array_bytes<Element>(index), detail::array_bytes<Element>(count), source);
    }
    /// put_notify of `count` elements at `source` to those of the target's window from number `index` on. What
    /// put_notify guarantees holds; errors are told in bytes.
    template <class Element>
    DCUDA_DEVICE void put_notify(typed_window<Element> win, int target, std::size_t index, std::size_t count,
                                 const std::type_identity_t<Element>* source, int tag) {
        put_notify(win.bytes, target, detail::array_bytes<Element>(index), detail::array_bytes<Element>(count), source,
                   tag);
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
    /// there when flush() or a barrier has returned; until then nobody reads or writes the destination. It is what this
    /// rank has put there before, and what others had put that this rank knows of, by a notification, a barrier or an
    /// atomic operation; and what the target's own threads had stored there, if the target has called flush() before it
    /// notified this rank, or has met it in a barrier. Whether it includes what others write meanwhile is undefined.
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
        get(win.bytes, target, detail::array_bytes<Element>(index), detail::array_bytes<Element>(count), destination);
    }
    /// get_notify of `count` elements, likewise.
    template <class Element>
    DCUDA_DEVICE void get_notify(typed_window<Element> win, int target, std::size_t index, std::size_t count,
                                 std::type_identity_t<Element>* destination, int tag) {
        get_notify(win.bytes, target, detail::array_bytes<Element>(index), detail::array_bytes<Element>(count),
                   destination, tag);
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
    /// first and last byte are on their way, it waits until the target has taken them. Over a network rows of less
    /// than 4 KiB travel together; a get asks for each row by itself.
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
    /// result by an atomic operation of its own sees what this rank had put into windows of ranks whose memory is
    /// mapped (same GPU, NVLink), but for small notified puts, which their targets place. Use flush() before where
    /// others must see those, too, or what this rank's threads have stored without a put. The target sees the new value
    /// by an atomic operation of its own (fetch_or of 0, say), or by plain loads after a barrier or a notification.
    /// GPUs take floats for zero in sums if they are smaller than the smallest normal one.
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
        return fetch_add<T>(win.bytes, target, detail::array_bytes<T>(index), value);
    }
    /// As fetch_add, but the element becomes element & value. Integers only.
    template <class T>
    DCUDA_DEVICE T fetch_and(window win, int target, std::size_t offset, T value) {
        return update<detail::operation::fetch_and>(win, target, offset, value, T{});
    }
    /// The same of the element with number `index` in a typed window.
    template <class T>
    DCUDA_DEVICE T fetch_and(typed_window<T> win, int target, std::size_t index, std::type_identity_t<T> value) {
        return fetch_and<T>(win.bytes, target, detail::array_bytes<T>(index), value);
    }
    /// As fetch_add, but the element becomes element | value. Integers only.
    template <class T>
    DCUDA_DEVICE T fetch_or(window win, int target, std::size_t offset, T value) {
        return update<detail::operation::fetch_or>(win, target, offset, value, T{});
    }
    /// The same of the element with number `index` in a typed window.
    template <class T>
    DCUDA_DEVICE T fetch_or(typed_window<T> win, int target, std::size_t index, std::type_identity_t<T> value) {
        return fetch_or<T>(win.bytes, target, detail::array_bytes<T>(index), value);
    }
    /// As fetch_add, but the element becomes element ^ value. Integers only.
    template <class T>
    DCUDA_DEVICE T fetch_xor(window win, int target, std::size_t offset, T value) {
        return update<detail::operation::fetch_xor>(win, target, offset, value, T{});
    }
    /// The same of the element with number `index` in a typed window.
    template <class T>
    DCUDA_DEVICE T fetch_xor(typed_window<T> win, int target, std::size_t index, std::type_identity_t<T> value) {
        return fetch_xor<T>(win.bytes, target, detail::array_bytes<T>(index), value);
    }
    /// The element becomes `value` if that is smaller. Otherwise as fetch_add.
    template <class T>
    DCUDA_DEVICE T fetch_min(window win, int target, std::size_t offset, T value) {
        return update<detail::operation::fetch_min>(win, target, offset, value, T{});
    }
    /// The same of the element with number `index` in a typed window.
    template <class T>
    DCUDA_DEVICE T fetch_min(typed_window<T> win, int target, std::size_t index, std::type_identity_t<T> value) {
        return fetch_min<T>(win.bytes, target, detail::array_bytes<T>(index), value);
    }
    /// The element becomes `value` if that is larger. Otherwise as fetch_add.
    template <class T>
    DCUDA_DEVICE T fetch_max(window win, int target, std::size_t offset, T value) {
        return update<detail::operation::fetch_max>(win, target, offset, value, T{});
    }
    /// The same of the element with number `index` in a typed window.
    template <class T>
    DCUDA_DEVICE T fetch_max(typed_window<T> win, int target, std::size_t index, std::type_identity_t<T> value) {
        return fetch_max<T>(win.bytes, target, detail::array_bytes<T>(index), value);
    }
    /// The element becomes `value`. Otherwise as fetch_add.
    template <class T>
    DCUDA_DEVICE T exchange(window win, int target, std::size_t offset, T value) {
        return update<detail::operation::exchange>(win, target, offset, value, T{});
    }
    /// The same of the element with number `index` in a typed window.
    template <class T>
    DCUDA_DEVICE T exchange(typed_window<T> win, int target, std::size_t index, std::type_identity_t<T> value) {
        return exchange<T>(win.bytes, target, detail::array_bytes<T>(index), value);
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
        return compare_swap<T>(win.bytes, target, detail::array_bytes<T>(index), expected, desired);
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
        add<T>(win.bytes, target, detail::array_bytes<T>(index), value);
    }

    /// Combines `count` elements of another rank's window (or its own), from byte `offset` on, with those at `source`:
    /// each element becomes op(element, source element), by an atomic operation. So several ranks may accumulate into
    /// the same elements at a time, and nothing is lost; each element is atomic, the array is not. `Operator` is sum,
    /// product, minimum, maximum, or of integers bit_and, bit_or or bit_xor; T is as for fetch_add. Sums of floating
    /// point numbers depend on the order in which ranks come: for the same bits on every run use reduce(). All threads
    /// of the rank call it, with the same arguments. This adds a rank's forces to its neighbour's:
    ///
    ///     self.accumulate_notify(win, neighbour, 0, count, forces, dcuda::sum{}, tag);
    ///
    /// Order: as of put(). An accumulate is made after the earlier puts of this rank to the elements, and complete when
    /// flush() has returned, or for the target when it has seen a later notification of this rank; then the target's
    /// threads may read the elements. Unlike fetch_add it orders nothing else. If small notified puts of this rank to
    /// the elements are on their way, it waits until the target has taken them. The source may change when all threads
    /// of the rank have returned. Over a network elements travel together. GPUs take floats
    /// for zero in sums if they are smaller than the smallest normal one.
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
        accumulate(win.bytes, target, detail::array_bytes<T>(index), count, source, op);
    }
    /// accumulate_notify, likewise.
    template <class T, class Operator>
    DCUDA_DEVICE void accumulate_notify(typed_window<T> win, int target, std::size_t index, std::size_t count,
                                        const std::type_identity_t<T>* source, Operator op, int tag) {
        accumulate_notify(win.bytes, target, detail::array_bytes<T>(index), count, source, op, tag);
    }

    /// @cond
protected:
    DCUDA_DEVICE rank_with_windows(const detail::caller& self, std::uint32_t profiled)
        : self_(self), profiled_(profiled) {}
    ~rank_with_windows() = default;

    // This run is traced or counted.
    DCUDA_DEVICE bool is_profiled() const { return DCUDA_PROFILING != 0 && profiled_ != 0; }

    detail::caller self_;

private:
    template <detail::operation Kind, class T, class Operator>
    struct accumulate_operation : detail::accumulate_operation<Kind, T, Operator> {
        static_assert(detail::has_action(detail::type_of<T>(), detail::action_with<Operator>),
                      "accumulate takes sum, product, minimum, maximum, and for integers bit_and, bit_or and bit_xor");
    };

    template <detail::operation Kind, class T>
    DCUDA_DEVICE auto update(window win, int target, std::size_t offset, T operand, T expected) {
        static_assert(detail::has_action(detail::type_of<T>(), detail::action_of(Kind)),
                      "fetch_and, fetch_or and fetch_xor take integers");
        return detail::perform<detail::atomic_operation<Kind, T>>(self_, is_profiled(), win, target, offset, operand,
                                                                  expected);
    }

    std::uint32_t profiled_;
    /// @endcond
};

} // namespace dcuda
