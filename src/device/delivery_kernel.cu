// SPDX-License-Identifier: BSD-3-Clause
// The delivery kernel: a small kernel beside the user's that makes deliveries in device memory for the host
// (network/delivery.hpp). The host cannot do that itself while a kernel runs: a copy by the driver takes 5 us, and
// ranks that polled host memory would all have to cross PCIe for every poll.
#include "dcuda/detail/ops/mailbox.hpp"
#include "dcuda/detail/protocol/atomics.hpp"
#include "device/delivery_kernel.hpp"

namespace dcuda {

using namespace detail;

namespace {

inline constexpr unsigned commands_of_warp = 32 / packets_per_command; // a packet per lane
inline constexpr unsigned commands_of_look = 2 * commands_of_warp;
inline constexpr unsigned most_copies = commands_of_look; // at a time

// A delivery whose payload lies in host memory: a copy, rows or elements. Warps take it in parts, each with as many
// loads as are under way at once.
struct delivery_copy {
    delivery_kind kind;
    std::byte* target;
    const std::byte* source;
    std::uint32_t bytes;
    std::uint32_t width;    // of a row
    std::uint64_t distance; // from row to row
    std::uint32_t update;   // update_code of elements
    std::uint32_t* counter; // to notify then, or null
};
inline constexpr unsigned delivery_loads = 4; // loads of 16 bytes, per thread
inline constexpr std::uint32_t delivery_part_bytes = 32 * delivery_loads * 16;

struct delivery_state {
    std::uint32_t next;     // the command that the delivery kernel waits for
    std::uint32_t reported; // up to here the host knows what is done
    std::uint32_t ends;     // 1: the host wants no more
    std::uint32_t count;
    delivery_copy copies[most_copies]; // for all threads; none overlaps another
};

DCUDA_DEVICE std::uint32_t* counter_of(const delivery_task& task, std::uint32_t rank, std::uint32_t tag) {
    return tag == no_tag ? nullptr : task.counters + std::size_t(rank) * task.tags + tag;
}

// Makes deliveries until there are some for all threads. The first warp.
//
// ORDER command-publish -> command-observe: the sequence number of a packet comes with its payload.
// ORDER notify-publish: the stores of all lanes come before the fence of each lane (the warp's barrier), and that
// before each lane's additions, so a notification comes after all payload before it. Payload that a copy engine has
// placed was complete, in the device's memory, before the host asked for the notification. ORDER slot-free: what the
// delivery kernel has read and placed comes before the host learns that it is done. PERF: a poll has to cross PCIe and
// back. While nothing comes, only the next two commands are polled, then sixteen at once, two packets per lane. More
// looks under way bring nothing: those of a warp to one line are answered one after the other (H200, 2026-11-22). A
// fence takes 0.2 us, so notifications without payload do without.
//
// ORDER exchange-publish: a member of another process may have released, before it sent a packet, what a third one is
// to see; its host and ours have passed that on. So the first packet of a look acquires at system scope and releases
// for the device, and later ones release payload that is new.
DCUDA_DEVICE void deliver_small(const delivery_task& task, delivery_state& state) {
    const warp_group all{threadIdx.x, 32};
    const unsigned lane = all.index;
    constexpr unsigned idle_lanes = 2 * packets_per_command, parts = commands_of_look / commands_of_warp;
    unsigned lanes = idle_lanes;
    bool unreleased = true; // payload that was stored since the last fence, also by the other warps
    for (std::uint32_t next = state.next;;) {
        packet polled[parts];
        DCUDA_UNROLL
        for (unsigned part = 0; part < parts; ++part) {
            const std::uint32_t own = next + part * commands_of_warp + lane / packets_per_command;
            polled[part].sequence = own; // not what is expected
            if (lane < lanes && (part == 0 || lanes == 32))
                polled[part] = load_packet<order_tag::command_observe>(
                    task.slots + std::size_t(own % delivery_capacity) * packets_per_command +
                        lane % packets_per_command,
                    own + 1);
        }
        unsigned copies = 0;
        bool has_acquired = false;        // what commands of this look follow
        std::uint64_t begin = 0, end = 0; // of the copy with this lane's number
        lanes = idle_lanes;
        DCUDA_UNROLL
        for (unsigned part = 0; part < parts; ++part) {
            const packet& got = polled[part];
            const unsigned missing = ~vote(all, got.sequence == next + lane / packets_per_command + 1);
            const unsigned there = (missing == 0 ? 32 : lowest(missing)) / packets_per_command; // commands
            if (part == 0 && all.leads() && next != state.reported &&
                (there == 0 || next - state.reported > delivery_capacity / 4)) {
                store_release<order_tag::slot_free>(scope::system, task.done, next);
                state.reported = next;
            }
            if (there != 0) lanes = 32;
            unsigned taken = 0;
            std::uint32_t* notify = nullptr;
            const auto send_notifications = [&] {
                if (vote(all, notify != nullptr) == 0) return;
                if (unreleased) fence_release<order_tag::notify_publish>(scope::device);
                unreleased = false;
                if (notify != nullptr) add_after_fence<order_tag::notify_publish>(notify, 1u);
                notify = nullptr;
            };
            while (taken < there) {
                const unsigned first = taken * packets_per_command; // the command's lane
                const auto kind = static_cast<delivery_kind>(broadcast(all, got.payload[0], first));
                const std::uint32_t rank = broadcast(all, got.payload[1], first);
                const std::uint32_t tag = broadcast(all, got.payload[2], first);
                const std::uint32_t bytes = broadcast(all, got.payload[0], first + 1);
                const std::uint64_t low = broadcast(all, got.payload[1], first + 1);
                const std::uint64_t address = low | std::uint64_t(broadcast(all, got.payload[2], first + 1)) << 32;
                auto* const place = reinterpret_cast<std::byte*>(address);
                unsigned commands = 1;
                if (kind == delivery_kind::copy || kind == delivery_kind::rows || kind == delivery_kind::combine) {
                    std::uint64_t span = bytes;
                    if (kind == delivery_kind::rows) {
                        const std::uint32_t width = broadcast(all, got.payload[2], first + 2);
                        const std::uint64_t distance = broadcast(all, got.payload[0], first + 3) |
                                                       std::uint64_t(broadcast(all, got.payload[1], first + 3)) << 32;
                        span = (bytes / width - 1) * distance + width;
                    }
                    // Of two puts to one place the later wins: it waits for the next poll.
                    if (copies == most_copies ||
                        vote(all, lane < copies && begin < address + span && address < end) != 0)
                        break;
                    if (lane == copies) begin = address, end = address + span;
                    // PERF: each lane writes what it has; registers are scarce here.
                    delivery_copy& copy = state.copies[copies];
                    if (all.leads()) {
                        copy.kind = kind;
                        copy.target = place;
                        copy.bytes = bytes;
                        copy.counter = counter_of(task, rank, tag);
                    }
                    const std::uint64_t words = got.payload[0] | std::uint64_t(got.payload[1]) << 32;
                    if (lane == first + 2) {
                        copy.source = reinterpret_cast<const std::byte*>(words);
                        copy.width = got.payload[2];
                    }
                    if (lane == first + 3) {
                        copy.distance = words;
                        copy.update = got.payload[2];
                    }
                    ++copies;
                } else if (copies != 0) {
                    break; // that comes after them
                } else if (kind == delivery_kind::put) {
                    commands = delivery_commands(bytes);
                    if (taken + commands > there) break;      // the rest is on its way
                    const unsigned number = lane - first - 2; // of the payload's packet
                    const std::uint32_t at = number * packet_payload_bytes;
                    if (lane >= first + 2 && at < bytes)
                        store_chunk(place + at, chunk_bytes(bytes, number), got.payload);
                    if (lane == first) notify = counter_of(task, rank, tag);
                    if (bytes != 0) {
                        unreleased = true;
                        sync(all); // of two puts to one place the later wins
                    }
                } else if (kind == delivery_kind::packets) {
                    send_notifications();
                    if (!has_acquired) acquire_packet<order_tag::command_observe>(scope::system);
                    if (unreleased || !has_acquired) fence_release<order_tag::exchange_publish>(scope::device);
                    has_acquired = true;
                    unreleased = false;
                    const unsigned number = lane - first - 2; // of the unit's packet
                    if (number < unit_packets)
                        store_packet<order_tag::exchange_publish>(reinterpret_cast<packet*>(place) + number,
                                                                  got.payload[0], got.payload[1], got.payload[2], tag);
                } else if (kind == delivery_kind::update) {
                    // ORDER atomic-publish, atomic-observe: the payload of all lanes comes before the warp's barrier,
                    // and that before the leader's fence. The host passes on what the operation has seen.
                    send_notifications();
                    const std::uint64_t operand = broadcast(all, got.payload[0], first + 2) |
                                                  std::uint64_t(broadcast(all, got.payload[1], first + 2)) << 32;
                    const std::uint64_t expected = broadcast(all, got.payload[2], first + 2) |
                                                   std::uint64_t(broadcast(all, got.payload[0], first + 3)) << 32;
                    if (all.leads()) {
                        fence_release<order_tag::atomic_publish>(scope::system);
                        task.results[bytes] = update_element(place, update_of(tag, operand, expected));
                        acquire_packet<order_tag::atomic_observe>(scope::system);
                    }
                    unreleased = true; // a notification tells of it, too
                    sync(all);
                } else if (kind == delivery_kind::reply) {
                    // ORDER reply-publish: after all before it.
                    send_notifications();
                    const std::uint32_t value = broadcast(all, got.payload[0], first + 2);
                    if (all.leads())
                        store_release<order_tag::reply_publish>(scope::system, reinterpret_cast<std::uint32_t*>(place),
                                                                value);
                } else if (all.leads()) {
                    state.ends = 1;
                }
                taken += commands;
            }
            send_notifications();
            next += taken;
            if (taken < commands_of_warp) break; // what follows is for the next poll
        }
        if (all.leads()) {
            state.next = next;
            state.count = copies;
        }
        sync(all);
        if (copies != 0 || state.ends != 0) return;
    }
}

// At most a part. False if it does not consist of such words.
template <class Word>
DCUDA_DEVICE bool copy_part(std::byte* target, const std::byte* source, std::uint32_t bytes, unsigned lane) {
    const std::uint64_t all =
        reinterpret_cast<std::uintptr_t>(target) | reinterpret_cast<std::uintptr_t>(source) | bytes;
    if (all % sizeof(Word) != 0) return false;
    const std::uint32_t words = bytes / sizeof(Word);
    for (std::uint32_t i = lane; i < words; i += 32 * delivery_loads) {
        Word parts[delivery_loads];
        DCUDA_UNROLL
        for (unsigned k = 0; k < delivery_loads; ++k)
            if (i + 32 * k < words) parts[k] = reinterpret_cast<const Word*>(source)[i + 32 * k];
        DCUDA_UNROLL
        for (unsigned k = 0; k < delivery_loads; ++k)
            if (i + 32 * k < words) reinterpret_cast<Word*>(target)[i + 32 * k] = parts[k];
    }
    return true;
}

// At most a part of rows, from `at` on. False if rows and what lies between do not consist of such words.
template <class Word>
DCUDA_DEVICE bool scatter_part(const delivery_copy& rows, std::uint32_t at, std::uint32_t bytes, unsigned lane) {
    const std::uint64_t all = reinterpret_cast<std::uintptr_t>(rows.target) |
                              reinterpret_cast<std::uintptr_t>(rows.source) | rows.width | rows.distance;
    if (all % sizeof(Word) != 0) return false;
    for (std::uint32_t place = at + lane * sizeof(Word); place < at + bytes; place += 32 * sizeof(Word)) {
        const std::uint32_t row = place / rows.width, in_row = place - row * rows.width;
        *reinterpret_cast<Word*>(rows.target + row * rows.distance + in_row) =
            *reinterpret_cast<const Word*>(rows.source + place);
    }
    return true;
}

// The same of elements. ORDER: no element is a release (ops/one_sided/accumulate.hpp).
DCUDA_DEVICE void combine_part(const delivery_copy& elements, std::uint32_t at, std::uint32_t bytes, unsigned lane) {
    const element_type type = update_of(elements.update, 0, 0).type;
    const std::uint32_t size = size_of_element(type);
    for (std::uint32_t place = at + lane * size; place < at + bytes; place += 32 * size)
        update_element(elements.target + place, update_of(elements.update, bits_at(elements.source + place, type), 0));
}

// At most a part of a delivery. One warp.
DCUDA_DEVICE void make_part(const delivery_copy& whole, std::uint32_t at, std::uint32_t bytes, unsigned lane) {
    if (whole.kind == delivery_kind::combine) return combine_part(whole, at, bytes, lane);
    if (whole.kind == delivery_kind::rows) {
        if (!scatter_part<std::uint64_t>(whole, at, bytes, lane) &&
            !scatter_part<std::uint32_t>(whole, at, bytes, lane))
            scatter_part<std::byte>(whole, at, bytes, lane);
    } else if (!copy_part<uint4>(whole.target + at, whole.source + at, bytes, lane) &&
               !copy_part<std::uint32_t>(whole.target + at, whole.source + at, bytes, lane)) {
        copy_part<std::byte>(whole.target + at, whole.source + at, bytes, lane);
    }
}

// All threads: the warps take the parts of all copies in turn.
DCUDA_DEVICE void make_copies(const delivery_state& state) {
    // ORDER command-observe: the payload lies in host memory, where other payload may have lain before.
    acquire_packet<order_tag::command_observe>(scope::system);
    const unsigned lane = threadIdx.x % 32, warps = blockDim.x / 32;
    unsigned part = threadIdx.x / 32; // counted from the begin of copy i
    for (unsigned i = 0; i < state.count; ++i) {
        const delivery_copy& whole = state.copies[i];
        const unsigned parts = (whole.bytes + delivery_part_bytes - 1) / delivery_part_bytes;
        for (; part < parts; part += warps) {
            const std::uint32_t at = part * delivery_part_bytes, left = whole.bytes - at;
            make_part(whole, at, left < delivery_part_bytes ? left : delivery_part_bytes, lane);
        }
        part -= parts;
    }
}

__global__ void __launch_bounds__(most_delivery_threads) delivery_kernel(delivery_task task) {
    __shared__ delivery_state state;
    if (threadIdx.x == 0) {
        state.next = state.reported = state.ends = state.count = 0;
        store_relaxed(task.started, 1);
    }
    __syncthreads();
    while (state.ends == 0) {
        if (threadIdx.x < 32) deliver_small(task, state);
        __syncthreads();
        make_copies(state);
        __syncthreads();
        if (threadIdx.x < state.count && state.copies[threadIdx.x].counter != nullptr)
            add_release<order_tag::notify_publish>(scope::device, state.copies[threadIdx.x].counter, 1u);
        __syncthreads();
    }
    if (threadIdx.x == 0) store_release<order_tag::slot_free>(scope::system, task.done, state.next);
}

} // namespace

const void* delivery_kernel_address() { return reinterpret_cast<const void*>(&delivery_kernel); }

} // namespace dcuda
