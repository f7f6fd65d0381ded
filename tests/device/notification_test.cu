// SPDX-License-Identifier: BSD-3-Clause
// Notifications by themselves: tags, counts, tests, and flush.
#include "notification_lists.hpp"

using namespace dcuda::test;

namespace {

class Notifications : public device_test {};

// Every rank notifies its neighbour with every tag, tag + 1 times modulo 3; the neighbour takes them backwards.
__global__ void all_tags(dcuda::context context, findings* found, int tags, int step) {
    __shared__ dcuda::state state;
    dcuda::rank self(context, state);
    const int next = (self.id() + 1) % self.size();
    for (int tag = 0; tag < tags; tag += step)
        for (int i = 0; i <= tag % 3; ++i) self.notify(next, dcuda::world, tag);
    self.notify(next, dcuda::world, tags - 1);
    const int last = (tags - 1) / step * step;
    self.wait_notifications(tags - 1, last == tags - 1 ? 2 + last % 3 : 1);
    for (int tag = last == tags - 1 ? last - step : last; tag >= 0; tag -= step) {
        // The one source sent the last tag after all others, so nothing more will come. An unsuccessful test gives the
        // core away, which takes long on a busy machine: some tags will do.
        const bool look = tag % 32 < 2 || tag > tags - 3;
        if (look) EXPECT_SAME(self.test_notifications(tag, tag % 3 + 2), false);
        self.wait_notifications(tag, tag % 3 + 1);
        if (look) EXPECT_SAME(self.test_notifications(tag, 1), false);
    }
}

TEST_F(Notifications, AllTags) { check(all_tags, shape(4), 256, 1); }

TEST_F(Notifications, MostTags) {
    requested.tags = 65536;
    check(all_tags, shape(3), 65536, 257);
}

TEST_F(Notifications, OneTag) {
    requested.tags = 1;
    check(all_tags, shape(3), 1, 1);
}

TEST_F(Notifications, OfListsOfTargets) {
    const int rounds = rounds_of_lists(164, 41);
    for (const int ranks : {1, 3, 8, 40}) {
        if (ranks > listed_ranks) continue;
        const auto here = static_cast<std::size_t>(ranks),
                   all = here * static_cast<std::size_t>(job().info().process_count);
        const device_vector<int> stored(here), inboxes(here * all);
        for (const unsigned threads : {32u, 64u, 20u})
            check(notifies_lists, shape(ranks, dim3(threads)), stored.get(), inboxes.get(), 40, rounds, list_of::world,
                  true);
        // As many as leave together, and more.
        for (const int longest : {31, 40})
            check(notifies_lists, shape(ranks), stored.get(), inboxes.get(), longest, std::min(rounds, 41),
                  list_of::world, false);
        for (const list_of numbers : {list_of::device, list_of::every_second})
            check(notifies_lists, shape(ranks), stored.get(), inboxes.get(), 40, 6, numbers, false);
    }
}

// Each rank puts much to each of the next ranks, which its threads or the copy engine store, and notifies them by one
// call. Whoever is notified reads what was put.
constexpr int most_next = 4;
__global__ void lists_after_large_puts(dcuda::context context, findings* found, unsigned char* memory,
                                       std::size_t bytes, std::size_t skew, int rounds) {
    __shared__ int targets[most_next];
    __shared__ dcuda::state state;
    dcuda::rank self(context, state);
    const int rank = self.id(), ranks = self.size(), next = ranks - 1 < most_next ? ranks - 1 : most_next;
    const std::size_t stride = bytes + skew;
    unsigned char* const source = memory + self.id(dcuda::device) * (most_next + 1) * stride;
    unsigned char* const landings = source + stride;
    const dcuda::window win = self.create_window(dcuda::world, landings, most_next * stride);
    const auto seed = [](int sender, int round) { return static_cast<std::uint64_t>(1000 * sender + round); };
    for_each_thread(static_cast<std::size_t>(next),
                    [&](std::size_t n) { targets[n] = (rank + 1 + static_cast<int>(n)) % ranks; });
    __syncthreads();
    for (int round = 0; round < rounds; ++round) {
        for_each_thread(bytes, [&](std::size_t i) { source[i] = pattern(i, seed(rank, round)); });
        for (int n = 0; n < next; ++n)
            self.put(win, targets[n], static_cast<std::size_t>(n) * stride + skew, bytes, source);
        self.notify_each(targets, next, dcuda::world, round % 2);
        self.wait_notifications(round % 2, next);
        for (int n = 0; n < next; ++n) {
            const int sender = (rank - 1 - n + ranks) % ranks;
            for_each_thread(bytes, [&](std::size_t i) {
                EXPECT_SAME(landings[static_cast<std::size_t>(n) * stride + skew + i], pattern(i, seed(sender, round)));
            });
        }
        self.barrier(dcuda::world);
    }
    self.free_window(win);
}

TEST_F(Notifications, OfListsReleaseLargePuts) {
    constexpr std::size_t bytes = 16384;
    for (const int ranks : {2, 8}) {
        const device_vector<unsigned char> memory(static_cast<std::size_t>(ranks) * (most_next + 1) * (bytes + 64));
        for (const std::size_t skew : {0, 16, 64})
            check(lists_after_large_puts, shape(ranks, dim3(64)), memory.get(), bytes, skew, rounds_of(200, 4));
    }
}

// Each thread of a rank stores a word without a put. The next two ranks of the device read it, when they have been
// notified; and tell the rank that they have read.
enum class notified_by { notify, list, small_put, large_put, notify_after_barrier, ways };
__global__ void __launch_bounds__(64, 16) stores_are_released(dcuda::context context, findings* found, int* stored,
                                                              unsigned char* memory, std::size_t large, int rounds) {
    __shared__ int next[2];
    __shared__ int before[2];
    __shared__ dcuda::state state;
    dcuda::rank self(context, state);
    const int here = self.id(dcuda::device), ranks = self.size(dcuda::device);
    const auto threads = static_cast<int>(dcuda::detail::exec::block_threads());
    unsigned char* const inbox = memory + static_cast<std::size_t>(here) * 3 * large; // a place for each source
    unsigned char* const outbox = inbox + 2 * large;
    const dcuda::window win = self.create_window(dcuda::device, inbox, 2 * large, dcuda::window_kind::direct);
    const auto word = [&](int rank) -> int& {
        return stored[rank * threads + static_cast<int>(dcuda::detail::exec::thread_index())];
    };
    by_one_thread([&] {
        for (int n = 0; n < 2; ++n) {
            next[n] = (here + 1 + n) % ranks;
            before[n] = (here + 2 * ranks - 1 - n) % ranks;
        }
    });
    __syncthreads();
    for (int round = 0; round < rounds; ++round) {
        const auto way = static_cast<notified_by>(round % static_cast<int>(notified_by::ways));
        word(here) = 100 * here + round;
        self.release();
        if (way == notified_by::notify_after_barrier) self.barrier(dcuda::device);
        if (way == notified_by::list)
            self.notify_each(next, 2, dcuda::device, 0);
        else
            for (int n = 0; n < 2; ++n)
                if (way == notified_by::small_put || way == notified_by::large_put)
                    self.put_notify(win, next[n], n * large, way == notified_by::small_put ? 8 : large, outbox, 0);
                else
                    self.notify(next[n], dcuda::device, 0);
        self.wait_notifications(0, 2);
        for (const int source : before) EXPECT_SAME(word(source), 100 * source + round);
        self.notify_each(before, 2, dcuda::device, 1);
        self.wait_notifications(1, 2);
    }
    self.free_window(win);
}

TEST_F(Notifications, ReleaseStoresOfThreads) {
    constexpr std::size_t large = 8192; // no message
#if DCUDA_BACKEND_CUDA
    constexpr int rank_counts[] = {1, 132, 1056, 2112};
#else
    constexpr int rank_counts[] = {1, 5, few_addresses ? 8 : 24};
#endif
    for (const int ranks : rank_counts) {
        const int chosen = std::max(1, all_of(ranks));
        const auto here = static_cast<std::size_t>(chosen);
        const device_vector<int> stored(here * 64);
        const device_vector<unsigned char> memory(here * 3 * large);
        for (const unsigned threads : {64u, 20u})
            check(stores_are_released, shape(chosen, dim3(threads)), stored.get(), memory.get(), large,
                  rounds_of(200, 12));
    }
}

__global__ void counts(dcuda::context context, findings* found, int rounds) {
    __shared__ dcuda::state state;
    dcuda::rank self(context, state);
    const int ranks = self.size();
    self.wait_notifications(9, 0); // nothing to wait for
    EXPECT_SAME(self.test_notifications(9, 0), true);
    EXPECT_SAME(self.test_notifications(9, 1), false);
    self.barrier(dcuda::world); // nobody sends before everybody has looked
    // From everybody to everybody, also to oneself.
    for (int round = 0; round < rounds; ++round)
        for (int target = 0; target < ranks; ++target) self.notify(target, dcuda::world, 9);
    self.wait_notifications(9, 1);
    self.wait_notifications(9, ranks * rounds - 3);
    while (!self.test_notifications(9, 2)) {
    }
    EXPECT_SAME(self.test_notifications(9, 1), false);
    self.barrier(dcuda::world);
    EXPECT_SAME(self.test_notifications(9, 1), false); // none was made up
}

TEST_F(Notifications, CountsFromAllToAll) { check(counts, shape(4), 10); }

// What test_notifications says is the same for all threads, and a positive answer proves that the data is there.
__global__ void tested(dcuda::context context, findings* found, unsigned* memory, int rounds) {
    __shared__ dcuda::state state;
    dcuda::rank self(context, state);
    __shared__ unsigned agreed;
    const int ranks = self.size(), rank = self.id();
    unsigned* const inbox = piece_of(memory, 2, self);
    const dcuda::window win = self.create_window(dcuda::world, inbox, sizeof(unsigned));
    for (int round = 1; round <= rounds; ++round) {
        self.barrier(dcuda::world);
        by_one_thread([&] { inbox[1] = 1000 * rank + round; });
        self.put_notify(win, (rank + 1) % ranks, 0, sizeof(unsigned), inbox + 1, 0);
        unsigned looks = 0;
        while (!self.test_notifications(0, 1)) ++looks;
        by_one_thread([&] { agreed = looks; });
        __syncthreads();
        EXPECT_SAME(looks, agreed);
        EXPECT_SAME(inbox[0], 1000 * ((rank + ranks - 1) % ranks) + round);
    }
    self.free_window(win);
}

TEST_F(Notifications, TestedByAllThreads) {
    const device_vector<unsigned> memory(2 * 3);
    check(tested, shape(3, dim3(48)), memory.get(), 50);
}

// After flush the source buffer may change.
__global__ void flushed(dcuda::context context, findings* found, unsigned* memory, int puts) {
    __shared__ dcuda::state state;
    dcuda::rank self(context, state);
    const int ranks = self.size(), rank = self.id();
    unsigned* const inbox = piece_of(memory, puts + 32, self);
    unsigned* const outbox = inbox + puts;
    const dcuda::window win = self.create_window(dcuda::world, inbox, puts * sizeof(unsigned));
    for (int i = 0; i < puts; ++i) {
        by_one_thread([&] { outbox[0] = static_cast<unsigned>(i + rank); });
        self.put(win, (rank + 1) % ranks, i * sizeof(unsigned), sizeof(unsigned), outbox);
        self.flush(win);
    }
    self.notify((rank + 1) % ranks, dcuda::world, 0);
    self.wait_notifications(0, 1);
    for_each_thread(puts, [&](std::size_t i) { EXPECT_SAME(inbox[i], i + (rank + ranks - 1) % ranks); });
    self.free_window(win);
}

TEST_F(Notifications, FlushFreesTheSource) {
    const device_vector<unsigned> memory(3 * (100 + 32));
    check(flushed, shape(3), memory.get(), 100);
}

// Communicators name the same ranks differently.
__global__ void device_neighbours(dcuda::context context, findings* found) {
    __shared__ dcuda::state state;
    dcuda::rank self(context, state);
    const int here = self.id(dcuda::device), ranks_here = self.size(dcuda::device);
    self.notify((here + 1) % ranks_here, dcuda::device, 1);
    self.wait_notifications(1, 1);
    // World rank 0 hears from the first rank of every device.
    if (here == 0) self.notify(0, dcuda::world, 2);
    if (self.id() == 0) self.wait_notifications(2, self.size() / ranks_here);
    EXPECT_SAME(self.id() - here, self.id() / ranks_here * ranks_here);
    EXPECT_SAME(self.test_notifications(1, 1), false);
}

// Relaxed notifications are counted as others are, and one that is not relaxed still tells of all puts before it. The
// put is larger than a message, so that something has to be released.
__global__ void relaxed(dcuda::context context, findings* found, unsigned* memory, int words, int rounds) {
    __shared__ dcuda::state state;
    dcuda::rank self(context, state);
    const int next = (self.id() + 1) % self.size(), before = (self.id() + self.size() - 1) % self.size();
    unsigned* const inbox = piece_of(memory, 2 * words, self);
    unsigned* const outbox = inbox + words;
    const std::size_t bytes = words * sizeof(unsigned);
    const dcuda::window win = self.create_window(dcuda::world, inbox, bytes);
    for (int round = 0; round < rounds; ++round) {
        for_each_thread(words, [&](std::size_t i) { outbox[i] = static_cast<unsigned>(1000 * self.id() + round + i); });
        self.put(win, next, 0, bytes, outbox);
        for (int i = 0; i <= round % 3; ++i) self.notify_relaxed(next, dcuda::world, 1);
        self.notify(next, dcuda::world, 2);
        for (int i = 0; i < 2; ++i) self.notify_relaxed(next, dcuda::world, 3);
        self.wait_notifications(1, 1 + round % 3);
        self.wait_notifications(2, 1);
        for_each_thread(words, [&](std::size_t i) { EXPECT_SAME(inbox[i], 1000 * before + round + i); });
        self.wait_notifications(3, 2);
        EXPECT_SAME(self.test_notifications(1, 1), false);
        self.flush(win);
        self.barrier(dcuda::world);
    }
    self.free_window(win);
}

TEST_F(Notifications, RelaxedOnesAreCountedAndOrderNothing) {
    constexpr int words = 2048, ranks = 4;
    const device_vector<unsigned> memory(2 * words * ranks);
    check(relaxed, shape(ranks), memory.get(), words, 20);
}

TEST_F(Notifications, InTheDeviceCommunicator) { check(device_neighbours, shape(3)); }

} // namespace
