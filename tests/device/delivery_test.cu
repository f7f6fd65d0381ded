// SPDX-License-Identifier: BSD-3-Clause
// When puts are where they belong: what flush, free_window and direct windows promise, that nobody waits for a busy
// target, and that a source may change once put_notify has read it. Each case failed before small puts were completed
// by flush.
#include "device_test.hpp"

using namespace dcuda::test;

namespace {

class Delivery : public device_test {};

constexpr std::size_t words = 1024;

// One word, as another rank has stored it last.
DCUDA_DEVICE unsigned look(const unsigned* word) {
#if defined(__CUDA_ARCH__)
    return *static_cast<const volatile unsigned*>(word);
#elif defined(__CUDACC__)
    return 0;
#else
    return __atomic_load_n(word, __ATOMIC_ACQUIRE);
#endif
}

// The rank computes for so long, and calls nothing of the library.
DCUDA_DEVICE void compute(unsigned milliseconds) {
    const std::uint64_t start_ns = dcuda::detail::clock_ns();
    while (dcuda::detail::clock_ns() - start_ns < milliseconds * std::uint64_t{1'000'000}) dcuda::detail::exec::relax();
    __syncthreads();
}

// flush() returns when the put is complete: what a third rank puts there after it is later.
__global__ void third_rank(dcuda::context context, findings* found, unsigned* memory, std::size_t size) {
    __shared__ dcuda::state state;
    dcuda::rank self(context, state);
    unsigned* const inbox = piece_of(memory, 2 * words, self);
    unsigned* const source = inbox + words;
    const int first = 0, second = self.size() > 2 ? 1 : 0, target = self.size() - 1;
    const dcuda::window win = self.create_window(dcuda::world, inbox, words * sizeof(unsigned));
    for (unsigned round = 1; round <= 3; ++round) {
        for_each_thread(size, [&](std::size_t i) { source[i] = 1000 * round + (self.id() == first ? 111 : 222); });
        if (self.id() == first) {
            self.put_notify(win, target, 0, size * sizeof(unsigned), source, 5);
            self.flush(win);
            self.notify(second, dcuda::world, 1);
        }
        if (self.id() == second && second != first) {
            self.wait_notifications(1, 1);
            self.put(win, target, 0, size * sizeof(unsigned), source);
            self.flush(win);
            self.notify(target, dcuda::world, 2);
        }
        if (self.id() == target) {
            compute(3);
            self.wait_notifications(2, 1);
            for_each_thread(size, [&](std::size_t i) { EXPECT_SAME(inbox[i], 1000 * round + 222); });
            self.wait_notifications(5, 1);
            for_each_thread(size, [&](std::size_t i) { EXPECT_SAME(inbox[i], 1000 * round + 222); });
        }
        self.barrier(dcuda::world);
    }
    self.free_window(win);
}

TEST_F(Delivery, FlushBeforeAThirdRank) {
    const device_vector<unsigned> memory(3 * 2 * words);
    for (const std::size_t size : {1, 3, 90, 1000}) check(third_rank, shape(3, dim3(64)), memory.get(), size);
}

// The same where the second put is of the source itself, into memory that both open: nothing is copied.
__global__ void own_store(dcuda::context context, findings* found, unsigned* memory) {
    __shared__ dcuda::state state;
    dcuda::rank self(context, state);
    const dcuda::window win = self.create_window(dcuda::device, memory, words * sizeof(unsigned));
    if (self.id(dcuda::device) == 0) {
        by_one_thread([&] { memory[512] = 111; });
        self.put_notify(win, 1, 0, sizeof(unsigned), memory + 512, 5);
        self.flush(win);
        by_one_thread([&] { memory[0] = 222; });
        self.put_notify(win, 1, 0, sizeof(unsigned), memory, 5);
    } else if (self.id(dcuda::device) == 1) {
        self.wait_notifications(5, 2);
        EXPECT_SAME(memory[0], 222);
    }
    self.barrier(dcuda::world);
    self.free_window(win);
}

TEST_F(Delivery, FlushBeforeAPutInPlace) {
    const device_vector<unsigned> memory(words);
    check(own_store, shape(2), memory.get());
}

// After free_window the memory is the rank's own.
__global__ void freed(dcuda::context context, findings* found, unsigned* memory, dcuda::communicator comm) {
    __shared__ dcuda::state state;
    dcuda::rank self(context, state);
    unsigned* const inbox = piece_of(memory, words, self);
    const int ranks = self.size(comm), target = (self.id(comm) + 1) % ranks;
    for (unsigned round = 1; round <= 20; ++round) {
        const dcuda::window win = self.create_window(comm, inbox, 16 * sizeof(unsigned));
        by_one_thread([&] { inbox[512] = round; });
        self.put_notify(win, target, 0, sizeof(unsigned), inbox + 512, 5);
        self.free_window(win);
        EXPECT_SAME(inbox[0], round); // it has arrived
        __syncthreads();
        by_one_thread([&] { inbox[0] = 222; });
        EXPECT_SAME(self.test_notifications(7, 1), false); // nothing comes late
        EXPECT_SAME(inbox[0], 222);
        self.wait_notifications(5, 1);
        EXPECT_SAME(inbox[0], 222);
        self.barrier(comm);
    }
}

TEST_F(Delivery, FreedMemoryIsPrivate) {
    const device_vector<unsigned> memory(3 * words);
    check(freed, shape(3), memory.get(), dcuda::world);
    check(freed, shape(3), memory.get(), dcuda::device);
}

// In a direct window the target sees all puts without calling the library, in the order in which they were issued.
__global__ void polled(dcuda::context context, findings* found, unsigned* memory, std::size_t size) {
    __shared__ dcuda::state state;
    dcuda::rank self(context, state);
    unsigned* const inbox = piece_of(memory, 2 * words, self);
    unsigned* const source = inbox + words;
    const int target = self.size() - 1;
    const dcuda::window win =
        self.create_window(dcuda::world, inbox, words * sizeof(unsigned), dcuda::window_kind::direct);
    for (unsigned round = 1; round <= 5; ++round) {
        for_each_thread(words, [&](std::size_t i) { source[i] = round; });
        if (self.id() == 0 && target != 0) {
            self.put_notify(win, target, 0, size * sizeof(unsigned), source, 5); // data
            self.flush(win);
            self.put(win, target, 1000 * sizeof(unsigned), sizeof(unsigned), source); // flag
        } else if (self.id() == target) {
            if (target != 0)
                while (look(inbox + 1000) != round) dcuda::detail::exec::relax();
            __threadfence_system();
            if (target != 0) for_each_thread(size, [&](std::size_t i) { EXPECT_SAME(look(inbox + i), round); });
            if (target != 0) self.wait_notifications(5, 1);
        }
        self.barrier(dcuda::world);
    }
    self.free_window(win);
}

TEST_F(Delivery, DirectWindowsArePolled) {
    if (few_addresses) GTEST_SKIP() << "the target looks at a word while the source stores it, as it may";
    const device_vector<unsigned> memory(2 * 2 * words);
    for (const std::size_t size : {1, 30, 500}) check(polled, shape(2), memory.get(), size);
}

// A put between two small ones that are still under way overlaps neither of them, so it need not wait for the target,
// which polls for just that put.
__global__ void between(dcuda::context context, findings* found, unsigned* memory) {
    __shared__ dcuda::state state;
    dcuda::rank self(context, state);
    unsigned* const inbox = piece_of(memory, 2 * words, self);
    unsigned* const source = inbox + words;
    const int target = self.size() - 1;
    const dcuda::window win = self.create_window(dcuda::world, inbox, words * sizeof(unsigned));
    for (unsigned round = 1; round <= 5; ++round) {
        for_each_thread(words, [&](std::size_t i) { source[i] = round; });
        if (self.id() == 0) {
            self.put_notify(win, target, 0, sizeof(unsigned), source, 5);
            self.put_notify(win, target, 1000, sizeof(unsigned), source, 5);
            self.put(win, target, 64, sizeof(unsigned), source);
        }
        if (self.id() == target) {
            if (target != 0)
                while (look(inbox + 16) != round) dcuda::detail::exec::relax();
            self.wait_notifications(5, 2);
            EXPECT_SAME(inbox[0], round);
            EXPECT_SAME(inbox[250], round);
            self.notify(0, dcuda::world, 6);
        }
        if (self.id() == 0) self.wait_notifications(6, 1);
        __syncthreads();
    }
    self.barrier(dcuda::world);
    self.free_window(win);
}

TEST_F(Delivery, PutsBetweenSmallOnesDoNotWait) {
    if (few_addresses) GTEST_SKIP() << "the target looks at a word while the source stores it, as it may";
    const device_vector<unsigned> memory(2 * 2 * words);
    check(between, shape(2), memory.get());
}

// A put that does overlap a small one under way does not wait for a busy target either, if it is not too large; and the
// later of the two stays.
__global__ void over(dcuda::context context, findings* found, unsigned* memory, int* go_on, std::size_t size) {
    __shared__ dcuda::state state;
    dcuda::rank self(context, state);
    unsigned* const inbox = piece_of(memory, 3 * words, self);
    unsigned *const source = inbox + words, *const newer = inbox + 2 * words;
    const int target = self.size() - 1;
    const dcuda::window win = self.create_window(dcuda::world, inbox, words * sizeof(unsigned));
    for_each_thread(words, [&](std::size_t i) { source[i] = 1, newer[i] = 2; });
    if (self.id() == 0) {
        self.put_notify(win, target, 40, 5 * sizeof(unsigned), source, 5);
        self.put(win, target, 0, size * sizeof(unsigned), newer);
        self.put_notify(win, target, 0, 0, newer, 6);
        if (self.id(dcuda::device) + 1 != self.size(dcuda::device)) // the target is near
            by_one_thread([&] { atomicExch(go_on, 1); });
    }
    if (self.id() == target) {
        if (target < self.size(dcuda::device) && target != 0)
            while (atomicAdd(go_on, 0) == 0) dcuda::detail::exec::relax(); // busy until the source has gone on
        __syncthreads();
        self.wait_notifications(6, 1);
        for_each_thread(size, [&](std::size_t i) { EXPECT_SAME(inbox[i], 2); });
        self.wait_notifications(5, 1);
        for_each_thread(size, [&](std::size_t i) { EXPECT_SAME(inbox[i], 2); });
    }
    self.barrier(dcuda::world);
    self.free_window(win);
}

TEST_F(Delivery, PutsOverSmallOnesDoNotWait) {
    const device_vector<unsigned> memory(2 * 3 * words);
    for (const std::size_t size : {11, 100, 1000}) {
        const device_vector<int> go_on(1);
        check(over, shape(2, dim3(64)), memory.get(), go_on.get(), size);
    }
}

// notify and put_notify go on whatever the target does: it is told only afterwards that it may go on.
__global__ void many(dcuda::context context, findings* found, unsigned* memory, int* go_on, int count, bool puts) {
    __shared__ dcuda::state state;
    dcuda::rank self(context, state);
    unsigned* const inbox = piece_of(memory, 2 * words, self);
    const dcuda::window win = self.create_window(dcuda::device, inbox, words * sizeof(unsigned));
    for_each_thread(words, [&](std::size_t i) { inbox[words + i] = static_cast<unsigned>(i); });
    if (self.id(dcuda::device) == 0) {
        for (int i = 0; i < count; ++i) {
            const std::size_t at = static_cast<std::size_t>(i) % 200;
            if (puts)
                self.put_notify(win, 1, 5 * at * sizeof(unsigned), 5 * sizeof(unsigned), inbox + words + 5 * at, i % 3);
            else
                self.notify(1, dcuda::device, i % 3);
        }
        by_one_thread([&] { atomicExch(go_on, 1); });
    } else if (self.id(dcuda::device) == 1) {
        while (atomicAdd(go_on, 0) == 0) dcuda::detail::exec::relax();
        __syncthreads();
        for (int tag = 0; tag < 3; ++tag) self.wait_notifications(tag, (count + 2 - tag) / 3);
        for (int tag = 0; tag < 3; ++tag) EXPECT_SAME(self.test_notifications(tag, 1), false);
        for_each_thread(puts ? 5 * min(count, 200) : 0, [&](std::size_t i) { EXPECT_SAME(inbox[i], i); });
    }
    self.barrier(dcuda::world);
    self.free_window(win);
}

TEST_F(Delivery, NotificationsDoNotWaitForABusyTarget) {
    const device_vector<unsigned> memory(2 * 2 * words);
    for (const char* packets : {"8", "64", ""}) {
        SCOPED_TRACE(packets);
        if (*packets != '\0') setenv("DCUDA_MAILBOX_PACKETS", packets, 1);
        end_job();
        for (const bool puts : {false, true}) {
            const device_vector<int> go_on(1);
            // More puts than a small mailbox holds overlap what is under way, and must wait.
            const int count = !puts ? 5000 : *packets == '\0' ? 150 : 3;
            check(many, shape(2), memory.get(), go_on.get(), count, puts);
        }
        unsetenv("DCUDA_MAILBOX_PACKETS");
    }
}

// When put_notify has returned and the block has met, a small source may change.
__global__ void source_changes(dcuda::context context, findings* found, unsigned* memory, std::size_t size,
                               int rounds) {
    __shared__ dcuda::state state;
    dcuda::rank self(context, state);
    unsigned* const inbox = piece_of(memory, 17 * words, self);
    unsigned* const source = inbox + 16 * words;
    const int ranks = self.size(), next = (self.id() + 1) % ranks, previous = (self.id() + ranks - 1) % ranks;
    const dcuda::window win = self.create_window(dcuda::world, inbox, 16 * words * sizeof(unsigned));
    for (int round = 0; round < rounds; ++round) {
        for (int i = 0; i < 16; ++i) {
            for_each_thread(size, [&](std::size_t at) { source[at] = static_cast<unsigned>(round * 16 + i + at); });
            self.put_notify(win, next, i * words * sizeof(unsigned), size * sizeof(unsigned), source, 0);
            __syncthreads();
        }
        self.wait_notifications(0, 16);
        for_each_thread(16 * size, [&](std::size_t at) {
            EXPECT_SAME(inbox[at / size * words + at % size], round * 16 + at / size + at % size);
        });
        __syncthreads();
        self.notify(previous, dcuda::world, 1);
        self.wait_notifications(1, 1);
    }
    self.free_window(win);
}

TEST_F(Delivery, SmallSourcesMayChange) {
    const device_vector<unsigned> memory(3 * 17 * words);
    for (const std::size_t size : {1, 25, 90, 180}) check(source_changes, shape(3, dim3(64)), memory.get(), size, 20);
}

} // namespace
