// SPDX-License-Identifier: BSD-3-Clause
// Streams: chains of operations. An operation starts when all it waits for is complete, on the thread that completed
// the last of them, or at once on the caller's; so streams need no threads of their own.
#pragma once

#include <chrono>
#include <functional>
#include <memory>
#include <vector>

#include "cuda_runtime_api.h"

namespace dcuda::detail::cpu {

struct operation {
    std::function<void()> start;
    bool completes_later = false; // a kernel: its last block calls complete()
    bool blocking = true;         // ordered with the legacy default stream
    bool done = false;
    unsigned waits_for = 0;
    std::vector<std::shared_ptr<operation>> successors;
    std::chrono::steady_clock::time_point finished;
};
using operation_ptr = std::shared_ptr<operation>;

// cudaSuccess if `stream` exists.
cudaError_t check_stream(cudaStream_t stream);

// Appends to the stream; `after` is one more operation to wait for, may be null.
void enqueue(cudaStream_t stream, const operation_ptr& op, const operation_ptr& after = nullptr);
cudaError_t enqueue(cudaStream_t stream, std::function<void()> work);
void complete(const operation_ptr& op);

// Waits until the operation, or everything ever enqueued, is complete.
void wait(const operation_ptr& op);
void wait_for_device();

// Records the calling thread's last error, and returns it.
cudaError_t report(cudaError_t error);

// cudaErrorLaunchFailure once a kernel has failed, until the next launch.
cudaError_t device_state();

} // namespace dcuda::detail::cpu
