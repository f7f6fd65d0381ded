// SPDX-License-Identifier: BSD-3-Clause
// Notifications of lists of ranks, of all lengths: in a test of their own, and with queues of several lengths.
#pragma once

#include "device_test.hpp"

#include <algorithm>

namespace dcuda::test {

// More ranks than a rank keeps near; fewer under ThreadSanitizer where ranks have no warps and notify one after the
// other.
inline constexpr int listed_ranks = DCUDA_WARPS || !few_addresses ? 40 : 8;
// Six rounds at least, of which the first ones open connections.
inline int rounds_of_lists(int gpu, int cpu) { return std::max(6, rounds_of(gpu, cpu)); }

// Whose numbers the lists have: ranks of the world, of the device, or of a communicator of every second rank.
enum class list_of { world, device, every_second };

// The target at a place of the list of a member: all members from its neighbour on, again and again. With doubles
// every fifth one is there twice in a row, which ends what leaves together.
DCUDA_DEVICE int listed(int member, int members, int place, bool doubles) {
    return (member + 1 + place - (doubles ? place / 5 : 0)) % members;
}
DCUDA_DEVICE int times_listed(int member, int members, int target, int count, bool doubles) {
    int times = 0;
    for (int place = 0; place < count; ++place) times += listed(member, members, place, doubles) == target ? 1 : 0;
    return times;
}

// Each rank stores into its own memory, and notifies the ranks of lists, the longest first: after a flush, after a
// release, or after puts to these ranks, which are stored at once. Whoever is notified reads that.
__global__ void notifies_lists(dcuda::context context, findings* found, int* stored, int* inboxes, int longest,
                               int rounds, list_of numbers, bool doubles) {
    __shared__ int targets[64];
    __shared__ int source;
    __shared__ dcuda::state state;
    dcuda::rank self(context, state);
    const int rank = self.id(), ranks = self.size(), local = self.id(dcuda::device), first = rank - local;
    const dcuda::communicator comm = numbers == list_of::world    ? dcuda::world
                                     : numbers == list_of::device ? dcuda::device
                                                                  : self.split(dcuda::world, rank % 2, rank);
    const int member = self.id(comm), members = self.size(comm);
    const auto world_rank = [&](int number) {
        return numbers == list_of::world ? number : numbers == list_of::device ? first + number : 2 * number + rank % 2;
    };
    int* const inbox = inboxes + local * ranks; // a place for each rank
    const dcuda::window win = self.create_window(dcuda::world, inbox, static_cast<std::size_t>(ranks) * sizeof(int),
                                                 dcuda::window_kind::direct);
    for_each_thread(static_cast<std::size_t>(longest), [&](std::size_t place) {
        targets[place] = listed(member, members, static_cast<int>(place), doubles);
    });
    __syncthreads();
    for (int round = 0; round < rounds; ++round) {
        const int count = longest - round % (longest + 1), tag = round % 2;
        const bool puts = round % 2 != 0;
        by_one_thread([&] { source = stored[local] = round; });
        for (int place = 0; puts && place < count; ++place)
            self.put(win, world_rank(targets[place]), static_cast<std::size_t>(rank) * sizeof(int), sizeof(int),
                     &source);
        if (round % 4 == 0) self.flush(win);
        if (round % 4 == 2) self.release();
        self.notify_each(targets, count, comm, tag);
        int awaited = 0;
        for (int other = 0; other < members; ++other) awaited += times_listed(other, members, member, count, doubles);
        self.wait_notifications(tag, awaited);
        for (int other = 0; other < members; ++other) {
            if (times_listed(other, members, member, count, doubles) == 0) continue;
            const int sender = world_rank(other);
            const bool is_here = sender >= first && sender < first + self.size(dcuda::device);
            if (puts)
                EXPECT_SAME(inbox[sender], round);
            else if (is_here)
                EXPECT_SAME(stored[sender - first], round);
        }
        EXPECT_SAME(self.test_notifications(tag, 1), false);
        self.barrier(dcuda::world);
    }
    self.free_window(win);
    if (numbers == list_of::every_second) self.free_communicator(comm);
}

} // namespace dcuda::test
