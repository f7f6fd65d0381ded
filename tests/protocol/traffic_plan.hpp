// SPDX-License-Identifier: BSD-3-Clause
// What happens in random traffic: numbers that follow from the seed, equal wherever they are computed.
#pragma once

#include <dcuda/dcuda.hpp>

#include <cstdint>

namespace random_traffic {

constexpr int lanes = 12, streams = 3, window_count = 3;
constexpr int lane_tags = lanes, stream_tags = lanes, credit_tags = stream_tags + streams,
              stop_tag = credit_tags + streams, matched_tags = stop_tag + 1; // the last ones: two
constexpr int tag_count = stop_tag + 1;
constexpr int rounds_per_run = 128, rounds_per_window = 32, rounds_per_look = 16; // a look at all memory
constexpr int damaged_round = 5;
constexpr std::uint32_t margin = 64; // before and behind the places of messages, where windows begin and end

constexpr int sums_of_lane = 4; // words to which atomic operations of a lane add

enum class damage : int { none, put, source, order, notification, extra, stream, sum, get };
constexpr const char* damage_names[] = {"none",  "put",    "source", "order", "notification",
                                        "extra", "stream", "sum",    "get"};

// --- What happens ----------------------------------------------------------------------------------------------------

enum class kind : int { nothing, put, put_notify, notify, notify_relaxed };
enum class adding : int { none, fetch_add, add, accumulate, accumulate_notify };
enum class reading : int { none, get, get_notify };
enum class mapping : int { shift, device_shift, to_one };

struct findings {
    unsigned failures;
    int line, rank, round, lane, source;
    std::uint64_t place, seen, expected;
};

struct counts {
    std::uint64_t messages, operations, bytes;
};

struct setup {
    std::uint64_t seed, first_round;
    std::uint32_t largest; // message
    int stops;             // process 0: this run is the last
    damage wrong;
    unsigned char* memory; // of each rank: inbox, image of what the inbox must hold, two pools of sources, sums
    findings* found;
    counts* counted; // of each rank
    int* stopped;    // told by process 0

    __host__ __device__ std::uint32_t slot_bytes() const { return largest + 192; }
    __host__ __device__ std::uint32_t inbox_bytes() const { return lanes * slot_bytes() + 2 * margin; }
    __host__ __device__ std::uint32_t pool_bytes() const { return 2 * largest + 4096; } // and as much for streams
    __host__ __device__ static std::uint32_t sum_bytes() { return lanes * sums_of_lane * sizeof(std::uint32_t); }
    // Sums, and what they must be.
    __host__ __device__ std::size_t sums_begin() const {
        return (std::size_t(2) * (inbox_bytes() + pool_bytes()) + 255) / 256 * 256;
    }
    __host__ __device__ std::size_t rank_bytes() const {
        return (sums_begin() + std::size_t(2) * sum_bytes() + 255) / 256 * 256;
    }
};

__host__ __device__ inline std::uint64_t mix(std::uint64_t x) {
    x += 0x9e3779b97f4a7c15u;
    x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9u;
    x = (x ^ (x >> 27)) * 0x94d049bb133111ebu;
    return x ^ (x >> 31);
}

// Random numbers for a purpose: equal wherever they are drawn.
struct dice {
    std::uint64_t state;
    __host__ __device__ dice(std::uint64_t seed, std::uint64_t round, int purpose, int entity)
        : state(mix(mix(seed ^ mix(round)) ^ (std::uint64_t(purpose) << 32 | std::uint32_t(entity)))) {}
    __host__ __device__ std::uint32_t below(std::uint32_t limit) {
        state = mix(state);
        return std::uint32_t((state >> 32) * limit >> 32);
    }
};

// A byte of a rank's pool, or of a message of a stream.
__host__ __device__ inline unsigned char content(std::uint32_t salt, std::uint32_t place) {
    return static_cast<unsigned char>((place ^ salt) * 2654435761u >> 24);
}

__host__ __device__ inline std::uint32_t random_size(dice& chance, std::uint32_t largest) {
    const std::uint32_t dist = chance.below(100);
    const std::uint32_t most = dist < 5    ? 0
                               : dist < 60 ? 64
                               : dist < 85 ? 512
                               : dist < 95 ? 4096
                               : dist < 99 ? 16384
                                           : largest;
    return chance.below((most < largest ? most : largest) + 1);
}

// What all ranks do in a lane of a round. A lane that follows has the targets and the place of the one before, so that
// of each pair of ranks the later message overwrites the earlier one.
struct lane_plan {
    mapping map;
    int leader, tag, window;
    std::uint32_t number; // shift or target
};

__device__ inline bool has_own_tags(const setup& about, std::uint64_t round) {
    return round == damaged_round || dice(about.seed, round, 1, 0).below(2) == 0;
}

DCUDA_COLD bool follows(const setup& about, std::uint64_t round, int lane) {
    if (lane == 0) return false;
    if (round == damaged_round && lane == 1) return true;
    return dice(about.seed, round, 2, lane).below(4) == 0;
}

DCUDA_COLD lane_plan plan_lane(const setup& about, std::uint64_t round, int lane) {
    lane_plan plan{};
    plan.leader = lane;
    while (follows(about, round, plan.leader)) --plan.leader;
    dice common(about.seed, round, 3, plan.leader), own(about.seed, round, 4, lane);
    const std::uint32_t draw = round == damaged_round && plan.leader == 0 ? 0 : common.below(10);
    plan.map = draw < 7 ? mapping::shift : draw < 9 ? mapping::device_shift : mapping::to_one;
    plan.number = common.below(1u << 30);
    plan.tag = has_own_tags(about, round) ? lane : int(own.below(3));
    plan.window = plan.map == mapping::device_shift ? 2 : int(own.below(2));
    return plan;
}

// Rows of two slices, each row of the second between two of the first: they cover what a plain message covers.
struct interleaved {
    dcuda::box shape;
    dcuda::pitch distance;
    __host__ __device__ interleaved(std::size_t bytes, std::uint32_t rows)
        : shape{bytes / 2 / rows, rows, 2}, distance{2 * shape.width_bytes, shape.width_bytes} {}
};

struct message {
    kind action;
    bool flushes;
    std::uint32_t bytes, place, source; // in the target's inbox, in the source's pool
    std::uint32_t rows;                 // of a box with two slices, whose rows lie between each other; 0: no box
    reading reads;                      // what it has put, at once
    adding adds;
    std::uint32_t addend;

    __host__ __device__ int notifications() const {
        return (action != kind::nothing && action != kind::put ? 1 : 0) + (reads == reading::get_notify ? 1 : 0) +
               (adds == adding::accumulate_notify ? 1 : 0);
    }
    __host__ __device__ bool accumulates() const {
        return adds == adding::accumulate || adds == adding::accumulate_notify;
    }
};

// What a rank, `source` in the world and `index` of `count` in the communicator, sends in that lane.
DCUDA_COLD message plan_message(const setup& about, std::uint64_t round, int lane, const lane_plan& plan, int source,
                                std::uint32_t index, std::uint32_t count) {
    dice chance(about.seed, round, 16 + lane, source);
    message one{};
    const std::uint32_t draw = chance.below(20);
    one.action = draw < 2    ? kind::nothing
                 : draw < 7  ? kind::put
                 : draw < 16 ? kind::put_notify
                 : draw < 18 ? kind::notify
                             : kind::notify_relaxed;
    one.flushes = chance.below(16) == 0;
    const std::uint32_t slot = margin + std::uint32_t(plan.leader) * about.slot_bytes();
    one.bytes = random_size(chance, about.largest);
    one.place = slot + 32 + chance.below(64);
    if (lane != plan.leader)
        one.place += chance.below(16) == 0 ? chance.below(about.largest / 2 + 1) : chance.below(48);
    if (plan.map == mapping::to_one) {
        const std::uint32_t share = (about.slot_bytes() - 64) / count; // no two sources have a byte in common
        one.place = slot + 32 + share * index;
        if (one.bytes > share) one.bytes = share;
    } else if (one.place + one.bytes > slot + about.slot_bytes() - 32) {
        one.bytes = slot + about.slot_bytes() - 32 - one.place;
    }
    if (round == damaged_round && lane < 2) {
        one.action = lane == 0 ? kind::put : kind::put_notify;
        one.bytes = about.largest < 200 ? about.largest : 200;
        one.place = slot + 40;
    }
    if (one.action != kind::put && one.action != kind::put_notify) one.bytes = 0;
    if (round != damaged_round && chance.below(8) == 0) {
        const std::uint32_t rows = 1 + chance.below(8);
        if (one.bytes >= 2 * rows) {
            one.rows = rows;
            one.bytes -= one.bytes % (2 * rows);
        }
    }
    one.source = chance.below(about.pool_bytes() - one.bytes - 1);
    if (one.bytes != 0 && chance.below(16) == 0 && round != damaged_round) one.reads = reading(1 + chance.below(2));
    if (chance.below(8) == 0 && round != damaged_round) one.adds = adding(1 + chance.below(4));
    if (round == damaged_round && lane == 0) one.reads = reading::get;
    if (round == damaged_round && lane == 2) one.adds = adding::fetch_add;
    one.addend = 1 + chance.below(1000);
    return one;
}

} // namespace random_traffic
