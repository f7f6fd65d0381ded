// SPDX-License-Identifier: BSD-3-Clause
// Barriers: nobody leaves before everybody has come, and what was written before is visible after.
#include "device_test.hpp"

using namespace dcuda::test;

namespace {

class Barrier : public device_test {};

DCUDA_DEVICE void dawdle(unsigned turns) {
    for (unsigned i = 0; i < turns; ++i) dcuda::detail::clock_ns();
}

// Plain stores of all threads, read by all ranks of the device after the barrier.
__global__ void plain_stores(dcuda::context context, findings* found, unsigned* values, int rounds,
                             dcuda::communicator comm) {
    __shared__ dcuda::state state;
    dcuda::rank self(context, state);
    const int here = self.id(dcuda::device), ranks_here = self.size(dcuda::device);
    const unsigned threads = dcuda::detail::exec::block_threads();
    for (int round = 1; round <= rounds; ++round) {
        dawdle((here * 7 + round) % 5 * 100);
        values[here * threads + dcuda::detail::exec::thread_index()] = static_cast<unsigned>(round);
        self.barrier(comm);
        for_each_thread(ranks_here * threads, [&](std::size_t i) { EXPECT_SAME(values[i], round); });
        self.barrier(comm);
    }
}

TEST_F(Barrier, OfTheDevice) {
    const device_vector<unsigned> values(7 * 32);
    check(plain_stores, shape(7), values.get(), 50, dcuda::device);
}

TEST_F(Barrier, OfTheWorld) {
    const device_vector<unsigned> values(7 * 32);
    check(plain_stores, shape(7), values.get(), 50, dcuda::world);
}

TEST_F(Barrier, OfOneRank) {
    const device_vector<unsigned> values(64);
    check(plain_stores, shape(1, dim3(64)), values.get(), 10, dcuda::world);
    check(plain_stores, shape(1, dim3(64)), values.get(), 10, dcuda::device);
}

// Plain puts to everybody have arrived after the barrier of the world; barriers of the devices in between, of a number
// that differs from device to device, change nothing.
__global__ void puts_to_all(dcuda::context context, findings* found, unsigned* memory, int rounds) {
    __shared__ dcuda::state state;
    dcuda::rank self(context, state);
    const int ranks = self.size(), rank = self.id(), ranks_here = self.size(dcuda::device);
    unsigned* const inbox = piece_of(memory, ranks + 1, self);
    const dcuda::window win = self.create_window(dcuda::world, inbox, ranks * sizeof(unsigned));
    for (int round = 1; round <= rounds; ++round) {
        by_one_thread([&] { inbox[ranks] = static_cast<unsigned>(1000 * round + rank); });
        for (int target = 0; target < ranks; ++target)
            self.put(win, target, rank * sizeof(unsigned), sizeof(unsigned), inbox + ranks);
        for (int i = 0; i < rank / ranks_here % 3; ++i) self.barrier(dcuda::device);
        self.barrier(dcuda::world);
        for_each_thread(ranks, [&](std::size_t i) { EXPECT_SAME(inbox[i], 1000 * round + i); });
        self.barrier(dcuda::world);
    }
    self.free_window(win);
}

TEST_F(Barrier, PutsHaveArrived) {
    constexpr int ranks_here = 4;
    const int ranks = job().plan(puts_to_all, shape(ranks_here)).rank_count;
    const device_vector<unsigned> memory(static_cast<std::size_t>(ranks_here) * (ranks + 1));
    check(puts_to_all, shape(ranks_here), memory.get(), 20);
}

} // namespace
