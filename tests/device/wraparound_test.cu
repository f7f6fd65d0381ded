// SPDX-License-Identifier: BSD-3-Clause
// Counters that pass 2^32, all of them: DCUDA_COUNTER_START lets them begin shortly before.
#include "device_test.hpp"

using namespace dcuda::test;

namespace {

class WrapAround : public device_test {
protected:
    void SetUp() override { setenv("DCUDA_COUNTER_START", "4294967280", 1); }
    void TearDown() override { unsetenv("DCUDA_COUNTER_START"); }
};

// 16 notifications before the end, then thousands beyond it, in portions of every size.
__global__ void across_the_end(dcuda::context context, findings* found, unsigned* memory, int rounds) {
    __shared__ dcuda::state state;
    dcuda::rank self(context, state);
    const int ranks = self.size(), rank = self.id(), next = (rank + 1) % ranks;
    unsigned* const inbox = piece_of(memory, 2, self);
    const dcuda::window win = self.create_window(dcuda::world, inbox, sizeof(unsigned));
    EXPECT_SAME(self.test_notifications(0, 1), false); // a counter that starts high is not full
    self.barrier(dcuda::world);
    for (int round = 0; round < rounds; ++round) {
        const int portion = 1 + round % 40;
        by_one_thread([&] { inbox[1] = static_cast<unsigned>(round); });
        for (int i = 1; i < portion; ++i) self.notify(next, dcuda::world, 0);
        self.put_notify(win, next, 0, sizeof(unsigned), inbox + 1, 0);
        if (round % 2 == 0)
            self.wait_notifications(0, portion);
        else
            while (!self.test_notifications(0, portion)) {
            }
        EXPECT_SAME(inbox[0], round);
        self.barrier(dcuda::world); // inbox may be overwritten
        EXPECT_SAME(self.test_notifications(0, 1), false);
        self.barrier(dcuda::world);
    }
    self.free_window(win);
}

TEST_F(WrapAround, AcrossTheEnd) {
    const device_vector<unsigned> memory(2 * 3);
    check(across_the_end, shape(3), memory.get(), 100);
}

// A wait whose expected value lies beyond the end while the counter has not passed it.
__global__ void one_by_one(dcuda::context context, findings* found, int count) {
    __shared__ dcuda::state state;
    dcuda::rank self(context, state);
    const int next = (self.id() + 1) % self.size();
    for (int i = 0; i < count; ++i) self.notify(next, dcuda::world, 255);
    self.wait_notifications(255, count / 2);
    self.wait_notifications(255, count - count / 2);
    EXPECT_SAME(self.test_notifications(255, 1), false);
}

// Everything else that is counted: barriers and collective_barriers of both kinds, flushes, direct puts, commands,
// windows.
__global__ void everything(dcuda::context context, findings* found, unsigned* memory, int rounds) {
    __shared__ dcuda::state state;
    dcuda::rank self(context, state);
    constexpr std::size_t large = 600, words = large + 2;
    const int ranks = self.size(), next = (self.id() + 1) % ranks;
    unsigned* const inbox = piece_of(memory, 2 * words, self);
    unsigned* const outbox = inbox + words;
    for (int round = 0; round < rounds; ++round) {
        const dcuda::window win =
            self.create_window(round % 2 == 0 ? dcuda::world : dcuda::device, inbox, words * sizeof(unsigned));
        self.free_window(win);
        self.start_timer();
        self.stop_timer();
        self.barrier(dcuda::device);
    }
    const dcuda::window win = self.create_window(dcuda::world, inbox, words * sizeof(unsigned));
    for (int round = 0; round < rounds; ++round) {
        for_each_thread(words, [&](std::size_t i) { outbox[i] = static_cast<unsigned>(round * words + i); });
        self.put(win, next, 0, large * sizeof(unsigned), outbox);
        self.put_notify(win, next, large * sizeof(unsigned), sizeof(unsigned), outbox + large, 3);
        self.flush(win);
        self.put_notify(win, next, (large + 1) * sizeof(unsigned), sizeof(unsigned), outbox + large + 1, 4);
        self.wait_notifications(3, 1);
        self.wait_notifications(4, 1);
        for_each_thread(words, [&](std::size_t i) { EXPECT_SAME(inbox[i], round * words + i); });
        self.barrier(dcuda::world);
        self.barrier(dcuda::world);
        self.barrier(dcuda::device);
    }
    self.free_window(win);
}

TEST_F(WrapAround, Everything) {
    const device_vector<unsigned> memory(2 * 602 * 3);
    check(everything, shape(3), memory.get(), 50);
}

TEST_F(WrapAround, Thousands) { check(one_by_one, shape(4), 5000); }

} // namespace
