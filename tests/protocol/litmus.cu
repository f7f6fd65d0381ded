// SPDX-License-Identifier: BSD-3-Clause
// A minimal program per ordering tag of dcuda/detail/protocol/order.hpp: the only happens-before edge for some plain
// data is that tag's. On any backend it runs many rounds and looks at the values. Built for the CPU backend with
// ThreadSanitizer and DCUDA_LITMUS, it is silent, and a data race is reported once DCUDA_WEAKEN_ORDER names the tag:
// litmus_test.py does both. What orders other processes is replayed inside one: two_devices.hpp.
//
//     litmus <case> [rounds]
#include <dcuda/dcuda.hpp>

#include "device/device_test.hpp"

#include <cstdio>
#include <cstring>

#if DCUDA_BACKEND_CPU
#include "two_devices.hpp"
#endif

using namespace dcuda::test;

namespace litmus {
int writes(int rounds);   // litmus_writes.cpp: code of the host alone
int triggers(int rounds); // litmus_ports.cu: short kernels
int sends(int rounds);
int proxied(int rounds);
int roles(int rounds);
} // namespace litmus

namespace {

// notify_publish, notify_observe, without mailboxes; message_publish, message_observe with them: put data, then the
// notification for it. The credit that goes back orders the receiver's reading before the next put, by the same tags.
// `Direct`: the data is stored directly into the window, and the message releases it.
template <bool Direct>
__global__ void notified_puts(dcuda::context context, findings* found, unsigned* memory, int rounds) {
    __shared__ dcuda::state state;
    dcuda::rank self(context, state);
    const int other = (self.id() + 1) % self.size(), before = (self.id() + self.size() - 1) % self.size();
    unsigned* const inbox = piece_of(memory, 64, self);
    const dcuda::window win = self.create_window(dcuda::world, inbox, 32 * sizeof(unsigned));
    for (int round = 0; round < rounds; ++round) {
        for_each_thread(32, [&](std::size_t i) { inbox[32 + i] = round + static_cast<unsigned>(i); });
        if (Direct) {
            self.put(win, other, 0, 32 * sizeof(unsigned), inbox + 32);
            self.notify(other, dcuda::world, 0);
        } else {
            self.put_notify(win, other, 0, 32 * sizeof(unsigned), inbox + 32, 0);
        }
        self.wait_notifications(0, 1);
        for_each_thread(32, [&](std::size_t i) { EXPECT_SAME(inbox[i], round + i); });
        self.notify(before, dcuda::world, 1);
        self.wait_notifications(1, 1);
    }
}

// queue_free, queue_reuse: puts in one direction, many more than the queue holds. Nothing goes back but credits.
__global__ void one_way(dcuda::context context, findings* found, unsigned* memory, int rounds) {
    __shared__ dcuda::state state;
    dcuda::rank self(context, state);
    unsigned* const inbox = piece_of(memory, 64, self);
    const dcuda::window win = self.create_window(dcuda::world, inbox, 16 * sizeof(unsigned));
    for_each_thread(16, [&](std::size_t i) { inbox[32 + i] = static_cast<unsigned>(i) + 1; });
    for (int round = 0; round < rounds && self.id() == 0; ++round)
        self.put_notify(win, 1, 0, (1 + round % 16) * sizeof(unsigned), inbox + 32, 0);
    if (self.id() != 1) return;
    self.wait_notifications(0, rounds);
    for_each_thread(16, [&](std::size_t i) { EXPECT_SAME(inbox[i], i + 1); });
}

// queue_free, queue_reuse: after a flush a put is stored directly to where the target has placed one that came as a
// message. The queue never fills.
__global__ void crossing(dcuda::context context, findings* found, unsigned* memory, int rounds) {
    __shared__ dcuda::state state;
    dcuda::rank self(context, state);
    unsigned* const inbox = piece_of(memory, 64, self);
    const dcuda::window win = self.create_window(dcuda::world, inbox, 4 * sizeof(unsigned));
    for_each_thread(4, [&](std::size_t i) { inbox[32 + i] = static_cast<unsigned>(i); });
    for_each_thread(4, [&](std::size_t i) { inbox[36 + i] = static_cast<unsigned>(i) + 1; });
    for (int round = 0; round < rounds && self.id() == 0; ++round) {
        self.put_notify(win, 1, 0, 4 * sizeof(unsigned), inbox + 32, 0);
        self.flush(win);
        self.put(win, 1, 0, 4 * sizeof(unsigned), inbox + 36);
    }
    if (self.id() == 0) self.notify(1, dcuda::world, 0);
    if (self.id() != 1) return;
    self.wait_notifications(0, rounds + 1);
    for_each_thread(4, [&](std::size_t i) { EXPECT_SAME(inbox[i], i + 1); });
}

// collective_arrive, collective_release, collective_observe: the same as with barriers, around another collective
// operation.
__global__ void collective_barriers(dcuda::context context, findings* found, unsigned* values, int rounds) {
    __shared__ dcuda::state state;
    dcuda::rank self(context, state);
    for (int round = 0; round < rounds; ++round) {
        by_one_thread([&] { values[self.id(dcuda::device)] = static_cast<unsigned>(round); });
        const dcuda::window win = self.create_window(dcuda::device, values, sizeof(unsigned));
        for (int rank = 0; rank < self.size(dcuda::device); ++rank) EXPECT_SAME(values[rank], round);
        self.free_window(win);
    }
}

// window_free, window_reuse: each rank opens windows of its own, in slots of one table that others have used.
__global__ void windows_of_each(dcuda::context context, findings* found, unsigned* memory, int rounds) {
    __shared__ dcuda::state state;
    dcuda::rank self(context, state);
    const dcuda::communicator own = self.split(dcuda::world, self.id(), 0);
    unsigned* const words = piece_of(memory, 64, self);
    for (int round = 0; round < rounds; ++round) {
        const dcuda::window win = self.create_window(own, words, sizeof(unsigned));
        by_one_thread([&] { words[1] = static_cast<unsigned>(round); });
        self.put_notify(win, 0, 0, sizeof(unsigned), words + 1, 0);
        self.wait_notifications(0, 1);
        EXPECT_SAME(words[0], round);
        self.free_window(win);
    }
}

// atomic_publish, atomic_observe: a rank puts straight into the other's window, and both raise flags by atomic
// operations: when the data is there, and when it has been read.
__global__ void flags(dcuda::context context, findings* found, unsigned* memory, int rounds) {
    __shared__ dcuda::state state;
    dcuda::rank self(context, state);
    unsigned* const own = piece_of(memory, 64, self);
    const auto win = self.create_typed_window(dcuda::world, own, 32, dcuda::window_kind::direct);
    const auto await_flag = [&](unsigned round) {
        while (self.fetch_or(win, self.id(), 31, 0u) != round) {
        }
    };
    for (unsigned round = 1; round <= static_cast<unsigned>(rounds); ++round) {
        if (self.id() == 0) {
            for_each_thread(16, [&](std::size_t i) { own[32 + i] = round + static_cast<unsigned>(i); });
            self.put(win, 1, 0, 16, own + 32);
            self.exchange(win, 1, 31, round);
            await_flag(round);
        } else {
            await_flag(round);
            for_each_thread(16, [&](std::size_t i) { EXPECT_SAME(own[i], round + i); });
            self.exchange(win, 0, 31, round);
        }
    }
}

// barrier_arrive, barrier_observe: everybody writes, everybody reads what the others wrote. In one row, and in several.
__global__ void barriers(dcuda::context context, findings* found, unsigned* values, int rounds) {
    __shared__ dcuda::state state;
    dcuda::rank self(context, state);
    for (int round = 0; round < rounds; ++round) {
        by_one_thread([&] { values[self.id(dcuda::device)] = static_cast<unsigned>(round); });
        self.barrier(dcuda::device);
        for (int rank = 0; rank < self.size(dcuda::device); ++rank) EXPECT_SAME(values[rank], round);
        self.barrier(dcuda::device);
    }
}

// exchange_publish, exchange_observe: the same with barriers of a communicator that split has made, and with reductions
// between them: their slots are used again and again.
__global__ void member_barriers(dcuda::context context, findings* found, unsigned* values, int rounds) {
    __shared__ dcuda::state state;
    dcuda::rank self(context, state);
    const int ranks = self.size(dcuda::device);
    const dcuda::communicator all = self.split(dcuda::device, 0, -self.id());
    for (int round = 0; round < rounds; ++round) {
        by_one_thread([&] { values[self.id(dcuda::device)] = static_cast<unsigned>(round); });
        self.barrier(all);
        for (int rank = 0; rank < ranks; ++rank) EXPECT_SAME(values[rank], round);
        EXPECT_SAME(self.allreduce(all, round + self.id(dcuda::device), dcuda::sum{}),
                    ranks * round + ranks * (ranks - 1) / 2);
        self.barrier(all);
    }
}

// exchange_publish, exchange_observe: what members store into each other's bounce buffers, on two communicators in
// turn.
__global__ void bounces(dcuda::context context, findings* found, unsigned* memory, int rounds) {
    __shared__ dcuda::state state;
    dcuda::rank self(context, state);
    const int ranks = self.size(dcuda::device), rank = self.id(dcuda::device);
    unsigned *const in = piece_of(memory, 2 + 2 * static_cast<std::size_t>(ranks), self), *const out = in + 2;
    const dcuda::communicator backwards = self.split(dcuda::device, 0, -rank);
    for (int round = 0; round < rounds; ++round) {
        by_one_thread([&] {
            in[0] = static_cast<unsigned>(rank);
            in[1] = static_cast<unsigned>(round);
        });
        self.all_gather(round % 2 == 0 ? backwards : dcuda::device, out, in, 2);
        for (int other = 0; other < ranks; ++other) {
            EXPECT_SAME(out[2 * other], round % 2 == 0 ? ranks - 1 - other : other);
            EXPECT_SAME(out[2 * other + 1], round);
        }
        __syncthreads(); // the next round changes both
    }
}

// device_arrive, device_observe, over processes: puts without notification, read after the barrier of the world.
__global__ void world_barriers(dcuda::context context, findings* found, unsigned* memory, int rounds) {
    __shared__ dcuda::state state;
    dcuda::rank self(context, state);
    const int ranks = self.size(), rank = self.id();
    unsigned* const inbox = piece_of(memory, 2, self);
    const dcuda::window win = self.create_window(dcuda::world, inbox, sizeof(unsigned));
    for (int round = 0; round < rounds; ++round) {
        by_one_thread([&] { inbox[1] = static_cast<unsigned>(round * ranks + rank); });
        self.put(win, (rank + 1) % ranks, 0, sizeof(unsigned), inbox + 1);
        self.barrier(dcuda::world);
        EXPECT_SAME(inbox[0], round * ranks + (rank + ranks - 1) % ranks);
        self.barrier(dcuda::world);
    }
}

// command_publish, command_observe: the host reads what a rank wrote into its commands. slot_free, slot_reuse: a rank
// writes where the host has read, once the ring is full; hence more commands than it holds.
__global__ void commands(dcuda::context context, findings*, unsigned*, int rounds) {
    __shared__ dcuda::state state;
    dcuda::rank self(context, state);
    for (int round = 0; round < rounds; ++round) self.start_timer();
    self.stop_timer();
}

// reply_publish, reply_observe, over processes: the host fills in a window's entries, and the ranks use them.
__global__ void windows(dcuda::context context, findings* found, unsigned* memory, int rounds) {
    __shared__ dcuda::state state;
    dcuda::rank self(context, state);
    const int ranks = self.size(), rank = self.id();
    unsigned* const inbox = piece_of(memory, 2, self);
    for (int round = 0; round < rounds; ++round) {
        const dcuda::window win = self.create_window(dcuda::world, inbox, sizeof(unsigned));
        by_one_thread([&] { inbox[1] = static_cast<unsigned>(round * ranks + rank); });
        self.put_notify(win, (rank + 1) % ranks, 0, sizeof(unsigned), inbox + 1, 0);
        self.wait_notifications(0, 1);
        EXPECT_SAME(inbox[0], round * ranks + (rank + ranks - 1) % ranks);
        self.free_window(win);
    }
}

// A program that forgets the notification, and the same one with it.
__global__ void maybe_notified(dcuda::context context, findings*, unsigned* memory, int notified) {
    __shared__ dcuda::state state;
    dcuda::rank self(context, state);
    unsigned* const inbox = piece_of(memory, 2, self);
    const dcuda::window win = self.create_window(dcuda::world, inbox, sizeof(unsigned));
    by_one_thread([&] { inbox[1] = 1; });
    if (self.id() == 0) {
        self.put(win, 1, 0, sizeof(unsigned), inbox + 1);
        if (notified != 0) self.notify(1, dcuda::world, 0);
    } else if (self.id() == 1) {
        if (notified != 0) self.wait_notifications(0, 1);
        const unsigned received = dcuda::detail::exec::thread_index() == 0 ? inbox[0] : 1;
        if (received != 1) self.log() << "received " << received;
    }
    self.free_window(win);
}

// A target that reads before it waits. Only ThreadSanitizer's builds store a small put at once, where it can be seen.
__global__ void read_before_wait(dcuda::context context, findings*, unsigned* memory, int) {
    __shared__ dcuda::state state;
    dcuda::rank self(context, state);
    unsigned* const inbox = piece_of(memory, 2, self);
    const dcuda::window win = self.create_window(dcuda::world, inbox, sizeof(unsigned));
    by_one_thread([&] { inbox[1] = 1; });
    if (self.id() == 0) self.put_notify(win, 1, 0, sizeof(unsigned), inbox + 1, 0);
    if (self.id() == 1) {
        const volatile unsigned received = dcuda::detail::exec::thread_index() == 0 ? inbox[0] : 1;
        (void)received;
        self.wait_notifications(0, 1);
    }
    self.free_window(win);
}

// Writes `beyond` bytes behind a window's allocation, which AddressSanitizer reports.
__global__ void overflow(dcuda::context context, findings*, unsigned* memory, int beyond) {
    __shared__ dcuda::state state;
    dcuda::rank self(context, state);
    const dcuda::window win = self.create_window(dcuda::device, memory, 256);
    if (self.id() == 0) reinterpret_cast<volatile unsigned char*>(memory)[255 + beyond] = 1;
    self.free_window(win);
}

using kernel = void (*)(dcuda::context, findings*, unsigned*, int);

struct litmus_case {
    const char* name;
    kernel body;
    int ranks;
    int rounds;
    std::size_t bytes = 1024;
    const char* variable = "DCUDA_BARRIER_ROW"; // in the environment
    const char* value = "0";
};

constexpr litmus_case cases[] = {
    {"notify", notified_puts<false>, 2, 1000, 1024, "DCUDA_MAILBOX_PACKETS", "0"},
    {"message", notified_puts<false>, 2, 1000},
    {"released", notified_puts<true>, 2, 1000},
    {"ring", one_way, 2, 1000, 1024, "DCUDA_MAILBOX_PACKETS", "8"},
    {"crossing", crossing, 2, 200},
    {"meeting", collective_barriers, 2, 1000},
    {"table", windows_of_each, 2, 500, 1024, "DCUDA_MAX_WINDOWS", "2"},
    {"flags", flags, 2, 300},
    {"barrier", barriers, 2, 1000},
    {"rows", barriers, 5, 300, 1024, "DCUDA_BARRIER_ROW", "2"}, // the last row is short
    {"columns", barriers, 4, 300, 1024, "DCUDA_BARRIER_ROW", "1"},
    {"members", member_barriers, 5, 300},
    {"bounces", bounces, 5, 300},
    {"commands", commands, 2, 20000},
    {"devices", world_barriers, 2, 1000},
    {"reply", windows, 2, 50},
    {"notified", maybe_notified, 2, 1},
    {"forgotten", maybe_notified, 2, 0},
    {"early", read_before_wait, 2, 0},
    {"within", overflow, 2, 0, 256},
    {"beyond", overflow, 2, 1, 256},
};

int run(const litmus_case& which, int rounds) {
    setenv(which.variable, which.value, 1);
    dcuda::runtime job;
    const device_vector<findings> found(1);
    void* memory = nullptr;
    require_cuda(cudaMalloc(&memory, which.bytes));
    require_cuda(cudaMemset(memory, 0, which.bytes));
    dcuda::launch_config config;
    config.threads = dim3(4);
    config.ranks_per_device = which.ranks;
    job.run(which.body, config, found.get(), static_cast<unsigned*>(memory), rounds);
    cudaFree(memory);
    const findings first = found.read()[0];
    if (first.failures == 0) return 0;
    std::fprintf(stderr, "litmus: %u wrong values; the first: line %d, rank %d, saw %llu, expected %llu\n",
                 first.failures, first.line, first.rank, first.seen, first.expected);
    return 1;
}

#if DCUDA_BACKEND_CPU
bool in_a_job() { return std::getenv("DCUDA_PROCESS_COUNT") != nullptr; }
#endif

} // namespace

int main(int argc, char** argv) {
    const std::string which = argc > 1 ? argv[1] : "";
    const auto rounds = [&](int otherwise) { return argc > 2 ? std::atoi(argv[2]) : otherwise; };
    try {
        if (which == "writes") return litmus::writes(rounds(3000));
        if (which == "triggers") return litmus::triggers(rounds(200));
        if (which == "sends") return litmus::sends(rounds(200));
        if (which == "proxied") return litmus::proxied(rounds(50));
        if (which == "roles") return litmus::roles(rounds(50));
#if DCUDA_BACKEND_CPU
        if (which == "devices" && !in_a_job()) return litmus::exchange_between_two_devices(rounds(200));
        if (which == "reply" && !in_a_job()) return litmus::reply_to_a_rank(rounds(200));
#endif
        for (const litmus_case& candidate : cases)
            if (which == candidate.name) return run(candidate, rounds(candidate.rounds));
    } catch (const std::exception& problem) {
        std::fprintf(stderr, "litmus: %s\n", problem.what());
        return 1;
    }
    std::fprintf(stderr, "use: litmus CASE [rounds], where CASE is one of");
    for (const litmus_case& candidate : cases) std::fprintf(stderr, " %s", candidate.name);
    std::fprintf(stderr, "\n");
    return 2;
}
