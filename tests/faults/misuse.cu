// SPDX-License-Identifier: BSD-3-Clause
// Programs that break a rule, one per case: misuse_test.py runs them and looks at how they end.
//
//     misuse <case> [--dcuda-...]
#include "misuse.hpp"

#include <dcuda/dcuda.hpp>

#include <chrono>
#include <csignal>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <map>
#include <stdexcept>
#include <string>
#include <thread>
#include <unistd.h>
#include <vector>

namespace {

// --- waits that never end ---

__global__ void missing_notification(dcuda::context context, int missing) {
    __shared__ dcuda::state state;
    dcuda::rank self(context, state);
    const int next = (self.id() + 1) % self.size();
    if (self.id() != missing) self.notify(next, dcuda::world, 7);
    self.notify(next, dcuda::world, 8);
    self.wait_notifications(8, 1);
    self.wait_notifications(7, 1);
}

// Each rank waits for a tag that none has sent, among those that nobody sends.
__global__ void any_that_never_comes(dcuda::context context) {
    __shared__ dcuda::state state;
    dcuda::rank self(context, state);
    self.notify((self.id() + 1) % self.size(), dcuda::world, 11);
    self.wait_notifications(11, 1);
    self.wait_any(3, 8);
}

// Each rank waits for two notifications of the next one, which has sent none, or one if there are only two.
__global__ void from_that_never_comes(dcuda::context context) {
    __shared__ dcuda::state state;
    dcuda::rank self(context, state);
    self.notify((self.id() + 1) % self.size(), dcuda::world, 255);
    self.notify((self.id() + 1) % self.size(), dcuda::world, 254);
    self.wait_notifications_from((self.id() + self.size() - 1) % self.size(), dcuda::world, 254, 1);
    self.wait_notifications_from((self.id() + 1) % self.size(), dcuda::world, 255, 2);
}

__global__ void different_barriers(dcuda::context context) {
    __shared__ dcuda::state state;
    dcuda::rank self(context, state);
    self.barrier(self.id(dcuda::device) == 0 ? dcuda::device : dcuda::world);
}

// One member reduces, the others broadcast.
__global__ void different_collectives(dcuda::context context) {
    __shared__ dcuda::state state;
    dcuda::rank self(context, state);
    const dcuda::communicator all = self.split(dcuda::world, 0, 0);
    if (self.id() == 0)
        self.allreduce(all, 1, dcuda::sum{});
    else
        self.broadcast(all, 1, 0);
}

// The same operation with different operators.
__global__ void different_operators(dcuda::context context) {
    __shared__ dcuda::state state;
    dcuda::rank self(context, state);
    if (self.id() == 0)
        self.allreduce(dcuda::world, 1, dcuda::sum{});
    else
        self.allreduce(dcuda::world, 1, dcuda::maximum{});
}

// Members that gather different numbers of values.
__global__ void different_counts(dcuda::context context) {
    __shared__ dcuda::state state;
    __shared__ unsigned char memory[128];
    dcuda::rank self(context, state);
    self.all_gather(dcuda::world, memory, memory + 64, self.id() == 0 ? 3 : 4);
}

// One member reduces an array of no elements.
__global__ void different_count_of_none(dcuda::context context) {
    __shared__ dcuda::state state;
    __shared__ int memory[5];
    dcuda::rank self(context, state);
    self.allreduce(dcuda::world, memory, memory, self.id() == 0 ? 0 : 5, dcuda::sum{});
}

// One rank meets the others in barriers while these split the world.
__global__ void barriers_beside_split(dcuda::context context) {
    __shared__ dcuda::state state;
    dcuda::rank self(context, state);
    if (self.id() == 1) {
        self.barrier(dcuda::world);
        self.barrier(dcuda::world);
    } else {
        self.split(dcuda::world, 0, 0);
    }
}

// What was finished is finished again, while another one is started.
__global__ void finished_twice(dcuda::context context) {
    __shared__ dcuda::state state;
    dcuda::rank self(context, state);
    const dcuda::communicator alone = self.split(dcuda::world, self.id(), 0);
    const auto first = self.start_allreduce(alone, 1, dcuda::sum{});
    self.finish_allreduce(first);
    self.start_allreduce(alone, 2, dcuda::sum{});
    self.finish_allreduce(first);
}

// What was started is not finished.
__global__ void started_at_the_end(dcuda::context context) {
    __shared__ dcuda::state state;
    dcuda::rank self(context, state);
    const dcuda::communicator all = self.split(dcuda::world, 0, 0);
    if (self.id() == 0)
        self.start_allreduce(all, 1, dcuda::sum{});
    else
        self.finish_allreduce(self.start_allreduce(all, 1, dcuda::sum{}));
}

// Tags that are none, of a rank that has few, and whose first messages have come.
__global__ void few_tags(dcuda::context context, int tag) {
    __shared__ dcuda::state state;
    dcuda::rank self(context, state);
    self.notify(1 - self.id(), dcuda::world, 0);
    self.wait_notifications(0, 1);
    self.wait_notifications(tag, 1);
}

// A root that expects another number of values than a member brings.
__global__ void unexpected_count(dcuda::context context) {
    __shared__ dcuda::state state;
    __shared__ unsigned char memory[128];
    __shared__ std::size_t counts[8], displacements[8];
    dcuda::rank self(context, state);
    for (std::size_t i = 0; i < 8; ++i) {
        counts[i] = 2;
        displacements[i] = 2 * i;
    }
    self.gather_v(dcuda::world, memory, counts, displacements, memory + 64, self.id() == 1 ? 3 : 2, 0);
}

// One member never comes.
__global__ void one_reduces_too_little(dcuda::context context) {
    __shared__ dcuda::state state;
    dcuda::rank self(context, state);
    const dcuda::communicator all = self.split(dcuda::world, 0, 0);
    self.allreduce(all, 1, dcuda::sum{});
    if (self.id() != 0) self.allreduce(all, 1, dcuda::sum{});
}

// What the last rank does with the windows of communicators.
enum class wrong_group { puts, frees, frees_communicator, does_not_come };

// The first rank of each device has a communicator of its own, and the others have one; windows are 0 and 1.
__global__ void windows_of_groups(dcuda::context context, unsigned char* memory, dcuda::window* windows,
                                  wrong_group action) {
    __shared__ dcuda::state state;
    dcuda::rank self(context, state);
    const bool is_first = self.id(dcuda::device) == 0;
    const int culprit = self.size() - 1;
    const dcuda::communicator group = self.split(dcuda::world, is_first ? 1 + self.id() : 0, 0);
    if (is_first) {
        const dcuda::window own = self.create_window(group, memory, window_bytes);
        if (dcuda::detail::exec::thread_index() == 0) *windows = own;
    }
    self.barrier(dcuda::device);
    if (is_first) return;
    if (action == wrong_group::does_not_come && self.id() == culprit) return;
    self.create_window(group, memory, window_bytes);
    if (self.id() != culprit) return;
    if (action == wrong_group::puts) self.put(*windows, 0, 0, 4, memory);
    if (action == wrong_group::frees) self.free_window(*windows);
    if (action == wrong_group::frees_communicator) self.free_communicator(group);
}

__global__ void one_creates_a_window(dcuda::context context, unsigned char* memory) {
    __shared__ dcuda::state state;
    dcuda::rank self(context, state);
    if (self.id() == 0) self.create_window(dcuda::world, memory, window_bytes);
}

// Once around, then every rank waits for its neighbour's second message before it sends its own.
__global__ void all_wait_first(dcuda::context context) {
    __shared__ dcuda::state state;
    dcuda::rank self(context, state);
    const int next = (self.id() + 1) % self.size();
    self.notify(next, dcuda::world, 3);
    self.wait_notifications(3, 1);
    self.wait_notifications(3, 1);
    self.notify(next, dcuda::world, 3);
}

// The last rank sends one message less than rank 0 waits for.
__global__ void stops_early(dcuda::context context) {
    __shared__ dcuda::state state;
    dcuda::rank self(context, state);
    constexpr int steps = 5;
    const bool sends = self.id() == self.size() - 1, receives = self.id() == 0;
    for (int step = 0; step < steps; ++step) {
        if (sends && step + 1 < steps) self.notify(0, dcuda::world, 9);
        if (receives) self.wait_notifications(9, 1);
    }
}

// So many other tags between two waits with one that the rank's cache has lost it.
__global__ void other_tags_between(dcuda::context context) {
    __shared__ dcuda::state state;
    dcuda::rank self(context, state);
    constexpr int tag = 3, first_other = dcuda::detail::cached_tags, end = 2 * first_other;
    if (self.id() == 1) {
        self.notify(0, dcuda::world, tag);
        for (int other = first_other; other < end; ++other) self.notify(0, dcuda::world, other);
    }
    if (self.id() != 0) return;
    self.wait_notifications(tag, 1);
    for (int other = first_other; other < end; ++other) self.wait_notifications(other, 1);
    self.wait_notifications(tag, 1);
}

__global__ void waits_for_ever(dcuda::context context) {
    __shared__ dcuda::state state;
    dcuda::rank self(context, state);
    if (self.id() != 0) return;
    self.wait_notifications(42, 3);
}

// Rank 1 works for three seconds without a call of the library, and rank 0 wants its small put to arrive.
__global__ void busy_target(dcuda::context context, unsigned char* memory) {
    __shared__ dcuda::state state;
    dcuda::rank self(context, state);
    const dcuda::window win = self.create_window(dcuda::world, memory, window_bytes);
    if (self.id() == 0) {
        self.put_notify(win, 1, 0, 4, memory + 8, 0);
        self.flush(win);
    }
    const std::uint64_t start_ns = dcuda::detail::clock_ns();
    while (self.id() == 1 && dcuda::detail::clock_ns() - start_ns < 3'000'000'000u) dcuda::detail::exec::relax();
    if (self.id() == 1) self.wait_notifications(0, 1);
    self.free_window(win);
}

// Every rank notifies the next one twice with tag 7 and once with tag 9, of which it takes one with tag 7.
__global__ void forgotten_waits(dcuda::context context, unsigned taken) {
    __shared__ dcuda::state state;
    dcuda::rank self(context, state);
    const int next = (self.id() + 1) % self.size();
    self.notify(next, dcuda::world, 7);
    self.notify(next, dcuda::world, 9);
    self.notify(next, dcuda::world, 7);
    if (taken >= 1) self.wait_notifications(7, 1);
    if (taken >= 2) self.wait_notifications(7, 1);
    if (taken >= 3) self.wait_notifications(9, 1);
}

// --- processes and kernels that end early or not at all ---

// The ranks work until the file that they are told of says enough: never.
__global__ void busy(dcuda::context context, int* go_on) {
    __shared__ dcuda::state state;
    dcuda::rank self(context, state);
    while (atomicAdd(go_on, 0) != 0) self.test_notifications(0, 1);
}

// Rank 0 goes on and on; the others wait for it.
__global__ void one_works(dcuda::context context, int* go_on) {
    __shared__ dcuda::state state;
    dcuda::rank self(context, state);
    if (self.id() != 0) return self.wait_notifications(5, 1);
    self.log() << "works";
    while (atomicAdd(go_on, 0) != 0) self.test_notifications(0, 1);
}

// After a fault of rank 0 the other ranks compute on and on, without a dCUDA call.
__global__ void deaf(dcuda::context context, int* go_on) {
    __shared__ dcuda::state state;
    dcuda::rank self(context, state);
    if (self.id() == 0) self.notify(-1, dcuda::world, 0);
    while (atomicAdd(go_on, 0) != 0) {
    }
}

#if DCUDA_BACKEND_CPU
// Of rank 1 one thread alone calls an operation, or all but one do.
enum class partly : int { put_notify, notify_twice, wait, barrier_against_syncthreads };

__global__ void some_threads(dcuda::context context, unsigned char* memory, partly called) {
    __shared__ dcuda::state state;
    dcuda::rank self(context, state);
    const dcuda::window win = self.create_window(dcuda::world, memory, window_bytes);
    const int next = (self.id() + 1) % self.size();
    const bool is_wrong = self.id() == 1, is_first = threadIdx.x == 0;
    if (!is_wrong) self.notify(next, dcuda::world, 5);
    if (is_wrong && called == partly::put_notify && is_first) self.put_notify(win, next, 0, 4, memory + 8, 5);
    if (is_wrong && called == partly::notify_twice) {
        self.notify(next, dcuda::world, 5);
        if (is_first) self.notify(next, dcuda::world, 5);
    }
    if (is_wrong && called == partly::wait && is_first) return;
    if (is_wrong && called == partly::barrier_against_syncthreads) {
        if (threadIdx.x < 6)
            self.barrier(dcuda::device);
        else
            __syncthreads();
    }
    self.wait_notifications(5, 1);
}

__global__ void throwing(dcuda::context context) {
    __shared__ dcuda::state state;
    dcuda::rank self(context, state);
    if (self.id() == 1 && threadIdx.x == 0) throw std::runtime_error("rank 1 had enough");
    self.wait_notifications(0, 1);
}
#endif

__global__ void nothing(dcuda::context context) {
    __shared__ dcuda::state state;
    dcuda::rank self(context, state);
}

__global__ void window_over(dcuda::context context, unsigned char* memory, std::size_t bytes) {
    __shared__ dcuda::state state;
    dcuda::rank self(context, state);
    self.create_window(dcuda::world, memory, bytes);
}

// One window more than there may be; the first device has one already that is its own.
__global__ void too_many_windows(dcuda::context context, unsigned char* memory, bool of_world) {
    __shared__ dcuda::state state;
    dcuda::rank self(context, state);
    const dcuda::communicator comm = of_world ? dcuda::world : dcuda::device;
    if (self.id() == self.id(dcuda::device)) self.create_window(dcuda::device, memory, window_bytes);
    for (int i = 0; i < 3; ++i) self.create_window(comm, memory, 8);
    const dcuda::window last = self.create_window(comm, memory, 8);
    if (!last) self.log() << "has no window";
}

const std::map<std::string, wrong_group> groups = {
    {"put_to_another_group", wrong_group::puts},
    {"window_of_another_group_freed", wrong_group::frees},
    {"group_with_windows_freed", wrong_group::frees_communicator},
    {"one_of_a_group_creates_no_window", wrong_group::does_not_come},
};

#if DCUDA_BACKEND_CPU
const std::map<std::string, partly> partly_called = {
    {"one_thread_puts", partly::put_notify},
    {"one_thread_notifies_twice", partly::notify_twice},
    {"all_but_one_wait", partly::wait},
    {"some_in_syncthreads", partly::barrier_against_syncthreads},
};
#endif

// Kernels that take nothing but the context.
const std::map<std::string, void (*)(dcuda::context)> kernels = {
    {"different_barriers", different_barriers},
    {"different_collectives", different_collectives},
    {"finished_twice", finished_twice},
    {"different_operators", different_operators},
    {"different_counts", different_counts},
    {"different_count_of_none", different_count_of_none},
    {"barriers_beside_split", barriers_beside_split},
    {"unexpected_count", unexpected_count},
    {"started_at_the_end", started_at_the_end},
    {"one_reduces_too_little", one_reduces_too_little},
    {"any_that_never_comes", any_that_never_comes},
    {"from_that_never_comes", from_that_never_comes},
    {"all_wait_first", all_wait_first},
    {"stops_early", stops_early},
    {"other_tags_between", other_tags_between},
    {"waits_for_ever", waits_for_ever},
};

void kill_yourself_soon() {
    std::thread([] {
        std::this_thread::sleep_for(std::chrono::milliseconds(500));
        std::raise(SIGKILL);
    }).detach();
}

void run(const std::string& which, dcuda::runtime& job) {
    const int process = job.info().process_index;
    if (run_contract(which, job)) return;
    if (const auto alone = kernels.find(which); alone != kernels.end()) {
        job.run(alone->second, shape());
    } else if (const auto of_group = groups.find(which); of_group != groups.end()) {
        job.run(windows_of_groups, shape(), device_memory<unsigned char>(window_bytes, 0),
                device_memory<dcuda::window>(1, {}), of_group->second);
    } else if (which == "missing_notification") {
        job.run(missing_notification, shape(), job.plan(missing_notification, shape()).rank_count - 1);
    } else if (which == "negative_of_few_tags" || which == "matched_of_few_tags") {
        job.run(few_tags, shape(), which == "negative_of_few_tags" ? -1 : 7);
    } else if (which == "one_creates_a_window") {
        job.run(one_creates_a_window, shape(), device_memory<unsigned char>(window_bytes, 0));
    } else if (which == "busy_target") {
        job.run(busy_target, shape(), device_memory<unsigned char>(window_bytes, 0));
    } else if (which == "killed") {
        if (process == 1) kill_yourself_soon();
        job.run(busy, shape(), device_memory<int>(1, 1));
    } else if (which == "forgotten_waits") {
        for (unsigned taken : {3, 1, 2}) job.run(forgotten_waits, shape(), taken);
    } else if (which == "one_works") {
        job.run(one_works, shape(), device_memory<int>(1, 1));
    } else if (which == "ends_before_run") {
        if (process == 1) std::exit(0);
        job.run(nothing, shape());
    } else if (which == "ends_before_gather") {
        if (process != 1) job.gather(process);
    } else if (which == "killed_before_broadcast") {
        if (process == 1) std::raise(SIGKILL);
        int value = process;
        job.broadcast(value, 1);
    } else if (which == "killed_after_gather") {
        job.gather(process, 2);
        if (process == 1) std::raise(SIGKILL);
        job.barrier();
    } else if (which == "different_sizes") {
        std::vector<std::byte> bytes(process == 0 ? 8 : 16);
        job.broadcast(std::span(bytes));
    } else if (which == "different_roots") {
        job.gather(process, process % 2);
    } else if (which == "barrier_against_run") {
        if (process == 0)
            job.barrier();
        else
            job.run(nothing, shape());
    } else if (which == "gather_after_failure") {
        try {
            job.run(waits_for_ever, shape());
        } catch (const dcuda::error&) {
        }
        job.gather(process);
    } else if (which == "deaf") {
        job.run(deaf, shape(), device_memory<int>(1, 1));
#if DCUDA_BACKEND_CPU
    } else if (const auto part = partly_called.find(which); part != partly_called.end()) {
        job.run(some_threads, shape(), device_memory<unsigned char>(window_bytes, 0), part->second);
    } else if (which == "throwing") {
        job.run(throwing, shape());
#endif
    } else if (which == "again_after_failure") {
        try {
            job.run(waits_for_ever, shape());
        } catch (const dcuda::error&) {
        }
        job.run(nothing, shape());
    } else if (which == "other_threads") {
        dcuda::launch_config config = shape();
        config.threads = dim3(8 * (1 + process));
        job.run(nothing, config);
    } else if (which == "unusable_memory") {
        void* memory = nullptr;
#if DCUDA_BACKEND_CPU
        const std::vector<unsigned char> heap(window_bytes);
        memory = const_cast<unsigned char*>(heap.data());
#else
        if (cudaMallocManaged(&memory, window_bytes) != cudaSuccess) throw std::runtime_error("no managed memory");
#endif
        job.run(window_over, shape(), static_cast<unsigned char*>(memory), window_bytes);
    } else if (which == "beyond_the_allocation") {
        job.run(window_over, shape(), device_memory<unsigned char>(window_bytes, 0), window_bytes + 1);
    } else if (which == "too_many_windows" || which == "too_many_windows_of_devices") {
        job.run(too_many_windows, shape(), device_memory<unsigned char>(window_bytes, 0), which == "too_many_windows");
    } else if (which == "nothing") {
        job.run(nothing, shape(0));
        std::printf("%d ranks\n", job.info().rank_count);
    } else {
        throw std::runtime_error("no such case: " + which);
    }
}

} // namespace

int main(int argc, char** argv) {
    try {
        dcuda::runtime job(argc, argv);
        if (argc != 2) throw std::runtime_error("use: misuse <case> [--dcuda-...]");
        run(argv[1], job);
    } catch (const dcuda::error& problem) {
        std::fprintf(stderr, "%s: %s\n", dcuda::to_string(problem.code()), problem.what());
        return 3;
    } catch (const std::exception& problem) {
        std::fprintf(stderr, "misuse: %s\n", problem.what());
        return 2;
    }
    return 0;
}
