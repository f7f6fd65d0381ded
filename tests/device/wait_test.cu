// SPDX-License-Identifier: BSD-3-Clause
// Waits for any of several tags, for one source, for a limited time, and how much has arrived: with one rank and with
// as many as a device can have, for notifications that come as messages and for those that are counted.
#include "device_test.hpp"

using namespace dcuda::test;

namespace {

#if DCUDA_BACKEND_CUDA
constexpr int rank_counts[] = {1, 132, 1056, 2112};
constexpr unsigned long long long_ns = 1'000'000, short_ns = 2'000;
#else
constexpr int rank_counts[] = {1, 5, few_addresses ? 8 : 24};
constexpr unsigned long long long_ns = 20'000'000, short_ns = 200'000;
#endif
constexpr int threads = 64;

// How notifications travel; a null setting is not made.
struct way {
    const char* name;
    const char* packets;       // DCUDA_MAILBOX_PACKETS
    const char* queues;        // DCUDA_MAILBOX_QUEUES
    const char* counter_start; // DCUDA_COUNTER_START
};
constexpr way all_ways[] = {
    {"Messages", nullptr, nullptr, nullptr},
    {"Counters", "0", nullptr, nullptr},
    {"Both", nullptr, "2", nullptr}, // of four sources two have no queue
    {"AcrossTheEnd", "64", nullptr, "4294967280"},
};

class Waits : public device_test, public testing::WithParamInterface<std::tuple<int, way>> {
protected:
    void SetUp() override {
        const way& how = std::get<1>(GetParam());
        set("DCUDA_MAILBOX_PACKETS", how.packets);
        set("DCUDA_MAILBOX_QUEUES", how.queues);
        set("DCUDA_COUNTER_START", how.counter_start);
    }
    void TearDown() override {
        for (const char* variable : {"DCUDA_MAILBOX_PACKETS", "DCUDA_MAILBOX_QUEUES", "DCUDA_COUNTER_START"})
            unsetenv(variable);
    }
    dcuda::launch_config all_ranks() { return shape(std::get<0>(GetParam()), dim3(threads)); }
    std::size_t ranks() { return static_cast<std::size_t>(std::get<0>(GetParam())); }

private:
    static void set(const char* variable, const char* value) {
        if (value != nullptr) setenv(variable, value, 1);
    }
};

// --- Any of the tags, and some of them ------------------------------------------------------------------------------

constexpr int partners = 4;
constexpr int first_tag = 3, tag_count = 250, step = 61; // the partners' tags are far apart: 3, 64, 125, 186
constexpr int credit_tag = 253;
constexpr std::size_t largest = 2048;

DCUDA_DEVICE int partner_of(int rank, int slot, int ranks) {
    constexpr int distances[] = {1, -1, 7, -7};
    return ((rank + distances[slot]) % ranks + ranks) % ranks;
}
DCUDA_DEVICE std::size_t size_of(int source, int slot, int round) {
    const unsigned number = static_cast<unsigned>(source * 31 + slot * 7 + round) * 0x9E3779B1u >> 16;
    return number % 3 == 0 ? number % (largest + 1) : number % 100 * 4;
}

// Takes what the four partners send in a round, in any order; returns the slots whose message it has got, as bits.
struct by_any {
    DCUDA_DEVICE static unsigned take(dcuda::rank& self, int*) {
        return 1u << (self.wait_any(first_tag, tag_count) - first_tag) / step;
    }
};
struct by_some {
    DCUDA_DEVICE static unsigned take(dcuda::rank& self, int* arrived) {
        const int count = self.wait_some(first_tag, tag_count, arrived);
        unsigned slots = 0;
        for (int i = 0; i < count; ++i) slots |= 1u << (arrived[i] - first_tag) / step;
        __syncthreads(); // all have read them
        return slots;
    }
};

template <class Wait>
__global__ void __launch_bounds__(threads, 1024 / threads)
    exchange(dcuda::context context, findings* found, unsigned char* memory, int rounds) {
    __shared__ dcuda::state state;
    __shared__ int arrived[tag_count];
    dcuda::rank self(context, state);
    const int ranks = self.size(), rank = self.id();
    unsigned char* const inbox = piece_of(memory, 2 * partners * largest, self);
    unsigned char* const outbox = inbox + partners * largest;
    const dcuda::window win = self.create_window(dcuda::world, inbox, partners * largest);
    for (int round = 0; round < rounds; ++round) {
        for (int slot = 0; slot < partners; ++slot) {
            const std::size_t bytes = size_of(rank, slot, round);
            unsigned char* const payload = outbox + slot * largest;
            for_each_thread(bytes, [&](std::size_t i) { payload[i] = pattern(i, rank + 4 * round + slot); });
            self.put_notify(win, partner_of(rank, slot, ranks), slot * largest, bytes, payload,
                            first_tag + slot * step);
        }
        for (unsigned missing = 15; missing != 0;) {
            const unsigned came = Wait::take(self, arrived);
            EXPECT_SAME(came & ~missing, 0); // each once: nobody sends again before this round is over
            missing &= ~came;
            for (int slot = 0; slot < partners; ++slot) {
                if ((came >> slot & 1) == 0) continue;
                const int source = partner_of(rank, slot ^ 1, ranks);
                const unsigned char* const payload = inbox + slot * largest;
                for_each_thread(size_of(source, slot, round),
                                [&](std::size_t i) { EXPECT_SAME(payload[i], pattern(i, source + 4 * round + slot)); });
            }
        }
        __syncthreads();
        for (int slot = 0; slot < partners; ++slot)
            self.notify(partner_of(rank, slot, ranks), dcuda::world, credit_tag);
        self.wait_notifications(credit_tag, partners);
        self.flush(win);
    }
    self.free_window(win);
}

TEST_P(Waits, AnyOfTheTags) {
    const device_vector<unsigned char> memory(ranks() * 2 * partners * largest);
    check(exchange<by_any>, all_ranks(), memory.get(), rounds_of(40, 6));
}

TEST_P(Waits, SomeOfTheTags) {
    const device_vector<unsigned char> memory(ranks() * 2 * partners * largest);
    check(exchange<by_some>, all_ranks(), memory.get(), rounds_of(40, 6));
}

// --- Of one source ---------------------------------------------------------------------------------------------------

constexpr int matched_tag = 254; // and 255
constexpr std::size_t matched_piece = 6000;
// Of the message for a slot: none, as messages, directly.
DCUDA_DEVICE std::size_t matched_bytes(int slot) {
    return slot == 0 ? 0 : slot == 1 ? 400 : slot == 2 ? 24 : matched_piece;
}

// All partners use one tag; the rank waits for them one by one, in another order each time, by their numbers in another
// communicator. What it does not wait for yet must stay.
__global__ void __launch_bounds__(threads, 1024 / threads)
    one_by_one(dcuda::context context, findings* found, unsigned char* memory, int rounds) {
    __shared__ dcuda::state state;
    dcuda::rank self(context, state);
    const int ranks = self.size(), rank = self.id();
    const dcuda::communicator reversed = self.split(dcuda::world, 0, -rank);
    constexpr std::size_t piece = matched_piece;
    unsigned char* const inbox = piece_of(memory, 2 * partners * piece, self);
    unsigned char* const outbox = inbox + partners * piece;
    const dcuda::window win = self.create_window(dcuda::world, inbox, partners * piece);
    for (int round = 0; round < rounds; ++round) {
        for (int slot = 0; slot < partners; ++slot) {
            unsigned char* const payload = outbox + slot * piece;
            for_each_thread(matched_bytes(slot),
                            [&](std::size_t i) { payload[i] = pattern(i, rank + 4 * round + slot); });
            self.put_notify(win, partner_of(rank, slot, ranks), slot * piece, matched_bytes(slot), payload,
                            matched_tag);
            self.notify(partner_of(rank, slot, ranks), dcuda::world, matched_tag + 1);
        }
        for (int k = 0; k < partners; ++k) {
            const int slot = (round + k) % partners, source = partner_of(rank, slot ^ 1, ranks);
            int messages = 0; // of this source
            bool is_first = true;
            for (int other = 0; other < partners; ++other) {
                if (partner_of(rank, other ^ 1, ranks) != source) continue;
                ++messages;
                for (int before = 0; before < k; ++before) is_first &= (round + before) % partners != other;
            }
            if (!is_first) continue;
            self.wait_notifications_from(k % 2 == 0 ? source : ranks - 1 - source, k % 2 == 0 ? dcuda::world : reversed,
                                         matched_tag, messages);
            for (int other = 0; other < partners; ++other) {
                if (partner_of(rank, other ^ 1, ranks) != source) continue;
                const unsigned char* const payload = inbox + other * piece;
                for_each_thread(matched_bytes(other), [&](std::size_t i) {
                    EXPECT_SAME(payload[i], pattern(i, source + 4 * round + other));
                });
            }
        }
        // The other tag has its own counts, and sources come in yet another order.
        for (int slot = 0; slot < partners; ++slot)
            self.wait_notifications_from(partner_of(rank, slot, ranks), dcuda::world, matched_tag + 1, 1);
        for (int slot = 0; slot < partners; ++slot)
            self.notify(partner_of(rank, slot, ranks), dcuda::world, credit_tag);
        self.wait_notifications(credit_tag, partners);
        self.flush(win);
    }
    self.free_window(win);
}

TEST_P(Waits, OfOneSource) {
    requested.match_sources = 2;
    const device_vector<unsigned char> memory(ranks() * 2 * partners * matched_piece);
    check(one_by_one, all_ranks(), memory.get(), rounds_of(20, 6));
}

// --- What is there is taken in turn ---------------------------------------------------------------------------------

__global__ void __launch_bounds__(threads, 1024 / threads) in_turn(dcuda::context context, findings* found, int tags) {
    __shared__ dcuda::state state;
    __shared__ int arrived[64];
    dcuda::rank self(context, state);
    const int next = (self.id() + 1) % self.size();
    for (int tag = 0; tag < 40; ++tag)
        for (int i = 0; i < 3; ++i) self.notify(next, dcuda::world, tag);
    self.notify(next, dcuda::world, tags - 1);
    self.wait_notifications(tags - 1, 1); // all have come from the one source
    for (int i = 0; i < 2; ++i)
        for (int tag = 10; tag < 40; ++tag) EXPECT_SAME(self.wait_any(10, 30), tag);
    EXPECT_SAME(self.wait_any(20, 5), 20);
    // Of the first ten there are three each; of the others one, but for tag 20.
    EXPECT_SAME(self.wait_some(0, 40, arrived), 39);
    for (int i = 0; i < 39; ++i) EXPECT_SAME(arrived[i], i < 20 ? i : i + 1);
    EXPECT_SAME(self.pending_notifications(0), 2);
    EXPECT_SAME(self.pending_notifications(10), 0);
    EXPECT_SAME(self.wait_some(0, tags, arrived), 10);
    EXPECT_SAME(self.wait_any(9, tags - 9), 9);
    for (int tag = 0; tag < 9; ++tag) EXPECT_SAME(self.wait_any(tag, 1), tag);
    EXPECT_SAME(self.test_notifications(0, 1), false);
}

TEST_P(Waits, WhatIsThereIsTakenInTurn) { check(in_turn, all_ranks(), 256); }

TEST_P(Waits, OfMostTags) {
    requested.tags = 65536;
    check(in_turn, shape(2, dim3(threads)), 65536);
}

// --- How many are there, and for how long ---------------------------------------------------------------------------

__global__ void __launch_bounds__(threads, 1024 / threads) looks(dcuda::context context, findings* found) {
    __shared__ dcuda::state state;
    dcuda::rank self(context, state);
    const int next = (self.id() + 1) % self.size();
    EXPECT_SAME(self.pending_notifications(7), 0);
    EXPECT_SAME(self.wait_notifications_for(7, 1, 0), false);
    EXPECT_SAME(self.wait_notifications_for(7, 1, short_ns), false);
    EXPECT_SAME(self.wait_notifications_for(7, 0, 0), true);
    self.barrier(dcuda::world); // nobody sends before everybody has looked
    for (int i = 0; i < 5; ++i) self.notify(next, dcuda::world, 7);
    self.notify(next, dcuda::world, 8);
    self.wait_notifications(8, 1);
    EXPECT_SAME(self.pending_notifications(7), 5);
    EXPECT_SAME(self.wait_notifications_for(7, 6, short_ns), false);
    EXPECT_SAME(self.pending_notifications(7), 5); // none was consumed
    EXPECT_SAME(self.wait_notifications_for(7, 3, UINT64_MAX), true);
    self.wait_all({{7, 1}, {9, 0}, {7, 1}});
    EXPECT_SAME(self.pending_notifications(7), 0);
    // A wait that has given up loses nothing of what comes later.
    for (int i = 0; i < 3; ++i) {
        if (self.id() % 2 == i % 2) self.barrier(dcuda::device);
        self.notify(next, dcuda::world, 200);
        if (self.id() % 2 != i % 2) self.barrier(dcuda::device);
        while (!self.wait_notifications_for(200, 1, short_ns)) {
        }
    }
    self.notify(next, dcuda::world, 201);
    EXPECT_SAME(self.wait_notifications_for(201, 1, 10'000 * long_ns), true);
    for (int i = 0; i < 2; ++i) self.notify(self.id(), dcuda::world, 202);
    while (self.pending_notifications(202) != 2) {
    }
    self.wait_all({{202, 2}});
}

TEST_P(Waits, HowManyAndForHowLong) { check(looks, all_ranks()); }

// While a rank waits, others are in the same wait, and what has come before is told apart from what is late.
__global__ void __launch_bounds__(threads, 1024 / threads)
    pipeline(dcuda::context context, findings* found, int rounds) {
    __shared__ dcuda::state state;
    dcuda::rank self(context, state);
    // In each ring of up to 264 ranks a token with a tag of its own for each round goes around; a rank knows only that
    // it is one of them. One ring of 2112 ranks takes more than five minutes under racecheck.
    constexpr int most = 264;
    const int rank = self.id(), first = rank / most * most, left = self.size() - first;
    const int next = first + (rank - first + 1) % (left < most ? left : most);
    for (int round = 0; round < rounds; ++round) {
        const int tag = round * 37 % 100;
        if (rank == first) self.notify(next, dcuda::world, tag);
        EXPECT_SAME(self.wait_any(0, 100), tag);
        if (rank != first) self.notify(next, dcuda::world, tag);
    }
}

TEST_P(Waits, TokensOfAnyTag) { check(pipeline, all_ranks(), rounds_of(30, 10)); }

// Many ranks only with the usual settings.
std::vector<std::tuple<int, way>> all_settings() {
    std::vector<std::tuple<int, way>> settings;
    for (const int ranks : rank_counts) {
        if (tries_one_way && ranks == 1056) continue; // 2112 show the same
        for (const way& how : all_ways)
            if ((how.packets == nullptr && how.queues == nullptr) || ranks <= 132) settings.emplace_back(ranks, how);
    }
    return settings;
}

INSTANTIATE_TEST_SUITE_P(, Waits, testing::ValuesIn(all_settings()), [](const auto& instance) {
    return std::string(std::get<1>(instance.param).name) + "Ranks" + std::to_string(std::get<0>(instance.param));
});

} // namespace
