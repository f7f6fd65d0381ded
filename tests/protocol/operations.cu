// SPDX-License-Identifier: BSD-3-Clause
// What device operations cost a kernel in registers: a kernel for each, and for what programs do with them. Compiled by
// resources_test.py, never run. Every kernel has a rank, and so what `nothing` has.
#include <dcuda/dcuda.hpp>

namespace {

// Something that needs registers of its own: sixteen sums at a time.
template <class F>
__device__ __forceinline__ void compute(float* field, int steps, const F& exchange) {
    float sums[16];
    for (int k = 0; k < 16; ++k) sums[k] = field[threadIdx.x + 128 * k];
    for (int step = 0; step < steps; ++step) {
        for (int k = 0; k < 16; ++k) sums[k] = 0.5f * sums[(k + 1) % 16] + 0.25f * sums[k] + field[step + k];
        exchange(step);
    }
    for (int k = 0; k < 16; ++k) field[threadIdx.x + 128 * k] = sums[k];
}

} // namespace

#define KERNEL(name, ...) extern "C" __global__ void name(dcuda::context context __VA_OPT__(, ) __VA_ARGS__)
#define RANK                                                                                                           \
    __shared__ dcuda::state state;                                                                                     \
    dcuda::rank self(context, state)

KERNEL(nothing) { RANK; }

// --- one operation ---

KERNEL(put, dcuda::window win, int target, std::size_t offset, std::size_t bytes, const void* source) {
    RANK;
    self.put(win, target, offset, bytes, source);
}
KERNEL(put_notify, dcuda::window win, int target, std::size_t offset, std::size_t bytes, const void* source, int tag) {
    RANK;
    self.put_notify(win, target, offset, bytes, source, tag);
}
KERNEL(notify, int target, dcuda::communicator comm, int tag) {
    RANK;
    self.notify(target, comm, tag);
}
KERNEL(notify_each, const int* targets, int count, dcuda::communicator comm, int tag) {
    RANK;
    self.notify_each(targets, count, comm, tag);
}
KERNEL(release) {
    RANK;
    self.release();
}
KERNEL(wait_notifications, int tag, int count) {
    RANK;
    self.wait_notifications(tag, count);
}
KERNEL(test_notifications, int tag, int count, int* result) {
    RANK;
    *result = self.test_notifications(tag, count) ? 1 : 0;
}
KERNEL(wait_any, int first_tag, int tags, int* result) {
    RANK;
    *result = self.wait_any(first_tag, tags);
}
KERNEL(wait_some, int first_tag, int tags, int* result) {
    RANK;
    result[tags] = self.wait_some(first_tag, tags, result);
}
KERNEL(wait_notifications_from, int source, dcuda::communicator comm, int tag, int count) {
    RANK;
    self.wait_notifications_from(source, comm, tag, count);
}
KERNEL(wait_notifications_for, int tag, int count, unsigned long long nanoseconds, int* result) {
    RANK;
    *result = self.wait_notifications_for(tag, count, nanoseconds) ? 1 : 0;
}
KERNEL(pending_notifications, int tag, int* result) {
    RANK;
    *result = self.pending_notifications(tag);
}
KERNEL(flush, dcuda::window win) {
    RANK;
    self.flush(win);
}
KERNEL(barrier, dcuda::communicator comm) {
    RANK;
    self.barrier(comm);
}
KERNEL(windows, dcuda::communicator comm, void* base, std::size_t bytes) {
    RANK;
    self.free_window(self.create_window(comm, base, bytes));
}
KERNEL(timer) {
    RANK;
    self.start_timer();
    self.stop_timer();
}
KERNEL(log_line, int number) {
    RANK;
    self.log() << "number " << number;
}

// --- what programs do ---

// Both neighbours get a message, and both send one.
KERNEL(halo_exchange, dcuda::window win, int left, int right, std::size_t bytes, const char* source) {
    RANK;
    self.put_notify(win, left, 0, bytes, source, 0);
    self.put_notify(win, right, bytes, bytes, source + bytes, 0);
    self.wait_notifications(0, 2);
}

KERNEL(compute_alone, float* field, int steps) {
    RANK;
    compute(field, steps, [](int) { __syncthreads(); });
}

KERNEL(compute_and_exchange, float* field, int steps, dcuda::window win, int left, int right, std::size_t bytes) {
    RANK;
    compute(field, steps, [&](int step) {
        self.put_notify(win, left, 0, bytes, field + step, 0);
        self.put_notify(win, right, bytes, bytes, field + step, 0);
        self.wait_notifications(0, 2);
    });
}
