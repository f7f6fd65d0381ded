// SPDX-License-Identifier: BSD-3-Clause
// The ping-pong of common/ping_pong.hpp between two ranks.
#pragma once

#include "common/ping_pong.hpp"
#include "common/session.hpp"
#include "dcuda/dcuda.hpp"

namespace benchmark {

inline constexpr int tag = 0;

// The players of a device, in device memory. World rank 0 plays ping, rank 1 pong; all others watch.
struct board {
    player players[2];
};

struct put_channel {
    dcuda::rank& self;
    dcuda::window landing;
    int peer;
    std::size_t bytes;

    DCUDA_DEVICE void send(const void* source, int number) {
        const std::size_t offset = static_cast<std::size_t>(number) * stride_bytes(bytes);
        self.put_notify(landing, peer, offset, bytes, source, tag);
    }
    DCUDA_DEVICE void wait() { self.wait_notifications(tag, 1); }
    DCUDA_DEVICE void complete() { self.flush(landing); }
    DCUDA_DEVICE void barrier() { self.barrier(dcuda::world); }
};

struct notify_channel {
    dcuda::rank& self;
    int peer;
    bool relaxed;

    DCUDA_DEVICE void send(const void*, int) {
        if (relaxed)
            self.notify_relaxed(peer, dcuda::world, tag);
        else
            self.notify(peer, dcuda::world, tag);
    }
    DCUDA_DEVICE void wait() { self.wait_notifications(tag, 1); }
    DCUDA_DEVICE void complete() {}
    DCUDA_DEVICE void barrier() { self.barrier(dcuda::world); }
};

// A rank's part in it. All ranks of both devices; `relaxed`: of notifications alone; `all`: the rank's threads, or the
// rank itself where these are a part of its block.
template <class Threads = threads_of_block>
DCUDA_DEVICE void play_or_watch(dcuda::rank& self, const game& of, bool relaxed, const board* board,
                                const Threads& all = {}) {
    const int id = self.id();
    const bool plays = id < 2;
    const player* const me = plays ? &board->players[id] : nullptr;
    const std::size_t bytes = of.words * sizeof(std::uint32_t);

    // The window holds all of a player's buffers: sources lie in the window, too.
    const std::size_t window_bytes = plays && bytes != 0 ? buffers_of_player * stride_bytes(bytes) : 0;
    const dcuda::window window = self.create_window(dcuda::world, plays ? me->landings[0] : nullptr, window_bytes);
    if (!plays) {
        for (int batch = -1; batch < of.batches; ++batch) self.barrier(dcuda::world);
    } else if (bytes == 0) {
        notify_channel channel{self, 1 - id, relaxed};
        play(channel, of, *me, all);
    } else {
        put_channel channel{self, window, 1 - id, bytes};
        play(channel, of, *me, all);
    }
    self.free_window(window);
}

inline game choose_game(const session& suite, std::size_t bytes) {
    return {static_cast<std::uint32_t>(bytes / 4), suite.rounds(1000, 50), suite.batches(12, 6)};
}

// Half of a round trip. Collective; the result is that of process 0.
inline void summarise_latency(const results& measured, const game& of, row& entry) {
    measured.require_right(entry);
    entry.value = measure::summarise(scaled(measured.microseconds(), 0.5 / of.rounds));
}

// Gives the players the buffers at `buffers`, for payloads of so many bytes.
inline void set_board(board* target, unsigned char* buffers, std::size_t bytes, const results& measured) {
    board pieces;
    for (int i = 0; i < 2; ++i)
        pieces.players[i] = make_player(static_cast<side>(i),
                                        buffers + static_cast<std::size_t>(i) * buffers_of_player * stride_bytes(bytes),
                                        bytes, measured.stamps(), measured.wrong());
    check(cudaMemcpy(target, &pieces, sizeof pieces, cudaMemcpyHostToDevice), "cannot copy parameters");
}

} // namespace benchmark
