// SPDX-License-Identifier: BSD-3-Clause
// Puts, notifications, waits and flush: what arrives, in which order, and when it may be read.
#include "device_test.hpp"

using namespace dcuda::test;

namespace {

class PutNotify : public device_test {};

// --- content over a ring of all ranks ---

__global__ void pass_around(dcuda::context context, findings* found, unsigned char* memory, std::size_t bytes,
                            int rounds, dcuda::communicator comm) {
    __shared__ dcuda::state state;
    dcuda::rank self(context, state);
    const int ranks = self.size(comm), rank = self.id(comm);
    const int next = (rank + 1) % ranks, previous = (rank + ranks - 1) % ranks;
    unsigned char* const inbox = piece_of(memory, 2 * bytes, self);
    unsigned char* const outbox = inbox + bytes;
    const dcuda::window win = self.create_window(comm, inbox, bytes);
    for (int round = 0; round < rounds; ++round) {
        for_each_thread(bytes, [&](std::size_t i) { outbox[i] = pattern(i, rank * 1000 + round); });
        self.put_notify(win, next, 0, bytes, outbox, 1);
        self.wait_notifications(1, 1);
        for_each_thread(bytes, [&](std::size_t i) { EXPECT_SAME(inbox[i], pattern(i, previous * 1000 + round)); });
        self.notify(previous, comm, 2); // my inbox may be overwritten
        self.wait_notifications(2, 1);
    }
    self.free_window(win);
}

TEST_F(PutNotify, ContentInTheWorld) {
    const device_vector<unsigned char> memory(4 * 2 * 3000);
    check(pass_around, shape(4), memory.get(), std::size_t(3000), 20, dcuda::world);
}

TEST_F(PutNotify, ContentOnTheDevice) {
    const device_vector<unsigned char> memory(5 * 2 * 3000);
    check(pass_around, shape(5), memory.get(), std::size_t(3000), 20, dcuda::device);
}

TEST_F(PutNotify, ToItself) {
    const device_vector<unsigned char> memory(2 * 100);
    check(pass_around, shape(1), memory.get(), std::size_t(100), 3, dcuda::device);
}

TEST_F(PutNotify, BlocksOfTwoAndThreeDimensions) {
    const device_vector<unsigned char> memory(2 * 2 * 5001);
    check(pass_around, shape(2, dim3(8, 5)), memory.get(), std::size_t(5001), 3, dcuda::world);
    check(pass_around, shape(2, dim3(3, 5, 7)), memory.get(), std::size_t(5001), 3, dcuda::world);
    check(pass_around, shape(2, dim3(1, 1, 64)), memory.get(), std::size_t(5001), 3, dcuda::world);
}

TEST_F(PutNotify, LargePuts) {
    constexpr std::size_t bytes = (1 << 20) + 13;
    const device_vector<unsigned char> memory(2 * 2 * bytes);
    check(pass_around, shape(2, dim3(128)), memory.get(), std::size_t(65537), 2, dcuda::world);
    check(pass_around, shape(2, dim3(128)), memory.get(), bytes, 2, dcuda::world);
}

// --- order ---

// Everybody sends its neighbour many small plain puts to two windows, then one notification.
__global__ void many_puts_one_notification(dcuda::context context, findings* found, unsigned* memory, int puts) {
    __shared__ dcuda::state state;
    dcuda::rank self(context, state);
    const int ranks = self.size(), rank = self.id();
    const int next = (rank + 1) % ranks, previous = (rank + ranks - 1) % ranks;
    unsigned* const inbox = piece_of(memory, 3 * puts, self);
    unsigned* const outbox = inbox + 2 * puts;
    const dcuda::window first = self.create_window(dcuda::world, inbox, puts * sizeof(unsigned));
    const dcuda::window second = self.create_window(dcuda::world, inbox + puts, puts * sizeof(unsigned));
    for_each_thread(puts, [&](std::size_t i) { outbox[i] = 100000 * rank + static_cast<unsigned>(i); });
    for (int i = 0; i < puts; ++i) {
        self.put(first, next, i * sizeof(unsigned), sizeof(unsigned), outbox + i);
        if (i + 1 < puts)
            self.put(second, next, i * sizeof(unsigned), sizeof(unsigned), outbox + i);
        else
            self.put_notify(second, next, i * sizeof(unsigned), sizeof(unsigned), outbox + i, 7);
    }
    self.wait_notifications(7, 1);
    for_each_thread(puts, [&](std::size_t i) {
        EXPECT_SAME(inbox[i], 100000 * previous + i);
        EXPECT_SAME(inbox[puts + i], 100000 * previous + i);
    });
    self.free_window(first);
    self.free_window(second);
}

TEST_F(PutNotify, ManyPutsOneNotification) {
    const device_vector<unsigned> memory(3 * 3 * 300);
    check(many_puts_one_notification, shape(3), memory.get(), 300);
}

// A later put of the same source wins, and the n-th notification releases the n-th put.
__global__ void overwritten_in_order(dcuda::context context, findings* found, unsigned* memory, int rounds) {
    __shared__ dcuda::state state;
    dcuda::rank self(context, state);
    const int ranks = self.size(), rank = self.id(), next = (rank + 1) % ranks;
    unsigned* const inbox = piece_of(memory, 64 + rounds, self);
    const dcuda::window win = self.create_window(dcuda::world, inbox, 64 * sizeof(unsigned));
    unsigned* const outbox = inbox + 64;
    for_each_thread(rounds, [&](std::size_t i) { outbox[i] = static_cast<unsigned>(i) + 1; });
    for (int i = 0; i < rounds; ++i) {
        self.put(win, next, 16 * sizeof(unsigned), sizeof(unsigned), outbox + (i + 1) % rounds);
        self.put_notify(win, next, 16 * sizeof(unsigned), sizeof(unsigned), outbox + i, i % 2);
    }
    self.wait_notifications(0, (rounds + 1) / 2);
    self.wait_notifications(1, rounds / 2);
    EXPECT_SAME(inbox[16], rounds);
    EXPECT_SAME(inbox[15], 0);
    EXPECT_SAME(inbox[17], 0);
    self.free_window(win);
}

TEST_F(PutNotify, PutsOfOneSourceStayInOrder) {
    const device_vector<unsigned> memory(3 * (64 + 501));
    check(overwritten_in_order, shape(3, dim3(64)), memory.get(), 501);
}

// --- windows that overlap ---

// The idiom of a stencil: windows of neighbours share their border cells. On one device a put of a border has the same
// source and target, and must not touch the cells: under ThreadSanitizer a copy would race with those who read them.
__global__ void shared_borders(dcuda::context context, findings* found, unsigned* cells, int own, int rounds) {
    __shared__ dcuda::state state;
    dcuda::rank self(context, state);
    const int ranks = self.size(), rank = self.id();
    unsigned* const ours = cells + own * self.id(dcuda::device); // mine[0] and mine[own + 1] are the borders
    const dcuda::window win = self.create_window(dcuda::world, ours, (own + 2) * sizeof(unsigned));
    const bool has_left = rank > 0, has_right = rank + 1 < ranks;
    for (int round = 0; round < rounds; ++round) {
        for_each_thread(own, [&](std::size_t i) { ours[1 + i] = 1000 * round + own * rank + static_cast<int>(i); });
        if (has_left) self.put_notify(win, rank - 1, (own + 1) * sizeof(unsigned), sizeof(unsigned), ours + 1, 3);
        if (has_right) self.put_notify(win, rank + 1, 0, sizeof(unsigned), ours + own, 3);
        self.wait_notifications(3, has_left + has_right);
        if (has_left) EXPECT_SAME(ours[0], 1000 * round + own * rank - 1);
        if (has_right) EXPECT_SAME(ours[own + 1], 1000 * round + own * (rank + 1));
        // Nobody writes its cells before its neighbours have read them.
        if (has_left) self.notify(rank - 1, dcuda::world, 4);
        if (has_right) self.notify(rank + 1, dcuda::world, 4);
        self.wait_notifications(4, has_left + has_right);
    }
    self.free_window(win);
}

TEST_F(PutNotify, OverlappingWindowsCopyNothingOnOneDevice) {
    const device_vector<unsigned> cells(6 * 5 + 2);
    check(shared_borders, shape(6), cells.get(), 5, 20);
}

// --- alignment ---

constexpr std::size_t alignments = 32, small_sizes = 101, slot_bytes = 160;
constexpr std::size_t slab_bytes = alignments * small_sizes * slot_bytes;

// Rank 0 puts every size from every alignment to every alignment of the target; the bytes around must stay.
__global__ void all_alignments(dcuda::context context, findings* found, unsigned char* memory, int target) {
    __shared__ dcuda::state state;
    dcuda::rank self(context, state);
    const bool is_target = self.id() == target;
    // All slabs are aligned to 32 bytes, as cudaMalloc's memory is.
    unsigned char* const slab = memory;
    unsigned char* const source = memory + slab_bytes;
    const dcuda::window win = self.create_window(dcuda::world, is_target ? slab : nullptr, is_target ? slab_bytes : 0);
    if (self.id() == 0) for_each_thread(256, [&](std::size_t i) { source[i] = pattern(i, 5) | 1; });
    for (std::size_t skew = 0; skew < alignments; skew += few_addresses ? 11 : 1) {
        if (is_target) {
            for_each_thread(slab_bytes, [&](std::size_t i) { slab[i] = 0; });
            self.notify(0, dcuda::world, 0);
        }
        if (self.id() == 0) {
            self.wait_notifications(0, 1);
            for (std::size_t size = 0; size < small_sizes; ++size)
                for (std::size_t align = 0; align < alignments; ++align)
                    self.put(win, target, (size * alignments + align) * slot_bytes + align, size, source + skew);
            self.notify(target, dcuda::world, 1);
        }
        if (!is_target) continue;
        self.wait_notifications(1, 1);
        for_each_thread(slab_bytes, [&](std::size_t i) {
            const std::size_t slot = i / slot_bytes, align = slot % alignments, size = slot / alignments;
            const std::size_t place = i % slot_bytes - align; // wraps around before the put
            EXPECT_SAME(slab[i], place < size ? pattern(skew + place, 5) | 1 : 0);
        });
    }
    self.free_window(win);
}

TEST_F(PutNotify, AllAlignmentsAndSmallSizes) {
    const device_vector<unsigned char> memory(slab_bytes + 256);
    const int last = job().plan(all_alignments, shape(2)).rank_count - 1;
    check(all_alignments, shape(2), memory.get(), last);
}

__global__ void large_skewed(dcuda::context context, findings* found, unsigned char* memory, std::size_t room) {
    __shared__ dcuda::state state;
    dcuda::rank self(context, state);
    const int ranks = self.size(), rank = self.id();
    unsigned char* const inbox = piece_of(memory, 2 * room, self);
    unsigned char* const outbox = inbox + room;
    const dcuda::window win = self.create_window(dcuda::world, inbox, room);
    for_each_thread(room, [&](std::size_t i) { outbox[i] = pattern(i, rank) | 1; });
    for (std::size_t skew = 0; skew < 20; ++skew) {
        for_each_thread(room, [&](std::size_t i) { inbox[i] = 0; });
        self.barrier(dcuda::world);
        const std::size_t bytes = room - 64 - skew, receiver = skew, from = skew * 3 % 32;
        self.put_notify(win, (rank + 1) % ranks, receiver, bytes, outbox + from, 0);
        self.wait_notifications(0, 1);
        const int source = (rank + ranks - 1) % ranks;
        for_each_thread(room, [&](std::size_t i) {
            EXPECT_SAME(inbox[i], i >= receiver && i < receiver + bytes ? pattern(i - receiver + from, source) | 1 : 0);
        });
    }
    self.free_window(win);
}

TEST_F(PutNotify, LargeSizesOfAnyAlignment) {
    constexpr std::size_t room = 8192;
    const device_vector<unsigned char> memory(2 * 2 * room);
    check(large_skewed, shape(2, dim3(96)), memory.get(), room);
}

// --- nothing to copy ---

__global__ void zero_sizes(dcuda::context context, findings* found, unsigned* memory) {
    __shared__ dcuda::state state;
    dcuda::rank self(context, state);
    const int ranks = self.size(), rank = self.id(), next = (rank + 1) % ranks;
    unsigned* const inbox = piece_of(memory, 4, self);
    by_one_thread([&] { inbox[0] = 17; });
    const dcuda::window win = self.create_window(dcuda::world, inbox, 4 * sizeof(unsigned));
    const dcuda::window empty = self.create_window(dcuda::world, nullptr, 0);
    EXPECT_SAME(static_cast<bool>(win) && static_cast<bool>(empty), true);
    self.put(win, next, 0, 0, nullptr);
    self.put_notify(win, next, 16, 0, nullptr, 5); // at the window's very end
    self.put_notify(empty, next, 0, 0, inbox, 5);
    self.put(empty, next, 0, 0, nullptr);
    self.flush(empty);
    self.wait_notifications(5, 2);
    EXPECT_SAME(inbox[0], 17);
    self.free_window(empty);
    self.free_window(win);
}

TEST_F(PutNotify, ZeroSizesAndEmptyWindows) {
    const device_vector<unsigned> memory(3 * 4);
    check(zero_sizes, shape(3), memory.get());
}

// Only the last rank of the world has room.
__global__ void mixed_windows(dcuda::context context, findings* found, unsigned* memory) {
    __shared__ dcuda::state state;
    dcuda::rank self(context, state);
    const int last = self.size() - 1;
    const bool has_room = self.id() == last;
    const std::size_t bytes = has_room ? self.size() * sizeof(unsigned) : 0;
    const dcuda::window win = self.create_window(dcuda::world, has_room ? memory : nullptr, bytes);
    __shared__ unsigned source; // sources may lie anywhere
    by_one_thread([&] { source = 100 + self.id(); });
    self.put_notify(win, last, self.id() * sizeof(unsigned), sizeof(unsigned), &source, 0);
    if (has_room) {
        self.wait_notifications(0, self.size());
        for_each_thread(self.size(), [&](std::size_t i) { EXPECT_SAME(memory[i], 100 + i); });
    }
    self.free_window(win);
}

TEST_F(PutNotify, EmptyWindowsBesideOneWithRoom) {
    const device_vector<unsigned> memory(1024);
    check(mixed_windows, shape(4), memory.get());
}

} // namespace
