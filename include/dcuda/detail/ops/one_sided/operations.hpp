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
        get_from_window(by, request(win, target, offset, bytes, destination, tag...));
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

// The atomic operations. Without a result: add.
template <operation Kind, class T>
struct atomic_operation {
    static constexpr operation kind = Kind;
    static constexpr bool has_result = element_operation<Kind, T>::has_result;
    DCUDA_DEVICE static event_fields event(window win, int target, std::size_t, T, T) {
        return {.peer = target, .window = win.id, .bytes = sizeof(T)};
    }
    DCUDA_DEVICE static void end(rank_state& state, T, window win, int target, std::size_t offset, T operand,
                                 T expected) {
        end_operation<kind>(state, event(win, target, offset, operand, expected));
    }
    DCUDA_DEVICE static auto run(const caller& by, window win, int target, std::size_t offset, T operand, T expected) {
        const std::uint64_t before = update_window(by, asked(win, target, offset, operand, expected));
        if constexpr (has_result) return value_of<T>(before);
    }
#if DCUDA_BACKEND_CPU
    static auto check(rank_state& state, window win, int target, std::size_t offset, T operand, T expected) {
        const std::uint64_t before = check::update(state, asked(win, target, offset, operand, expected).request());
        if constexpr (has_result) return value_of<T>(before);
    }
#endif

private:
    DCUDA_DEVICE static element_operation<Kind, T> asked(window win, int target, std::size_t offset, T operand,
                                                         T expected) {
        return {win.id, static_cast<std::uint32_t>(target), offset, operand, expected};
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
        accumulate_in_window(by, elements(win, target, offset, count, source, tag...));
    }
#if DCUDA_BACKEND_CPU
    template <class... Tag>
    static void check(rank_state& state, window win, int target, std::size_t offset, std::size_t count, const T* source,
                      Tag... tag) {
        check::accumulate(state, elements(win, target, offset, count, source, tag...).request());
    }
#endif

private:
    DCUDA_DEVICE static source_elements<T, action_with<Operator>>
    elements(window win, int target, std::size_t offset, std::size_t count, const T* source, int tag = 0) {
        return {{win.id, static_cast<std::uint32_t>(target), offset, multiply_bounded(count, sizeof(T)), kind,
                 static_cast<std::uint32_t>(tag)},
                reinterpret_cast<const std::byte*>(source)};
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
        auto* const place = const_cast<std::byte*>(static_cast<const std::byte*>(memory));
        by.group().sync(); // nobody reads the request before
        if (by.group().leads())
            by.state().moved_box() = request(win, target, offset, at_target, shape, memory, here, tag...);
        move_box(by, place);
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
