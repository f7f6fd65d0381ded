// SPDX-License-Identifier: BSD-3-Clause
// Communicators, as a member sees them, and where members' packets lie in collective operations.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>

#include "dcuda/detail/protocol/memory.hpp"
#include "dcuda/detail/protocol/operation.hpp"

namespace dcuda::detail {

inline constexpr std::uint32_t fixed_communicators = 3; // world, device, node
inline constexpr std::uint32_t max_communicators = 64;  // that a rank is in at a time, the fixed ones among them

// The number by which programs name a communicator that split has made: its slot, and a number of the split.
inline constexpr std::uint32_t communicator_uses = 512;
inline constexpr std::uint32_t communicator_numbers = max_communicators * communicator_uses;
DCUDA_HOST_DEVICE constexpr std::uint32_t communicator_number(std::uint32_t slot, std::uint32_t uses) {
    return slot + max_communicators * (uses % communicator_uses);
}
DCUDA_HOST_DEVICE constexpr std::uint32_t slot_of_communicator(std::uint32_t number) {
    return number % max_communicators;
}

// "world", "communicator 5". For the host.
inline std::string name_of_communicator(std::uint32_t number) {
    constexpr const char* fixed[] = {"world", "device", "node"};
    if (number < fixed_communicators) return fixed[number];
    if (number == UINT32_MAX) return "the communicator none";
    const bool is_made = number < communicator_numbers; // else it is no number of one
    return "communicator " +
           std::to_string(is_made ? static_cast<int>(slot_of_communicator(number)) : static_cast<int>(number));
}

// Members of one device exchange values in rows of so many; the rows then exchange theirs, and then the devices.
// PERF: one for each thread of a warp: with two a reduction by 132 ranks takes 6.2 us (H100, 2026-11-25).
inline constexpr std::uint32_t exchange_row = 32;

// Members of communicators are in so many processes, the first ones: exchange_shape has a bit for each.
inline constexpr std::uint32_t exchange_processes = 64;

// A communicator may have so many members for operations through bounce buffers, all ranks of 15 devices with 2112
// each; a tree of their values has so many levels.
inline constexpr unsigned bounce_levels = 16;
inline constexpr std::uint32_t most_in_bounce = 1u << (bounce_levels - 1);

// A communicator may have so many members for an exchange by number.
inline constexpr std::uint32_t most_by_number = 64;

// How the members of a communicator exchange values: in up to three stages. In each stage a rank has a position among
// others, stores its value at its position in the slots of the others, and combines what has come into its own. All
// members compute the same shape.
//
// `flat`: one stage; the position of a member is that of its device, times `width`, and its number on that device. Not
// over a network, which would carry a packet of each member to each: there a device with more than two members has a
// row. Else the first stage is of the members of a row, the second of the rows of a device (if there are several), and
// the last of the devices (if there are several): its positions are those of rows, and of devices. Where a row or a
// device has fewer members than another, each of them stands for several.
//
// Of many members, and over a network, single values go by leaders (make_leader_plan): there the positions are the
// same, and fewer are used.
struct exchange_shape {
    std::uint64_t processes;     // bit by process: it has members
    std::uint32_t devices;       // how many
    std::uint32_t width;         // the most members of a device, rounded up to a power of two
    std::uint32_t rows;          // of the device that has most
    std::uint32_t is_even;       // 1: all of these devices have as many members
    std::uint32_t is_networked;  // 1: this rank reaches some members over a network only
    std::uint32_t spans_network; // 1: some member does: the same on all of them
    std::uint32_t has_leaders;   // 1: single values go by leaders
    std::uint32_t members;       // of this rank's device
    std::uint32_t before;        // of the devices before it
    std::uint32_t member;        // this rank's number among those of its device
    std::uint32_t device;        // the number of its device
    std::uint32_t units;         // that a slot has room for at each position; 0: the shape is not known yet

    DCUDA_HOST_DEVICE bool is_flat() const {
        return devices * width <= exchange_row && (spans_network == 0 || width <= 2);
    }
    // Positions of the first stage, of the second and of the last, which follow each other in a slot.
    DCUDA_HOST_DEVICE std::uint32_t row_positions() const {
        return is_flat() ? devices * width : width < exchange_row ? width : exchange_row;
    }
    DCUDA_HOST_DEVICE std::uint32_t column_positions() const { return is_flat() || rows == 1 ? 0 : rows; }
    DCUDA_HOST_DEVICE std::uint32_t device_positions() const { return is_flat() || devices == 1 ? 0 : devices; }
    DCUDA_HOST_DEVICE std::uint32_t most_positions() const {
        const std::uint32_t later = column_positions() > device_positions() ? column_positions() : device_positions();
        return row_positions() > later ? row_positions() : later;
    }
    DCUDA_HOST_DEVICE std::uint32_t positions() const {
        return row_positions() + column_positions() + device_positions();
    }
};

// From how many bytes on arrays of a communicator with this shape go through bounce buffers, if it is so without a
// network. Over one a unit is a message; where all members send all of theirs at once that is good for more than in
// rows.
DCUDA_HOST_DEVICE constexpr std::uint32_t bounce_from_of(const exchange_shape& shape, std::uint32_t size,
                                                         std::uint32_t usual) {
    if (shape.spans_network == 0 || size > most_in_bounce) return usual;
    return shape.is_flat() ? usual / 16 : usual / 64;
}

// Values travel in units of two packets.
inline constexpr std::uint32_t unit_packets = 2;
inline constexpr std::uint32_t unit_bytes = unit_packets * 12;

// A part of a rank's memory for lists.
struct list_range {
    std::uint32_t begin, end; // words
};

// A slot of another member. Of one that is reached over a network: as its own process addresses it.
struct exchange_target {
    packet* slot;
    std::uint32_t world_rank;
};

// The plans of a communicator: for exchanges of everybody with everybody, by numbers (of few members), and by leaders
// (plan.hpp).
enum plan_kind : unsigned { plan_for_all, plan_by_number, plan_by_leaders };
inline constexpr unsigned exchange_plans = 3;
inline constexpr unsigned most_stages = 5;

// Of a stage in an ordered exchange: whether the rank releases at all before it sends; and whether it releases, and
// acquires what it has received, for other devices as well.
enum stage_order : std::uint16_t { stage_releases = 1, stage_releases_far = 2, stage_acquires_far = 4 };

// What a rank does in an exchange, worked out in advance. writer and reader: the rank; home: device memory.
struct exchange_plan {
    packet* slot;                   // of this rank
    const exchange_target* targets; // of all stages
    std::uint64_t present;          // bit by position: somebody sends from there; if there is one stage
    std::uint32_t half;             // packets of a slot for exchanges with even numbers
    std::uint32_t units;            // at each position
    std::uint32_t stages;           // 0: there is no plan yet
    std::uint32_t most_positions;   // of any stage of any member: all have the same number here
    std::uint32_t by_leaders;       // 1: such a plan
    struct part {
        std::uint16_t first;      // of its positions in a slot
        std::uint16_t positions;  // from which values come
        std::uint16_t position;   // of this rank; where its own value does not count, one that is not among these
        std::uint16_t place;      // the position at which the targets find its value
        std::uint16_t begin, end; // of the targets; behind those, to far_end, the ones that are reached over a network
        std::uint16_t far_end;
        std::uint16_t order; // what an ordered exchange does there: a sum of stage_order
    } parts[most_stages];
};

// The world, or a device: consecutive world ranks. home: the context.
struct near_communicator {
    std::uint32_t size;       // ranks in it
    std::uint32_t first_rank; // world rank of its first
    std::uint32_t processes;  // that its ranks belong to

    DCUDA_HOST_DEVICE std::uint32_t rank_of(std::uint32_t world_rank) const { return world_rank - first_rank; }
    DCUDA_HOST_DEVICE std::uint32_t world_rank_of(std::uint32_t rank) const { return first_rank + rank; }
};

// Any communicator, as one member sees it. writers: the host, of the fixed ones, and the rank; reader: the rank; home:
// device memory.
struct communicator_record {
    std::uint32_t size;              // members; 0: there is no such communicator (any more)
    std::uint32_t number;            // of this rank among them
    std::uint32_t first_rank;        // world rank of member 0
    std::uint32_t stride;            // between world ranks of members, where these are regular
    const std::uint32_t* members;    // their world ranks; null: they are regular
    const std::uint32_t* by_process; // the same, those of each process together,
    const std::uint32_t* numbers;    // and their numbers in this order; null: it is that of numbers
    std::uint32_t uses;              // see communicator_number
    std::uint32_t slots;             // where the packets for a rank lie: from here in its device's exchange memory,
    std::uint32_t slots_stride;      // plus so many for each rank before it on its device
    std::uint32_t slots_packets;     // how many packets there is room for
    std::uint32_t blocks;            // of the rank's pool that are used for that: how many,
    std::uint32_t first_block;       // from which on
    std::uint32_t sequence;          // number of the last exchange
    std::uint32_t started;           // of an exchange that is not finished: start_number(); else 0
    std::uint32_t windows;           // of the communicator that are open
    std::uint32_t bounce_from;       // arrays of so many bytes go through bounce buffers
    list_range list;                 // of members
    list_range plan_lists[exchange_plans]; // of the plans
    exchange_shape shape;
    exchange_plan plans[exchange_plans]; // by plan_kind

    DCUDA_HOST_DEVICE const exchange_plan& plan_of_array(bool by_number) const {
        return plans[by_number ? plan_by_number : plan_for_all];
    }
    DCUDA_HOST_DEVICE const exchange_plan& plan_of_value(bool by_number) const {
        return !by_number && shape.has_leaders != 0 ? plans[plan_by_leaders] : plan_of_array(by_number);
    }
    DCUDA_HOST_DEVICE std::uint32_t world_rank_of(std::uint32_t rank) const {
        return members != nullptr ? members[rank] : first_rank + rank * stride;
    }
    // The same of members in the order of processes, and of their numbers within a process.
    DCUDA_HOST_DEVICE std::uint32_t world_rank_by_process(std::uint32_t place) const {
        return by_process != nullptr ? by_process[place] : first_rank + place * stride;
    }
    DCUDA_HOST_DEVICE std::uint32_t number_by_process(std::uint32_t place) const {
        return numbers != nullptr ? numbers[place] : place;
    }
    // How many members the processes before this one have.
    DCUDA_HOST_DEVICE std::uint32_t members_before(std::uint32_t process, std::uint32_t ranks_per_process) const {
        const std::uint32_t end = process * ranks_per_process;
        if (by_process == nullptr) {
            if (end <= first_rank) return 0;
            const std::uint32_t before = (end - first_rank + stride - 1) / stride;
            return before < size ? before : size;
        }
        std::uint32_t low = 0, high = size;
        while (low < high) {
            const std::uint32_t middle = (low + high) / 2;
            if (by_process[middle] < end)
                low = middle + 1;
            else
                high = middle;
        }
        return low;
    }
};

// What stands in the last word of a packet: the lower bits of the exchange's number, and what the exchange is, in few
// bits: members that are in different collective operations notice it. The kind of operation is never 0, and memory
// that was never written is.
inline constexpr std::uint32_t exchange_number_bits = 20, exchange_digest_bits = 32 - exchange_number_bits;
DCUDA_HOST_DEVICE constexpr std::uint32_t exchange_word(std::uint32_t sequence, std::uint32_t digest) {
    return sequence << exchange_digest_bits | digest;
}
// What tells a start from others on the communicator: the number of the exchange before, and never 0.
DCUDA_HOST_DEVICE constexpr std::uint32_t start_number(std::uint32_t sequence) { return sequence | 1u << 31; }
inline constexpr std::uint32_t no_exchange_word = UINT32_MAX; // of no packet: there is no such operation
DCUDA_HOST_DEVICE constexpr bool is_of_exchange(std::uint32_t word, std::uint32_t sequence) {
    return word != 0 && word >> exchange_digest_bits == (sequence & ((1u << exchange_number_bits) - 1));
}
// The bits of a digest: what operation it is, and a part of what else must be equal.
inline constexpr std::uint32_t digest_kind_bits = 5, digest_content_bits = exchange_digest_bits - digest_kind_bits;
inline constexpr auto first_in_digest = static_cast<std::uint32_t>(operation::create_window) - 1;
static_assert(static_cast<std::uint32_t>(operation::all_to_all) - first_in_digest < (1u << digest_kind_bits) - 1);
DCUDA_HOST_DEVICE constexpr std::uint32_t exchange_digest(operation where, std::uint32_t content) {
    const std::uint32_t kind = static_cast<std::uint32_t>(where) - first_in_digest;
    return kind << digest_content_bits | (content * 0x9E3779B1u) >> (32 - digest_content_bits);
}
constexpr operation operation_of_digest(std::uint32_t digest) {
    return static_cast<operation>((digest >> digest_content_bits) + first_in_digest);
}

// Every so many exchanges a rank clears its slots, before the lower bits of a number come again.
inline constexpr std::uint32_t exchanges_until_clear = 1u << (exchange_number_bits - 2);

// What a rank tells the others of its parent communicator in split. home: the inbox. writer: the rank; readers: the
// ranks of the device, after a barrier.
struct alignas(16) split_entry {
    std::int32_t color, key;
    std::uint32_t number; // of the rank in the parent communicator
    std::uint32_t uses;   // of the next communicator
    std::uint64_t slots;  // bit by slot: the rank is in a communicator there
    std::uint64_t blocks; // bit by block of its pool: it is in use
};

// The pool of a rank, for slots of the communicators that split has made, has so many blocks.
inline constexpr std::uint32_t pool_blocks = 64;

// Memory of a device for communicators. home: the inbox; the offsets are in packets, from the words of barriers on.
struct exchange_memory {
    std::uint32_t entries; // [world rank] split_entry
    std::uint32_t slots;   // [fixed communicator][local rank][fixed_packets], [local rank][pool_blocks][block_packets]
    std::uint32_t pool;    // of these the second part, from `slots` on
    std::uint32_t fixed_packets;
    std::uint32_t block_packets;
    std::uint32_t list_words; // of each rank's memory for lists of members
    std::uint32_t bounce;     // [local rank][bounce_packets]: bounce buffers, in two halves
    std::uint32_t bounce_packets;
    std::uint32_t bounce_from;  // arrays of so many bytes go through these, without a network
    std::uint32_t leaders_from; // where a device has so many members, single values go by leaders
};

// The communicators of a rank. writers: the host, of the fixed ones, and the rank; reader: the rank; home: device
// memory.
struct communicator_table {
    communicator_record records[max_communicators];
    std::uint64_t slots; // as in split_entry
    std::uint64_t blocks;
    std::uint32_t uses;
    exchange_memory memory;
    std::uint32_t* lists; // [exchange_memory::list_words]
};

} // namespace dcuda::detail
