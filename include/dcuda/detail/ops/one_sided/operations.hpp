// SPDX-License-Identifier: BSD-3-Clause
// Gets, atomic operations, accumulates and boxes, as ops/operations.hpp performs them.
#pragma once

#include "dcuda/detail/ops/check.hpp"
#include "dcuda/detail/ops/one_sided/accumulate.hpp"
#include "dcuda/detail/ops/one_sided/atomics.hpp"
#include "dcuda/detail/ops/one_sided/box.hpp"
#include "dcuda/detail/ops/one_sided/get.hpp"
#include "dcuda/detail/ops/profile.hpp"
#include "dcuda/operators.hpp"

namespace dcuda::detail {

// get, and get_notify with a tag.
template <operation Kind>
struct get_operation {
    static constexpr operation kind = Kind;
    template <class... Tag>
    DCUDA_DEVICE static event_fields event(window win, int target, std::size_t, std::size_t bytes, void*, Tag... tag) {
        return {.tag = (0 + ... + tag), .peer = target, .window = win.id, .bytes = bytes};
    }
    template <class... Tag>
    DCUDA_DEVICE static void run(const caller& by, window win, int target, std::size_t offset, std::size_t bytes,
                                 void* destination, Tag... tag) {
        exec::far(get_from_window)(by, request(win, target, offset, bytes, destination, tag...));
    }
#if DCUDA_BACKEND_CPU
    template <class... Tag>
    static void check(rank_state& state, window win, int target, std::size_t offset, std::size_t bytes,
                      void* destination, Tag... tag) {
        check::get(state, request(win, target, offset, bytes, destination, tag...));
    }
#endif

private:
    DCUDA_DEVICE static get_request request(window win, int target, std::size_t offset, std::size_t bytes,
                                            void* destination, int tag = 0) {
        return {{win.id, static_cast<std::uint32_t>(target), offset, bytes, kind, static_cast<std::uint32_t>(tag)},
                static_cast<std::byte*>(destination)};
    }
};

// What an operation of the table does to the element.
DCUDA_HOST_DEVICE constexpr atomic_action action_of(operation kind) {
    switch (kind) {
    case operation::fetch_and:
        return atomic_action::bit_and;
    case operation::fetch_or:
        return atomic_action::bit_or;
    case operation::fetch_xor:
        return atomic_action::bit_xor;
    case operation::fetch_min:
        return atomic_action::minimum;
    case operation::fetch_max:
        return atomic_action::maximum;
    case operation::exchange:
        return atomic_action::exchange;
    case operation::compare_swap:
        return atomic_action::compare_swap;
    default:
        return atomic_action::add;
    }
}

// The atomic operations. Without a result: add.
template <operation Kind, class T>
struct atomic_operation {
    static constexpr operation kind = Kind;
    static constexpr bool has_result = Kind != operation::add;
    DCUDA_DEVICE static event_fields event(window win, int target, std::size_t, T, T) {
        return {.peer = target, .window = win.id, .bytes = sizeof(T)};
    }
    DCUDA_DEVICE static void end(rank_state& state, T, window win, int target, std::size_t offset, T operand,
                                 T expected) {
        end_operation<kind>(state, event(win, target, offset, operand, expected));
    }
    DCUDA_DEVICE static auto run(const caller& by, window win, int target, std::size_t offset, T operand, T expected) {
        const std::uint64_t before = exec::far(update_window<T, action_of(Kind), has_result>)(
            by, request(win, target, offset, operand, expected));
        if constexpr (has_result) return value_of<T>(before);
    }
#if DCUDA_BACKEND_CPU
    static auto check(rank_state& state, window win, int target, std::size_t offset, T operand, T expected) {
        const std::uint64_t before = check::update(state, request(win, target, offset, operand, expected));
        if constexpr (has_result) return value_of<T>(before);
    }
#endif

private:
    DCUDA_DEVICE static update_request request(window win, int target, std::size_t offset, T operand, T expected) {
        return {{win.id, static_cast<std::uint32_t>(target), offset, sizeof(T), kind},
                {action_of(kind), type_of<T>(), bits_of(operand), bits_of(expected)},
                has_result ? 1u : 0u};
    }
};

// What an accumulate with this operator does to an element; count: there is none.
template <class Operator>
inline constexpr atomic_action action_with = std::is_same_v<Operator, sum>       ? atomic_action::add
                                             : std::is_same_v<Operator, product> ? atomic_action::multiply
                                             : std::is_same_v<Operator, minimum> ? atomic_action::minimum
                                             : std::is_same_v<Operator, maximum> ? atomic_action::maximum
                                             : std::is_same_v<Operator, bit_and> ? atomic_action::bit_and
                                             : std::is_same_v<Operator, bit_or>  ? atomic_action::bit_or
                                             : std::is_same_v<Operator, bit_xor> ? atomic_action::bit_xor
                                                                                 : atomic_action::count;

// accumulate, and accumulate_notify with a tag.
template <operation Kind, class T, class Operator>
struct accumulate_operation {
    static constexpr operation kind = Kind;
    template <class... Tag>
    DCUDA_DEVICE static event_fields event(window win, int target, std::size_t, std::size_t count, const T*,
                                           Tag... tag) {
        return {.tag = (0 + ... + tag), .peer = target, .window = win.id, .bytes = multiply_bounded(count, sizeof(T))};
    }
    template <class... Tag>
    DCUDA_DEVICE static void run(const caller& by, window win, int target, std::size_t offset, std::size_t count,
                                 const T* source, Tag... tag) {
        exec::far(accumulate_in_window<T, action_with<Operator>>)(by,
                                                                  request(win, target, offset, count, source, tag...));
    }
#if DCUDA_BACKEND_CPU
    template <class... Tag>
    static void check(rank_state& state, window win, int target, std::size_t offset, std::size_t count, const T* source,
                      Tag... tag) {
        check::accumulate(state, request(win, target, offset, count, source, tag...));
    }
#endif

private:
    DCUDA_DEVICE static accumulate_request request(window win, int target, std::size_t offset, std::size_t count,
                                                   const T* source, int tag = 0) {
        return {{win.id, static_cast<std::uint32_t>(target), offset, multiply_bounded(count, sizeof(T)), kind,
                 static_cast<std::uint32_t>(tag)},
                reinterpret_cast<const std::byte*>(source),
                update_code({action_with<Operator>, type_of<T>(), 0, 0})};
    }
};

// Puts and gets of boxes. `Byte` is const in puts.
template <operation Kind, class Byte>
struct box_operation {
    static constexpr operation kind = Kind;
    template <class... Tag>
    DCUDA_DEVICE static event_fields event(window win, int target, std::size_t, pitch, box shape, Byte*, pitch,
                                           Tag... tag) {
        return {.tag = (0 + ... + tag), .peer = target, .window = win.id, .bytes = payload_of(shape)};
    }
    template <class... Tag>
    DCUDA_DEVICE static void run(const caller& by, window win, int target, std::size_t offset, pitch at_target,
                                 box shape, Byte* memory, pitch here, Tag... tag) {
        const box_request asked = request(win, target, offset, at_target, shape, memory, here, tag...);
        exec::far(move_box)(by, asked);
    }
#if DCUDA_BACKEND_CPU
    template <class... Tag>
    static void check(rank_state& state, window win, int target, std::size_t offset, pitch at_target, box shape,
                      Byte* memory, pitch here, Tag... tag) {
        check::box(state, request(win, target, offset, at_target, shape, memory, here, tag...));
    }
#endif

private:
    DCUDA_DEVICE static box_request request(window win, int target, std::size_t offset, pitch at_target, box shape,
                                            Byte* memory, pitch here, int tag = 0) {
        return {{win.id, static_cast<std::uint32_t>(target), offset, span_of(shape, at_target), kind,
                 static_cast<std::uint32_t>(tag)},
                shape,
                at_target,
                here,
                const_cast<std::byte*>(static_cast<const std::byte*>(memory))};
    }
};

} // namespace dcuda::detail
