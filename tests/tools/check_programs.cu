// SPDX-License-Identifier: BSD-3-Clause
// Small programs that are wrong in one place each, for the protocol checker, and their right twins:
//
//     check_programs <name> wrong|right
//
// The places that a finding must name are marked `place: <word>`; check_test.py looks them up here.
#include <dcuda/dcuda.hpp>
#include <dcuda_device.cu.h>

#include <cstdio>
#include <cstring>

namespace {

constexpr int slots = 64; // doubles of each rank's window

struct setup {
    dcuda::rank& self;
    dcuda::window win;
    double* own; // this rank's window
    bool right;
};

__device__ bool leads() { return threadIdx.x == 0; }

// --- 1: memory that a put may still be changing
// ------------------------------------------------------------------------

// Rank 0 puts to rank 1, which reads without waiting.
__device__ void read_early(setup at) {
    auto& [self, win, own, right] = at;
    if (self.id() == 0) self.put_notify(win, 1, 8 * sizeof(double), sizeof(double), own, 3); // place: put
    if (self.id() != 1) return;
    if (right) self.wait_notifications(3, 1);
    const double value = own[8]; // place: read
    if (!right) self.wait_notifications(3, 1);
    if (leads()) own[0] = value;
}

// The same; rank 1 waits, but for a notification that orders nothing.
__device__ void told_relaxed(setup at) {
    auto& [self, win, own, right] = at;
    if (self.id() == 0) {
        self.put(win, 1, 8 * sizeof(double), sizeof(double), own); // place: put
        if (right)
            self.notify(1, dcuda::world, 3);
        else
            self.notify_relaxed(1, dcuda::world, 3);
    }
    if (self.id() != 1) return;
    self.wait_notifications(3, 1);
    const double value = own[8]; // place: read
    if (leads()) own[0] = value;
}

// Rank 1 writes its window, and rank 0 gets that without learning of it.
__device__ void get_early(setup at) {
    auto& [self, win, own, right] = at;
    if (self.id() == 1) {
        if (leads()) own[8] = 1; // place: write
        if (right) {
            self.flush(win);
            self.notify(0, dcuda::world, 3);
        }
    }
    if (self.id() != 0) return;
    if (right) self.wait_notifications(3, 1);
    self.get(win, 1, 8 * sizeof(double), sizeof(double), own + 16); // place: get
    self.flush(win);
}

// Rank 0 counts in rank 1's window, which reads without learning of it.
__device__ void count_early(setup at) {
    auto& [self, win, own, right] = at;
    if (self.id() == 0) {
        self.add(win, 1, 8 * sizeof(double), 1.0); // place: add
        if (right) {
            self.flush(win);
            self.notify(1, dcuda::world, 3);
        }
    }
    if (self.id() != 1) return;
    if (right) self.wait_notifications(3, 1);
    const double value = own[8]; // place: read
    if (leads()) own[0] = value;
}

// The same with values, which every thread has for itself: their variables are free at once.
__device__ void value_read_early(setup at) {
    auto& [self, win, own, right] = at;
    const dcuda::typed_window<double> values{win};
    if (self.id() == 0)
        for (int i = 0; i < 8; ++i) self.put_value_notify(values, 1, 8 + i, 0.5 * i, 3); // place: put
    if (self.id() != 1) return;
    if (right) self.wait_notifications(3, 8);
    const double value = own[15]; // place: read
    if (!right) self.wait_notifications(3, 8);
    if (leads()) own[8] = value;
}

// The same; rank 1 writes there.
__device__ void write_early(setup at) {
    auto& [self, win, own, right] = at;
    if (self.id() == 0) self.put_notify(win, 1, 8 * sizeof(double), 4 * sizeof(double), own, 3); // place: put
    if (self.id() != 1) return;
    if (right) self.wait_notifications(3, 1);
    if (leads()) own[10] = 1; // place: write
    if (!right) self.wait_notifications(3, 1);
}

// A put without notification: nothing tells rank 1 when to read.
__device__ void no_notification(setup at) {
    auto& [self, win, own, right] = at;
    if (self.id() == 0) {
        self.put(win, 1, 8 * sizeof(double), sizeof(double), own); // place: put
        if (right) self.notify(1, dcuda::world, 4);
    }
    if (right && self.id() == 1) self.wait_notifications(4, 1);
    if (self.id() == 1 && leads()) own[0] = own[8]; // place: read
}

// Two values, one buffer at the target, and no word that the first has been read: the missing credit.
__device__ void no_credit(setup at) {
    auto& [self, win, own, right] = at;
    for (int turn = 0; turn < 2; ++turn) {
        if (self.id() == 0) {
            if (right && turn == 1) self.wait_notifications(5, 1);
            self.put_notify(win, 1, 8 * sizeof(double), sizeof(double), own + turn, 3); // place: put
        }
        if (self.id() == 1) {
            self.wait_notifications(3, 1);
            if (leads()) own[0] += own[8]; // place: read
            if (right && turn == 0) self.notify(0, dcuda::world, 5);
        }
    }
}

// Two ranks put to the same place of rank 0.
__device__ void two_puts(setup at) {
    auto& [self, win, own, right] = at;
    if (self.id() == 1) self.put_notify(win, 0, 8 * sizeof(double), sizeof(double), own, 6); // place: first
    if (self.id() == 2) {
        if (right) self.wait_notifications(7, 1);
        self.put_notify(win, 0, 8 * sizeof(double), sizeof(double), own, 6); // place: second
    }
    if (self.id() != 0) return;
    self.wait_notifications(6, 1);
    if (right) self.notify(2, dcuda::world, 7);
    self.wait_notifications(6, 1);
}

// Rank 1 passes on to rank 2 what has not arrived yet.
__device__ void forward_early(setup at) {
    auto& [self, win, own, right] = at;
    if (self.id() == 0) self.put_notify(win, 1, 8 * sizeof(double), sizeof(double), own, 3); // place: put
    if (self.id() == 1) {
        if (right) self.wait_notifications(3, 1);
        self.put_notify(win, 2, 0, sizeof(double), own + 8, 3); // place: forward
        if (!right) self.wait_notifications(3, 1);
    }
    if (self.id() == 2) self.wait_notifications(3, 1);
}

// Ranks of one device share the row: nothing travels, but the order is needed all the same.
__device__ void in_place(setup at) {
    auto& [self, win, own, right] = at;
    const int there = self.id() + 1;
    for (int turn = 0; turn < 2; ++turn) {
        if (self.id(dcuda::device) == 0) {
            if (right && turn == 1) self.wait_notifications(5, 1);
            if (leads()) own[slots + 8] = turn; // place: write
            self.put_notify(win, there, 8 * sizeof(double), sizeof(double), own + slots + 8, 3);
        }
        if (self.id(dcuda::device) == 1) {
            self.wait_notifications(3, 1);
            if (leads()) own[0] += own[8]; // place: read
            if (right && turn == 0) self.notify(self.id() - 1, dcuda::world, 5);
        }
    }
}

// --- 2: source buffers
// ---------------------------------------------------------------------------------------------------

__device__ void overwrite(setup at) {
    auto& [self, win, own, right] = at;
    if (self.id() == 0) {
        self.put_notify(win, 1, 8 * sizeof(double), sizeof(double), own, 3); // place: put
        if (right) self.flush(win);
        if (leads()) own[0] = 2; // place: write
    }
    if (self.id() == 1) self.wait_notifications(3, 1);
}

// The answer proves the arrival.
__device__ void overwrite_before_answer(setup at) {
    auto& [self, win, own, right] = at;
    if (self.id() == 0) {
        self.put_notify(win, 1, 8 * sizeof(double), sizeof(double), own, 3); // place: put
        if (right) self.wait_notifications(4, 1);
        if (leads()) std::memset(own, 0, sizeof(double)); // place: write
        if (!right) self.wait_notifications(4, 1);
    }
    if (self.id() == 1) {
        self.wait_notifications(3, 1);
        self.notify(0, dcuda::world, 4);
    }
}

// --- 3: notifications left over
// ------------------------------------------------------------------------------------------

__device__ void left_over(setup at) {
    auto& [self, win, own, right] = at;
    if (self.id() == 0) self.notify(1, dcuda::world, 9); // place: notify
    if (self.id() == 1 && right) self.wait_notifications(9, 1);
}

// --- 4: waits that cannot end
// --------------------------------------------------------------------------------------------

__device__ void too_many(setup at) {
    auto& [self, win, own, right] = at;
    if (self.id() == 0) self.notify(1, dcuda::world, 9);
    if (self.id() == 1) self.wait_notifications(9, right ? 1 : 2); // place: wait
}

__device__ void wrong_tag(setup at) {
    auto& [self, win, own, right] = at;
    if (self.id() == 0) self.notify(1, dcuda::world, right ? 9 : 8);
    if (self.id() == 1) self.wait_notifications(9, 1); // place: wait
}

__device__ void test_for_ever(setup at) {
    auto& [self, win, own, right] = at;
    if (self.id() == 0 && right) self.notify(1, dcuda::world, 9);
    if (self.id() != 1) return;
    while (!self.test_notifications(9, 1)) { // place: test
    }
}

// --- 5: freed windows
// ------------------------------------------------------------------------------------------------------

__device__ void use_of_freed(setup at) {
    auto& [self, win, own, right] = at;
    const dcuda::window other = self.create_window(dcuda::world, own + 32, 8 * sizeof(double));
    if (right && self.id() == 0) self.put(other, 1, 0, sizeof(double), own);
    if (right && self.id() == 0) self.flush(other);
    self.free_window(other);                                                  // place: free
    if (!right && self.id() == 0) self.put(other, 1, 0, sizeof(double), own); // place: put
}

__device__ void freed_too_early(setup at) {
    auto& [self, win, own, right] = at;
    const dcuda::window other = self.create_window(dcuda::world, own + 32, 8 * sizeof(double));
    if (self.id() == 0) self.put(other, 1, 0, sizeof(double), own); // place: put
    if (right) self.barrier(dcuda::world);
    self.free_window(other); // place: free
}

// --- 6: collective calls
// ---------------------------------------------------------------------------------------------------

__device__ void other_order(setup at) {
    auto& [self, win, own, right] = at;
    const bool first = right || self.id() != 0;
    for (int turn = 0; turn < 5; ++turn) {
        if (first) self.barrier(dcuda::device); // place: device
        self.barrier(dcuda::world);             // place: world
        if (!first) self.barrier(dcuda::device);
    }
}

__device__ void one_is_missing(setup at) {
    auto& [self, win, own, right] = at;
    if (right || self.id() != 1) self.barrier(dcuda::world); // place: barrier
}

__device__ void threads_differ(setup at) {
    auto& [self, win, own, right] = at;
    const std::size_t offset = right ? 8 * sizeof(double) : (8 + threadIdx.x % 2) * sizeof(double);
    if (self.id() == 0) self.put_notify(win, 1, offset, sizeof(double), own, 3); // place: put
    if (self.id() == 1) self.wait_notifications(3, 1);
}

__device__ void thread_is_missing(setup at) {
    auto& [self, win, own, right] = at;
    if (self.id() == 0) {
        if (right || threadIdx.x != 1) self.notify(1, dcuda::world, 3); // place: notify
        __syncthreads();                                                // place: sync
    }
    if (self.id() == 1) self.wait_notifications(3, 1);
}

// Ranks 0 and 2 put to rank 1 with one tag, which is matched by source; rank 1 waits for the wrong one first.
__device__ void other_source(setup at) {
    auto& [self, win, own, right] = at;
    if (self.id() == 0) self.put_notify(win, 1, 8 * sizeof(double), sizeof(double), own, 255); // place: put
    if (self.id() == 2) self.put_notify(win, 1, 9 * sizeof(double), sizeof(double), own, 255);
    if (self.id() != 1) return;
    self.wait_notifications_from(right ? 0 : 2, dcuda::world, 255, 1);
    const double value = own[8]; // place: read
    self.wait_notifications_from(right ? 2 : 0, dcuda::world, 255, 1);
    if (leads()) own[0] = value;
}

// Rank 1 waits for two notifications of rank 0; one is of rank 2.
__device__ void too_many_from(setup at) {
    auto& [self, win, own, right] = at;
    if (self.id() == 0) self.notify(1, dcuda::world, 255);
    if (self.id() == 2) self.notify(1, dcuda::world, 255);
    if (self.id() != 1) return;
    if (right) self.wait_notifications_from(2, dcuda::world, 255, 1);
    self.wait_notifications_from(0, dcuda::world, 255, right ? 1 : 2); // place: wait
}

struct program {
    const char* name;
    void (*run)(setup);
};
constexpr program programs[] = {
    {"read_early", read_early},
    {"told_relaxed", told_relaxed},
    {"get_early", get_early},
    {"count_early", count_early},
    {"write_early", write_early},
    {"no_notification", no_notification},
    {"no_credit", no_credit},
    {"two_puts", two_puts},
    {"forward_early", forward_early},
    {"in_place", in_place},
    {"overwrite", overwrite},
    {"overwrite_before_answer", overwrite_before_answer},
    {"left_over", left_over},
    {"too_many", too_many},
    {"wrong_tag", wrong_tag},
    {"test_for_ever", test_for_ever},
    {"use_of_freed", use_of_freed},
    {"freed_too_early", freed_too_early},
    {"other_order", other_order},
    {"one_is_missing", one_is_missing},
    {"threads_differ", threads_differ},
    {"thread_is_missing", thread_is_missing},
    {"value_read_early", value_read_early},
    {"other_source", other_source},
    {"too_many_from", too_many_from},
    {"left_early", nullptr}, // a kernel of its own
};

__global__ void run_program(dcuda::context context, double* memory, int number, int right) {
    __shared__ dcuda::state state;
    dcuda::rank self(context, state);
    double* const own = memory + self.id(dcuda::device) * slots;
    if (leads())
        for (int i = 0; i < slots; ++i) own[i] = self.id();
    const dcuda::window win = self.create_window(dcuda::world, own, slots * sizeof(double));
    programs[number].run({self, win, own, right != 0});
}

// The published interface lets a rank leave without its last call.
__global__ void left_early(dcuda::context context, double*, int, int right) {
    __shared__ dcuda_state state;
    dcuda_gpu_init(context, state);
    int rank = 0;
    dcuda_comm_rank(state, DCUDA_COMM_WORLD, &rank);
    if (rank == 0) dcuda_notify(state, 1, DCUDA_COMM_WORLD, 3);
    if (rank == 1) dcuda_wait_notifications(state, 3, 1); // place: wait
    if (rank == 1 && right == 0) return;
    dcuda_gpu_finish(state); // place: finish
}

} // namespace

int main(int argc, char** argv) try {
    dcuda::runtime runtime(argc, argv, {.match_sources = 1});
    int number = -1;
    for (int i = 0; argc == 3 && i < static_cast<int>(std::size(programs)); ++i)
        if (std::strcmp(argv[1], programs[i].name) == 0) number = i;
    if (number < 0) {
        std::fprintf(stderr, "usage: check_programs <name> wrong|right\n");
        return 2;
    }
    dcuda::launch_config config;
    config.threads = dim3(4);
    const auto kernel = programs[number].run != nullptr ? run_program : left_early;
    const dcuda::rank_info info = runtime.plan(kernel, config);
    void* memory = nullptr;
    if (cudaMalloc(&memory, sizeof(double) * slots * static_cast<unsigned>(info.rank_responsible)) != cudaSuccess)
        return 2;
    runtime.run(kernel, config, static_cast<double*>(memory), number, std::strcmp(argv[2], "right") == 0 ? 1 : 0);
    // What has come to the place that most programs put to.
    for (int rank = 0; rank < info.rank_responsible; ++rank) {
        double value = 0;
        cudaMemcpy(&value, static_cast<double*>(memory) + rank * slots + 8, sizeof value, cudaMemcpyDefault);
        std::printf("rank %d has %g\n", info.rank_start + rank, value);
    }
    cudaFree(memory);
    return 0;
} catch (const dcuda::error& problem) {
    std::fprintf(stderr, "check_programs: %s\n", problem.what());
    return 1;
}
