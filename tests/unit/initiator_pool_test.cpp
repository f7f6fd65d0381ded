// SPDX-License-Identifier: BSD-3-Clause
// The pool of send queues of the transport verbs, without a network.
#include "transport/initiator_pool.hpp"

#include <algorithm>
#include <deque>
#include <gtest/gtest.h>
#include <random>
#include <vector>

using dcuda::transport::initiator_pool;

namespace {

constexpr unsigned depth = 4;

TEST(initiator_pool, a_peer_keeps_its_queue_up_to_its_depth) {
    initiator_pool pool(2, 3, depth);
    const auto queue = pool.take(1, 1);
    ASSERT_TRUE(queue);
    EXPECT_EQ(pool.take(1, depth - 1), queue);
    EXPECT_FALSE(pool.take(1, 1));
    pool.complete(*queue, depth);
    EXPECT_EQ(pool.take(1, depth), queue);
}

TEST(initiator_pool, a_queue_changes_its_peer_only_when_empty) {
    initiator_pool pool(1, 2, depth);
    ASSERT_TRUE(pool.take(0, 2));
    EXPECT_FALSE(pool.take(1, 1));
    pool.complete(0, 1);
    EXPECT_FALSE(pool.take(1, 1));
    pool.complete(0, 1);
    EXPECT_FALSE(pool.take(0, 1)) << "it is kept for the peer that waits";
    EXPECT_EQ(pool.take(1, 1), 0);
}

TEST(initiator_pool, a_peer_that_no_longer_asks_holds_nobody_up) {
    initiator_pool pool(1, 3, depth);
    ASSERT_TRUE(pool.take(0, 1));
    EXPECT_FALSE(pool.take(1, 1)); // and never again
    pool.complete(0, 1);
    int asked = 0;
    while (!pool.take(2, 1)) ASSERT_LT(++asked, 1000);
    pool.complete(0, 1);
    EXPECT_TRUE(pool.take(0, 1));
    pool.complete(0, 1);
    EXPECT_TRUE(pool.take(0, depth)) << "nobody waits any more";
}

// Peers that always want more, asked in the same order, or at random: all get the same share.
TEST(initiator_pool, all_peers_get_their_turn) {
    for (const bool is_random : {false, true}) {
        constexpr int peers = 7, queues = 3;
        std::mt19937 random(1);
        initiator_pool pool(queues, peers, depth);
        struct entry {
            int peer;
            unsigned entries;
        };
        std::vector<std::deque<entry>> in_flight(queues);
        std::vector<unsigned> taken(peers, 0);
        for (int step = 0; step < 20'000; step++) {
            const int peer = is_random ? static_cast<int>(random() % peers) : step % peers;
            const unsigned entries = 1 + random() % depth;
            if (const auto queue = pool.take(peer, entries)) {
                auto& here = in_flight[static_cast<std::size_t>(*queue)];
                ASSERT_TRUE(here.empty() || here.back().peer == peer);
                here.push_back({peer, entries});
                unsigned sum = 0;
                for (const entry& each : here) sum += each.entries;
                ASSERT_LE(sum, depth);
                taken[static_cast<std::size_t>(peer)] += entries;
            }
            const auto ready = static_cast<std::size_t>(random() % queues);
            if (random() % 2 == 0 && !in_flight[ready].empty()) {
                pool.complete(static_cast<int>(ready), in_flight[ready].front().entries);
                in_flight[ready].pop_front();
            }
        }
        const auto [least, most] = std::minmax_element(taken.begin(), taken.end());
        EXPECT_GT(*least, 500u);
        EXPECT_LT(*most, 2 * *least);
    }
}

} // namespace
