// SPDX-License-Identifier: BSD-3-Clause
// The protocol checker's way of every operation (CPU backend; docs/guide/checker.md). With DCUDA_CHECK set, operations
// go here instead of mailboxes and counters: one rank of all processes runs at a time, and what happened before what is
// kept. The functions are in src/checker/.
#pragma once

#include "dcuda/detail/ops/rank_state.hpp"

#include <type_traits>

#if DCUDA_BACKEND_CPU

namespace dcuda::detail {
struct accessed_range;     // one_sided/accessed.hpp
struct get_request;        // one_sided/get.hpp
struct update_request;     // one_sided/atomics.hpp
struct accumulate_request; // one_sided/accumulate.hpp
struct box_request;        // one_sided/box.hpp
} // namespace dcuda::detail

namespace dcuda::detail::check {

// Whether this run is checked.
inline bool is_on(const rank_state& state) { return state.device.checker != nullptr; }

// All of these are called by all threads of the rank, like the operations.

// After the ranks have met in init; returns when the rank may run.
void begin(rank_state& state);

// A collective operation. Returns when all ranks of the communicator have called it. What the library does then itself,
// all of them do at the same time; leave() ends that, for all operations but barriers and finish.
void enter(rank_state& state, collective where);
void enter_free(rank_state& state, window win);
void leave(rank_state& state);
// Between these the library's own way of the operation, `act`.
template <class Act>
auto collectively(rank_state& state, collective where, const Act& act) {
    enter(state, where);
    if constexpr (std::is_void_v<decltype(act())>) {
        act();
        leave(state);
    } else {
        const auto result = act();
        leave(state);
        return result;
    }
}
// In place of leave(), for the window that was created.
void leave(rank_state& state, window made, const void* base, std::size_t bytes);

void put(rank_state& state, window win, int target, std::size_t offset, std::size_t bytes, const void* source);
void put_notify(rank_state& state, window win, int target, std::size_t offset, std::size_t bytes, const void* source,
                int tag);
// get, get_notify.
void get(rank_state& state, const get_request& request);
// An atomic operation; the bits that the element held before.
std::uint64_t update(rank_state& state, const update_request& request);
// Puts and gets of boxes.
void box(rank_state& state, const box_request& request);
// accumulate, accumulate_notify.
void accumulate(rank_state& state, const accumulate_request& request);
// `kind`: notify or notify_relaxed.
void notify(rank_state& state, operation kind, int target, communicator comm, int tag);
void wait_notifications(rank_state& state, int tag, int count);
void wait_notifications_from(rank_state& state, int source, communicator comm, int tag, int count);
bool wait_notifications_for(rank_state& state, int tag, int count, std::uint64_t nanoseconds);
int wait_any(rank_state& state, int first_tag, int tags);
int wait_some(rank_state& state, int first_tag, int tags, int* arrived);
bool test_notifications(rank_state& state, int tag, int count);
int pending_notifications(rank_state& state, int tag);
void flush(rank_state& state, window win);

// One thread: memory of a kernel was read or written, at the instruction before this return address. What the compiler
// puts into kernels that are built for the checker calls it.
void touched(const void* memory, std::size_t bytes, bool is_store, const void* return_address);
// One thread makes an atomic operation on this word.
void synchronize(const void* word);
// One thread waits for something in memory.
void yield();
// One thread comes to a meeting of the block's threads, an operation or __syncthreads, while others wait in another
// one.
void threads_part(bool by_operation);
// Whether this rank is checked, so that the checker tells of that.
bool watches_threads();

// The thread of a rank ends, in an orderly way or not.
void thread_ends();

} // namespace dcuda::detail::check

#endif
