// SPDX-License-Identifier: BSD-3-Clause
// What puts, notifications and waits ask for, and what targets are looked for by.
#pragma once

#include "dcuda/detail/protocol/protocol.hpp"

namespace dcuda::detail {

// What a target is looked for by: the window's id, and the rank in its communicator. For notifications alone the number
// of the communicator stands in the upper half in place of the id; no window has such a lower half.
inline constexpr std::uint32_t notify_key = 0xffff, notify_unknown = UINT32_MAX;
DCUDA_DEVICE std::uint64_t target_key(std::uint32_t window, std::uint32_t rank) {
    return static_cast<std::uint64_t>(window) << 32 | rank;
}
DCUDA_DEVICE std::uint32_t notify_window(communicator comm) {
    const auto number = static_cast<std::uint32_t>(comm);
    return number < communicator_numbers ? number << 16 | notify_key : notify_unknown;
}
DCUDA_DEVICE bool is_notify_window(std::uint32_t window) { return (window & 0xffff) == notify_key; }
DCUDA_DEVICE communicator communicator_of(std::uint32_t notify) { return static_cast<communicator>(notify >> 16); }

// What is to be sent. `window` is notify_window(...) for a notification alone.
struct send_request {
    std::uint32_t window;
    std::uint32_t rank; // of the target, in the window's communicator
    std::size_t offset;
    std::size_t bytes;
    const void* source;
    operation kind; // put, put_notify, notify or notify_relaxed
    std::uint32_t tag;

    DCUDA_DEVICE bool is_notification() const { return is_notify_window(window); }
    DCUDA_DEVICE bool notifies() const { return kind != operation::put; }
};

// Part of a window: what an operation that does not put accesses there.
struct accessed_range {
    std::uint32_t window;
    std::uint32_t rank; // of the target, in the window's communicator
    std::size_t offset;
    std::size_t bytes;
    operation where;
    std::uint32_t tag = 0; // that the target is notified with then, if `where` notifies

    // Whether it is loaded, and not changed.
    DCUDA_DEVICE bool is_got() const { return where == operation::get || where == operation::get_notify; }
    DCUDA_DEVICE bool notifies() const {
        return where == operation::get_notify || where == operation::put_notify ||
               where == operation::accumulate_notify;
    }
    // To look for it, and to check it.
    DCUDA_DEVICE send_request as_put() const {
        return {window, rank, offset, bytes, nullptr, notifies() ? operation::put_notify : operation::put, tag};
    }
};

// What is moved row by row.
struct box_request {
    accessed_range range; // at the target, from the first byte of the box to its last
    box shape;
    pitch at_target, here;
    std::byte* memory; // of this rank
};

// Tags from `first` on.
struct tag_range {
    std::uint32_t first, count;
    DCUDA_DEVICE bool is(const tag_range& other) const { return (first == other.first) & (count == other.count); }
    DCUDA_DEVICE bool contains(std::uint32_t tag) const { return tag - first < count; }
    // How far number `number` of the range is behind number `begin`, around its end.
    DCUDA_DEVICE std::uint32_t distance(std::uint32_t begin, std::uint32_t number) const {
        return number >= begin ? number - begin : number + count - begin;
    }
};

} // namespace dcuda::detail
