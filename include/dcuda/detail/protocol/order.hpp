// SPDX-License-Identifier: BSD-3-Clause
// The ordering steps of the protocol, by name, and how far each reaches. memory.hpp has the operations.
#pragma once

#include <cstdint>

#include "dcuda/config.hpp"

namespace dcuda::detail {

// Who must see an operation: the threads of this device, or also those of other devices and of the host.
enum class scope { device, system };

// For words that remember something of each.
DCUDA_HOST_DEVICE constexpr std::uint32_t bit_of(scope reach) { return 1u << static_cast<unsigned>(reach); }

// The ordering steps of the protocol.
enum class order_tag : int {
    none,               // relaxed on purpose: nothing is read or written on the strength of it
    notify_publish,     // source rank: data of puts -> its notification
    notify_observe,     // target rank: notification seen -> data readable
    collective_arrive,  // rank: what it did before -> its arrival; last rank: all arrivals -> what it does for all
    collective_release, // last rank: what all did -> the generation
    collective_observe, // rank: generation seen -> what all did
    barrier_arrive,     // rank: what it did, and those whose arrival it saw -> its own arrival
    barrier_observe,    // rank: arrivals seen -> what those ranks did
    device_arrive,      // leader of a device: what its ranks did -> the arrival at another device
    device_observe,     // rank: arrival of other devices seen -> what their ranks did
    command_publish,    // rank: payload and what it refers to -> the command's sequence number
    command_observe,    // host: sequence number seen -> payload and what it refers to
    reply_publish,      // host: what it prepared -> the reply
    reply_observe,      // rank: reply seen -> what the host prepared
    slot_free,          // host: has read a command -> its slot may be used again
    slot_reuse,         // rank: slot seen free -> writes the next command into it
    message_publish,    // source rank: payload of a packet -> its sequence number
    message_observe,    // target rank: sequence number seen -> payload, and what a message releases
    queue_free,         // target rank: has read packets and placed their payload -> the credit
    queue_reuse,        // source rank: credit seen -> new packets there, or a put over what the old ones wrote
    write_publish,      // host: what it wrote for another process of this host -> the write's number
    write_observe,      // host: number seen -> what was written
    exchange_publish,   // member: payload of a packet -> its number; and in a barrier what the member did before
    exchange_observe,   // member: number seen -> payload, and what the other did before a barrier
    window_free,        // rank: its device's members have done with a window -> the slot is free
    window_reuse,       // rank: slot seen free -> writes another window into it
    atomic_publish,     // rank: what it put before -> its atomic operation
    atomic_observe,     // rank: atomic operation that saw another's -> what that rank put before
};

} // namespace dcuda::detail
