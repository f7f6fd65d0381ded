// SPDX-License-Identifier: BSD-3-Clause
// Windows: creation, ids, limits, several at a time, several allocations.
#include "device_test.hpp"

#include <algorithm>
#include <type_traits>

using namespace dcuda::test;

namespace {

class Windows : public device_test {};

// Created and freed again and again, `at_once` at a time, freed in another order than created.
__device__ void open_and_put(dcuda::rank& self, findings* found, unsigned* memory, int rounds, int at_once,
                             dcuda::communicator comm) {
    const int ranks = self.size(comm), rank = self.id(comm), next = (rank + 1) % ranks;
    const int previous = (rank + ranks - 1) % ranks;
    unsigned* const inbox = piece_of(memory, at_once + 1, self);
    unsigned* const outbox = inbox + at_once;
    dcuda::window windows[20];
    for (int round = 0; round < rounds; ++round) {
        for (int i = 0; i < at_once; ++i) {
            const dcuda::window before = windows[i];
            windows[i] = self.create_window(comm, inbox + i, sizeof(unsigned));
            EXPECT_SAME(static_cast<bool>(windows[i]), true);
            EXPECT_SAME(windows[i] != before, true); // an old handle never becomes valid again
            for (int other = 0; other < i; ++other) EXPECT_SAME(windows[other] != windows[i], true);
        }
        for (int i = 0; i < at_once; ++i) {
            by_one_thread([&] { outbox[0] = static_cast<unsigned>(1000 * rank + 10 * round + i); });
            self.put_notify(windows[i], next, 0, sizeof(unsigned), outbox, 1);
            self.flush(windows[i]);
        }
        self.wait_notifications(1, at_once);
        for (int i = 0; i < at_once; ++i) EXPECT_SAME(inbox[i], 1000 * previous + 10 * round + i);
        for (int i = 0; i < at_once; ++i) self.free_window(windows[(i + round) % at_once]);
    }
}

__global__ void create_and_free(dcuda::context context, findings* found, unsigned* memory, int rounds, int at_once,
                                dcuda::communicator comm) {
    __shared__ dcuda::state state;
    dcuda::rank self(context, state);
    open_and_put(self, found, memory, rounds, at_once, comm);
}

TEST_F(Windows, OneAfterTheOther) {
    const device_vector<unsigned> memory(3 * 2);
    check(create_and_free, shape(3), memory.get(), 100, 1, dcuda::world);
    check(create_and_free, shape(3), memory.get(), 100, 1, dcuda::device);
}

TEST_F(Windows, ManyAtATime) {
    const device_vector<unsigned> memory(3 * 21);
    check(create_and_free, shape(3), memory.get(), 5, 20, dcuda::world);
    check(create_and_free, shape(3), memory.get(), 5, 20, dcuda::device);
    check(create_and_free, shape(3), memory.get(), 5, 20, dcuda::node);
}

// Of communicators that split has made: all at the same time, and each at its own pace.
__global__ void windows_of_groups(dcuda::context context, findings* found, unsigned* memory, int rounds, int at_once,
                                  int groups, int stride) {
    __shared__ dcuda::state state;
    dcuda::rank self(context, state);
    const int color = self.id() / stride % groups;
    const dcuda::communicator group = self.split(dcuda::world, color, -self.id());
    open_and_put(self, found, memory, rounds + color % 4, at_once, group);
    self.free_communicator(group);
    // Nothing is left of them.
    open_and_put(self, found, memory, 1, at_once, dcuda::world);
}

TEST_F(Windows, OfGroups) {
    requested.max_windows = 4 * 5;
    const device_vector<unsigned> memory(6 * 21);
    const auto run = [&](int ranks, int at_once, int groups, int stride) {
        check(windows_of_groups, shape(ranks), memory.get(), 5, at_once, groups, stride);
    };
    run(6, 20, 1, 1); // one of all, in another order
    run(6, 5, 4, 1);  // on all devices
    run(4, 5, 4, 4);  // each of one device
    run(6, 5, 2, 3);  // halves of devices
    run(5, 5, 3, 2);  // as it comes
}

TEST_F(Windows, OfEachColumn) {
    requested.max_windows = 1056;
    const int ranks = DCUDA_BACKEND_CUDA ? all_of(1056) : few_threads ? 9 : 40;
    const device_vector<unsigned> memory(static_cast<std::size_t>(ranks) * 2);
    check(windows_of_groups, shape(ranks, dim3(64)), memory.get(), 2, 1, ranks, 1);
}

// Windows freed one right after the other, while messages of some ranks have not been taken yet: no rank may count
// those for the next barrier that another device's ranks are already in.
__global__ void free_in_a_row(dcuda::context context, findings* found, unsigned* memory, int rounds,
                              dcuda::communicator comm) {
    __shared__ dcuda::state state;
    dcuda::rank self(context, state);
    const int next = (self.id(comm) + 1) % self.size(comm);
    unsigned* const words = piece_of(memory, 4, self);
    for (int round = 0; round < rounds; ++round) {
        dcuda::window windows[3];
        for (int i = 0; i < 3; ++i) windows[i] = self.create_window(comm, words + i, sizeof(unsigned));
        by_one_thread([&] { words[3] = static_cast<unsigned>(round); });
        if ((round + self.id()) % 3 == 0) self.put_notify(windows[2], next, 0, sizeof(unsigned), words + 3, 2);
        for (int i = 0; i < 3; ++i) self.free_window(windows[i]);
        const int previous = (self.id(comm) + self.size(comm) - 1) % self.size(comm);
        const int before = previous + self.id() - self.id(comm); // in the world
        if ((round + before) % 3 == 0) {
            EXPECT_SAME(words[2], round); // free_window has completed it
            self.wait_notifications(2, 1);
        }
    }
}

TEST_F(Windows, FreedInARow) {
    const device_vector<unsigned> memory(4 * 4);
    check(free_in_a_row, shape(4), memory.get(), 500, dcuda::world);
    check(free_in_a_row, shape(4), memory.get(), 500, dcuda::device);
}

// --- windows that the host makes ---

__global__ void use_no_window(dcuda::context context, findings*) {
    __shared__ dcuda::state state;
    dcuda::rank self(context, state);
}

constexpr int host_part = 5; // words of a rank; odd, so that parts begin at all addresses

// Each rank puts its number of the round into its neighbour's part of the memory that the neighbour's device has, and
// finds what the round before left there. Small puts and large ones, and a window of the kernel's own beside it.
__global__ void use_host_window(dcuda::context context, findings* found, dcuda::window win, unsigned* memory,
                                unsigned round, int ranks_before, int threads_before) {
    __shared__ dcuda::state state;
    dcuda::rank self(context, state);
    const int next = (self.id() + 1) % self.size(), previous = (self.id() + self.size() - 1) % self.size();
    const auto device_size = static_cast<std::size_t>(self.size(dcuda::device));
    unsigned* const part = memory + static_cast<std::size_t>(self.id(dcuda::device)) * host_part;
    unsigned* const outbox = memory + device_size * host_part + self.id(dcuda::device) * host_part;
    if (self.id(dcuda::device) < ranks_before)
        EXPECT_SAME(part[0], 1000 * (round - 1) + static_cast<unsigned>(threads_before));
    const dcuda::window own = self.create_window(dcuda::world, part, host_part * sizeof(unsigned));
    EXPECT_SAME(own != win, true);
    for_each_thread(host_part, [&](std::size_t i) {
        outbox[i] = 1000 * round + static_cast<unsigned>(i == 0 ? blockDim.x : self.id());
    });
    const std::size_t offset = static_cast<std::size_t>(next) % device_size * host_part * sizeof(unsigned);
    self.put_notify(win, next, offset, host_part * sizeof(unsigned), outbox, 3);
    self.wait_notifications(3, 1);
    EXPECT_SAME(part[0], 1000 * round + blockDim.x);
    for (int i = 1; i < host_part; ++i) EXPECT_SAME(part[i], 1000 * round + static_cast<unsigned>(previous));
    self.flush(win);
    self.free_window(own);
}

// Runs with different numbers of ranks, and a runtime that has made windows before.
TEST_F(Windows, OfTheHostOutliveRuns) {
    const std::size_t most_ranks = 7;
    for (const dcuda::window_kind kind : {dcuda::window_kind::usual, dcuda::window_kind::direct}) {
        const device_vector<unsigned> memory(2 * most_ranks * host_part), other(1);
        const dcuda::window unused = job().create_window(other.get(), sizeof(unsigned), kind);
        const dcuda::window win = job().create_window(memory.get(), most_ranks * host_part * sizeof(unsigned), kind);
        EXPECT_TRUE(win && unused && win != unused);
        job().free_window(unused);
        int ranks_before = 0, threads_before = 0;
        unsigned round = 0;
        for (const int ranks : {3, 3, 7, 1}) {
            const int threads = 32 << (round % 2);
            check(use_host_window, shape(ranks, dim3(static_cast<unsigned>(threads))), win, memory.get(), round++,
                  ranks_before, threads_before);
            ranks_before = ranks;
            threads_before = threads;
        }
        job().free_window(win);
    }
}

__global__ void put_into(dcuda::context context, findings*, dcuda::window win, unsigned* memory) {
    __shared__ dcuda::state state;
    dcuda::rank self(context, state);
    self.put(win, 0, 0, sizeof(unsigned), memory + 1);
}

__global__ void free_it(dcuda::context context, findings*, dcuda::window win) {
    __shared__ dcuda::state state;
    dcuda::rank self(context, state);
    self.free_window(win);
}

template <class... Params>
std::string error_of(dcuda::runtime& job, void (*kernel)(dcuda::context, findings*, Params...),
                     const dcuda::launch_config& config, std::type_identity_t<Params>... arguments) {
    try {
        job.run(kernel, config, nullptr, arguments...);
    } catch (const dcuda::error& problem) {
        return problem.what();
    }
    return {};
}

__global__ void put_nothing_into_none(dcuda::context context, findings*) {
    __shared__ dcuda::state state;
    dcuda::rank self(context, state);
    self.put_notify(dcuda::window{}, 0, 0, 0, nullptr, 1);
}

// Before any window is near: an empty entry of a table is no window either.
TEST_F(Windows, NoneIsAnErrorAlsoForNothing) {
    const std::string problem = error_of(job(), put_nothing_into_none, shape(2));
    EXPECT_NE(problem.find("put_notify on a window that is none"), problem.npos) << problem;
}

TEST_F(Windows, OfTheHostAreFreedByTheHost) {
    const device_vector<unsigned> memory(4);
    const dcuda::window win = job().create_window(memory.get(), 2 * sizeof(unsigned));
    const std::string problem = error_of(job(), free_it, shape(2), win);
    EXPECT_NE(problem.find("free_window on window 63, which the host has made: only runtime::free_window frees it"),
              problem.npos)
        << problem;
}

TEST_F(Windows, OfTheHostAreNoneWhenFreed) {
    const device_vector<unsigned> memory(4);
    const dcuda::window freed = job().create_window(memory.get(), 2 * sizeof(unsigned));
    job().free_window(freed);
    EXPECT_THROW(job().free_window(freed), dcuda::error);
    // Another one in its place is another one.
    const dcuda::window win = job().create_window(memory.get(), 2 * sizeof(unsigned));
    EXPECT_TRUE(win != freed);
    const std::string problem = error_of(job(), put_into, shape(2), freed, memory.get());
    EXPECT_NE(problem.find("which does not exist (any more)"), problem.npos) << problem;
}

TEST_F(Windows, OfTheHostHaveBounds) {
    const device_vector<unsigned> memory(4);
    const dcuda::window win = job().create_window(memory.get(), 1);
    const std::string problem = error_of(job(), put_into, shape(2), win, memory.get());
    EXPECT_NE(problem.find("put of 4 B at offset 0 exceeds window 63 of rank 0 (1 B)"), problem.npos) << problem;
}

TEST_F(Windows, OfTheHostAreRefusedOnAllProcessesOrOnNone) {
    requested.max_windows = 2;
    const device_vector<unsigned> memory(4);
    const bool is_last = job().info().process_index + 1 == job().info().process_count;
    const auto refusal = [&](void* base, std::size_t bytes) -> std::string {
        try {
            job().create_window(base, bytes);
        } catch (const dcuda::error& problem) {
            return problem.what();
        }
        return {};
    };
    unsigned on_the_stack[2] = {};
    EXPECT_NE(refusal(is_last ? on_the_stack : memory.get(), 8).find("no memory from cudaMalloc"), std::string::npos);
    EXPECT_NE(refusal(is_last ? nullptr : memory.get(), 8).find("null pointer"), std::string::npos);
    EXPECT_NE(refusal(memory.get(), is_last ? std::size_t{1} << 40 : 8).find("at offset 0 of an allocation of "),
              std::string::npos);
    // Nothing of these is left, and the runtime goes on.
    const dcuda::window first = job().create_window(nullptr, 0), second = job().create_window(memory.get(), 8);
    EXPECT_NE(refusal(memory.get(), 8).find("2 windows of the host exist already"), std::string::npos);
    job().free_window(first);
    check(use_no_window, shape(2));
    job().free_window(second);
}

__global__ void too_many(dcuda::context context, findings* found, unsigned* memory, int most,
                         dcuda::communicator comm) {
    __shared__ dcuda::state state;
    dcuda::rank self(context, state);
    dcuda::window windows[8];
    for (int i = 0; i < most; ++i) windows[i] = self.create_window(comm, memory, 64);
    EXPECT_SAME(static_cast<bool>(windows[most - 1]), true);
    for (int i = 0; i < 2; ++i) EXPECT_SAME(static_cast<bool>(self.create_window(comm, memory, 64)), false);
    // With one freed there is room for one.
    self.free_window(windows[1]);
    windows[1] = self.create_window(comm, memory, 64);
    EXPECT_SAME(static_cast<bool>(windows[1]), true);
    EXPECT_SAME(static_cast<bool>(self.create_window(comm, memory, 64)), false);
    for (int i = 0; i < most; ++i) self.free_window(windows[i]);
}

void expect_sentence_about_windows(const std::string& printed, int times) {
    int found = 0;
    for (std::size_t at = 0;
         (at = printed.find("create_window over 64 B: 4 windows exist already", at)) != printed.npos; ++at)
        ++found;
    EXPECT_EQ(found, times) << printed;
}

TEST_F(Windows, TooManyGiveNoneAndASentenceIfTheyMayFail) {
    requested.max_windows = 4;
    requested.windows_may_fail = true;
    const device_vector<unsigned> memory(16);
    for (const dcuda::communicator comm : {dcuda::world, dcuda::device, dcuda::node}) {
        testing::internal::CaptureStderr();
        check(too_many, shape(3), memory.get(), 4, comm);
        const std::string printed = testing::internal::GetCapturedStderr();
        // The first full process speaks for the others.
        const bool speaks = comm == dcuda::device || job().info().process_index == 0;
        expect_sentence_about_windows(printed, speaks ? 3 : 0);
    }
}

// One device has no room for a window of all: it is created nowhere, and nobody hangs.
__global__ void one_device_is_full(dcuda::context context, findings* found, unsigned* memory, dcuda::communicator all) {
    __shared__ dcuda::state state;
    dcuda::rank self(context, state);
    const bool first_device = self.id() == self.id(dcuda::device);
    dcuda::window own[4];
    for (int i = 0; first_device && i < 4; ++i) own[i] = self.create_window(dcuda::device, memory, 64);
    EXPECT_SAME(static_cast<bool>(self.create_window(all, memory, 64)), false);
    for (int i = 0; first_device && i < 4; ++i) self.free_window(own[i]);
    const dcuda::window win = self.create_window(all, memory, 64);
    EXPECT_SAME(static_cast<bool>(win), true);
    self.free_window(win);
}

TEST_F(Windows, OneDeviceWithoutRoomMeansNoneForAll) {
    requested.max_windows = 4;
    requested.windows_may_fail = true;
    const device_vector<unsigned> memory(16);
    for (const dcuda::communicator all : {dcuda::world, dcuda::node}) {
        testing::internal::CaptureStderr();
        check(one_device_is_full, shape(2), memory.get(), all);
        const std::string printed = testing::internal::GetCapturedStderr();
        if (job().info().process_index == 0) expect_sentence_about_windows(printed, 1);
    }
}

// The ranks' windows lie in different allocations and have different sizes; rank r writes into everybody's last r + 1
// words that fit.
__global__ void sizes_and_allocations(dcuda::context context, findings* found, unsigned* first, unsigned* second) {
    __shared__ dcuda::state state;
    dcuda::rank self(context, state);
    const int ranks = self.size(), rank = self.id(), here = self.id(dcuda::device);
    const auto words_of = [&](int r) { return static_cast<std::size_t>(ranks + 3 * r); };
    const std::size_t room = words_of(ranks);
    unsigned* const inbox = (here % 2 == 0 ? first : second) + here * room;
    const dcuda::window win = self.create_window(dcuda::world, inbox, words_of(rank) * sizeof(unsigned));
    __shared__ unsigned ours;
    by_one_thread([&] { ours = 77 + rank; });
    for (int target = 0; target < ranks; ++target)
        self.put_notify(win, target, (words_of(target) - 1 - rank) * sizeof(unsigned), sizeof(unsigned), &ours, 0);
    self.wait_notifications(0, ranks);
    for_each_thread(ranks, [&](std::size_t i) { EXPECT_SAME(inbox[words_of(rank) - 1 - i], 77 + i); });
    self.free_window(win);
}

TEST_F(Windows, SizesAndAllocationsDiffer) {
    constexpr int ranks_here = 4;
    const int ranks = job().plan(sizes_and_allocations, shape(ranks_here)).rank_count;
    const device_vector<unsigned> first(16u * ranks * ranks_here), second(16u * ranks * ranks_here);
    check(sizes_and_allocations, shape(ranks_here), first.get(), second.get());
}

// A window that is never freed ends with the run; the next run starts with all of them free. Memory is freed and
// allocated anew between runs, so its mappings must be new as well.
__global__ void never_freed(dcuda::context context, findings* found, unsigned* memory, unsigned run) {
    __shared__ dcuda::state state;
    dcuda::rank self(context, state);
    const int ranks = self.size(), rank = self.id();
    unsigned* const inbox = piece_of(memory, 2, self);
    const dcuda::window win = self.create_window(dcuda::world, inbox, sizeof(unsigned));
    by_one_thread([&] { inbox[1] = run * 100 + rank; });
    self.put_notify(win, (rank + 1) % ranks, 0, sizeof(unsigned), inbox + 1, 0);
    self.wait_notifications(0, 1);
    EXPECT_SAME(inbox[0], run * 100 + (rank + ranks - 1) % ranks);
}

TEST_F(Windows, EndWithTheRun) {
    requested.max_windows = 1;
    for (unsigned run = 0; run < 10; ++run) {
        const device_vector<unsigned> padding(1000 * run), memory(2 * 3);
        check(never_freed, shape(3), memory.get(), run);
    }
}

} // namespace
