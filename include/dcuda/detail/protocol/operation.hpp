// SPDX-License-Identifier: BSD-3-Clause
// The operations of a rank: the one table of them. Faults, waits, events of profiled runs and the protocol checker name
// an operation by this enumeration, and what they say of it comes from its row.
#pragma once

#include <cstdint>

#include "dcuda/detail/exec/launch.hpp"
#include "dcuda/types.hpp"

namespace dcuda::detail {

enum class operation : std::uint32_t {
    none,
    init,   // the rank's constructor
    finish, // its destructor
    put,
    put_notify,
    get,
    get_notify,
    fetch_add,
    fetch_and,
    fetch_or,
    fetch_xor,
    fetch_min,
    fetch_max,
    exchange,
    compare_swap,
    add, // without a result
    accumulate,
    accumulate_notify,
    notify,
    notify_relaxed,
    wait_notifications,
    wait_notifications_from,
    wait_notifications_for,
    wait_any,
    wait_some,             // an event for each tag
    test_notifications,    // an event only if it was successful
    pending_notifications, // no event
    flush,
    create_window,
    free_window,
    barrier,
    split,
    free_communicator,
    allreduce,
    reduce,
    broadcast,
    reduce_scatter,
    scan,
    exclusive_scan,
    gather,
    all_gather,
    scatter,
    all_to_all,
    start_allreduce,
    finish_allreduce,
    start_timer,
    stop_timer,
    count,
};

// By which a timeline is summed up. Gets and atomic operations are part of putting: of working on others' windows.
enum class activity : std::uint32_t { computing, putting, waiting, collective };

// What the event of an operation says, beside its time.
namespace operand {
enum : std::uint32_t {
    target = 1, // and the path to it
    tag = 2,
    count = 4,
    bytes = 8,
    window = 16,
    communicator = 32,
    multiprocessor = 64,
    source = 128, // its world rank, in place of bytes
};
}

struct operation_traits {
    const char* name; // as programs write it
    activity kind;
    std::uint32_t operands;
};

// In the order of the enumeration.
inline constexpr operation_traits operation_table[] = {
    {"an operation", activity::computing, 0},
    {"init", activity::collective, operand::multiprocessor},
    {"finish", activity::collective, 0},
    {"put", activity::putting, operand::target | operand::bytes | operand::window},
    {"put_notify", activity::putting, operand::target | operand::tag | operand::bytes | operand::window},
    {"get", activity::putting, operand::target | operand::bytes | operand::window},
    {"get_notify", activity::putting, operand::target | operand::tag | operand::bytes | operand::window},
    {"fetch_add", activity::putting, operand::target | operand::bytes | operand::window},
    {"fetch_and", activity::putting, operand::target | operand::bytes | operand::window},
    {"fetch_or", activity::putting, operand::target | operand::bytes | operand::window},
    {"fetch_xor", activity::putting, operand::target | operand::bytes | operand::window},
    {"fetch_min", activity::putting, operand::target | operand::bytes | operand::window},
    {"fetch_max", activity::putting, operand::target | operand::bytes | operand::window},
    {"exchange", activity::putting, operand::target | operand::bytes | operand::window},
    {"compare_swap", activity::putting, operand::target | operand::bytes | operand::window},
    {"add", activity::putting, operand::target | operand::bytes | operand::window},
    {"accumulate", activity::putting, operand::target | operand::bytes | operand::window},
    {"accumulate_notify", activity::putting, operand::target | operand::tag | operand::bytes | operand::window},
    {"notify", activity::putting, operand::target | operand::tag},
    {"notify_relaxed", activity::putting, operand::target | operand::tag},
    {"wait_notifications", activity::waiting, operand::tag | operand::count},
    {"wait_notifications_from", activity::waiting, operand::tag | operand::count | operand::source},
    {"wait_notifications_for", activity::waiting, operand::tag | operand::count},
    {"wait_any", activity::waiting, operand::tag | operand::count},
    {"wait_some", activity::waiting, operand::tag | operand::count},
    {"test_notifications", activity::waiting, operand::tag | operand::count},
    {"pending_notifications", activity::waiting, operand::tag},
    {"flush", activity::putting, operand::window},
    {"create_window", activity::collective, operand::bytes | operand::communicator},
    {"free_window", activity::collective, operand::window},
    {"barrier", activity::collective, operand::communicator},
    {"split", activity::collective, operand::communicator},
    {"free_communicator", activity::collective, operand::communicator},
    {"allreduce", activity::collective, operand::bytes | operand::communicator},
    {"reduce", activity::collective, operand::bytes | operand::communicator},
    {"broadcast", activity::collective, operand::bytes | operand::communicator},
    {"reduce_scatter", activity::collective, operand::bytes | operand::communicator},
    {"scan", activity::collective, operand::bytes | operand::communicator},
    {"exclusive_scan", activity::collective, operand::bytes | operand::communicator},
    {"gather", activity::collective, operand::bytes | operand::communicator},
    {"all_gather", activity::collective, operand::bytes | operand::communicator},
    {"scatter", activity::collective, operand::bytes | operand::communicator},
    {"all_to_all", activity::collective, operand::bytes | operand::communicator},
    {"start_allreduce", activity::putting, operand::bytes | operand::communicator},
    {"finish_allreduce", activity::collective, operand::bytes | operand::communicator},
    {"start_timer", activity::collective, 0},
    {"stop_timer", activity::collective, 0},
};
inline constexpr std::size_t operation_count = static_cast<std::size_t>(operation::count);
static_assert(sizeof operation_table == operation_count * sizeof(operation_traits));

// A row, for the host: what the device gives may be no operation.
inline const operation_traits& traits_of(operation kind) {
    return operation_table[kind < operation::count ? static_cast<std::size_t>(kind) : 0];
}

// Whether an operation notifies a rank: those that name a target and a tag. For the host.
inline bool notifies(operation kind) {
    constexpr std::uint32_t names = operand::target | operand::tag;
    return (traits_of(kind).operands & names) == names;
}

// Whether it waits for one notification with any of several tags. For the host.
inline bool takes_any_tag(operation kind) { return kind == operation::wait_any || kind == operation::wait_some; }

// For device code, which knows the operation when it is compiled: whether it names a target; and a window.
template <operation Kind>
inline constexpr bool is_message = (operation_table[static_cast<std::size_t>(Kind)].operands & operand::target) != 0;
// Whether it only looks at what has come: all of its calls are counted, also those that leave no event.
template <operation Kind>
inline constexpr bool is_test = Kind == operation::test_notifications || Kind == operation::pending_notifications;
// Whether it is a get or an atomic operation, which sends nothing that a path would count.
template <operation Kind>
inline constexpr bool is_access = (Kind >= operation::get) && (Kind <= operation::accumulate_notify);
template <operation Kind>
inline constexpr bool has_window = (operation_table[static_cast<std::size_t>(Kind)].operands & operand::window) != 0;

inline constexpr std::uint32_t communicator_count = 2; // that have words for barriers: world and device

// Where the ranks of the world, or of a device, meet: in an operation that all of them call. Each place has its own
// words, so that ranks that meet in different ones wait (and the watchdog names both) instead of taking each other for
// partners. The start and the end of the kernel, barriers and free_window are barriers; the others are of the device's
// ranks, whatever communicator a window has.
struct collective {
    operation kind;
    communicator comm;

    static constexpr std::uint32_t barriers = 2 + 2 * communicator_count;
    static constexpr std::uint32_t count = barriers + 3;

    DCUDA_HOST_DEVICE constexpr std::uint32_t index() const {
        return kind == operation::init            ? 0
               : kind == operation::finish        ? 1
               : kind == operation::create_window ? barriers
               : kind == operation::start_timer   ? barriers + 1
               : kind == operation::stop_timer
                   ? barriers + 2
                   : 2 + 2 * static_cast<std::uint32_t>(comm) + (kind == operation::free_window ? 1 : 0);
    }
    // The other way. PERF: ranks hand the index on, and decode it only if they wait for long.
    DCUDA_HOST_DEVICE static constexpr collective at(std::uint32_t index) {
        return index == 0              ? collective{operation::init, communicator::world}
               : index == 1            ? collective{operation::finish, communicator::world}
               : index == barriers     ? collective{operation::create_window, communicator::device}
               : index == barriers + 1 ? collective{operation::start_timer, communicator::device}
               : index == barriers + 2 ? collective{operation::stop_timer, communicator::device}
                                       : collective{index % 2 == 0 ? operation::barrier : operation::free_window,
                                                    static_cast<communicator>(index / 2 - 1)};
    }
    friend bool operator==(const collective&, const collective&) = default;
};

// As users know it. For the host.
inline const char* name_of(const collective& where) {
    switch (where.kind) {
    case operation::init:
        return "the start of the kernel";
    case operation::finish:
        return "the end of the kernel";
    case operation::barrier:
        return where.comm == world ? "barrier(world)" : "barrier(device)";
    default:
        return traits_of(where.kind).name;
    }
}

// Whether it is a collective operation on values or data, which orders nothing else. For the host.
inline bool is_data_collective(operation kind) { return kind >= operation::allreduce && kind <= operation::all_to_all; }

// Whether its members meet by exchanging packets, whatever the communicator: waits in it know for whom. For the host.
inline bool is_exchange(operation kind) { return kind >= operation::split && kind <= operation::all_to_all; }

} // namespace dcuda::detail
