// SPDX-License-Identifier: BSD-3-Clause
// Streams and events of the CPU backend.
#include "stream.hpp"

#include <algorithm>
#include <array>
#include <condition_variable>
#include <deque>
#include <mutex>
#include <set>

using namespace dcuda::detail::cpu;

struct CUstream_st {
    bool blocking = true;
    operation_ptr tail; // the last operation, null if none yet
};

struct CUevent_st {
    unsigned flags = 0;
    operation_ptr recorded; // null if never recorded
};

namespace dcuda::detail::cpu {

namespace {

struct device_queue {
    std::mutex mutex;
    std::condition_variable completed;
    CUstream_st legacy, per_thread;
    std::set<cudaStream_t> streams;
    std::set<cudaEvent_t> events;
    std::vector<operation_ptr> outstanding;
};

device_queue& queue() {
    static auto& q = *new device_queue; // never destroyed: blocks may still run while the process ends
    return q;
}

// Null if there is no such stream. The mutex is held.
CUstream_st* find(cudaStream_t stream) {
    device_queue& q = queue();
    if (!stream || stream == cudaStreamLegacy) return &q.legacy;
    if (stream == cudaStreamPerThread) return &q.per_thread;
    return q.streams.count(stream) ? stream : nullptr;
}

} // namespace

cudaError_t check_stream(cudaStream_t stream) {
    const std::lock_guard lock(queue().mutex);
    return find(stream) ? cudaSuccess : cudaErrorInvalidResourceHandle;
}

void enqueue(cudaStream_t stream, const operation_ptr& op, const operation_ptr& after) {
    device_queue& q = queue();
    bool ready = false;
    {
        const std::lock_guard lock(q.mutex);
        CUstream_st& s = *find(stream);
        op->blocking = s.blocking;
        const auto wait_on = [&](const operation_ptr& earlier) {
            if (!earlier || earlier->done) return;
            earlier->successors.push_back(op);
            ++op->waits_for;
        };
        wait_on(after);
        wait_on(s.tail);
        if (&s == &q.legacy) {
            for (const operation_ptr& other : q.outstanding)
                if (other->blocking) wait_on(other);
        } else if (s.blocking) {
            wait_on(q.legacy.tail);
        }
        s.tail = op;
        q.outstanding.push_back(op);
        ready = op->waits_for == 0;
    }
    if (!ready) return;
    if (op->start) op->start();
    if (!op->completes_later) complete(op);
}

cudaError_t enqueue(cudaStream_t stream, std::function<void()> work) {
    if (const cudaError_t e = check_stream(stream)) return e;
    auto op = std::make_shared<operation>();
    op->start = std::move(work);
    enqueue(stream, op);
    return cudaSuccess;
}

void complete(const operation_ptr& op) {
    device_queue& q = queue();
    std::deque<operation_ptr> finished{op};
    while (!finished.empty()) {
        std::vector<operation_ptr> startable;
        {
            const std::lock_guard lock(q.mutex);
            operation& o = *finished.front();
            o.done = true;
            o.finished = std::chrono::steady_clock::now();
            for (operation_ptr& next : o.successors)
                if (--next->waits_for == 0) startable.push_back(std::move(next));
            o.successors.clear();
            std::erase(q.outstanding, finished.front());
            q.completed.notify_all();
        }
        finished.pop_front();
        for (const operation_ptr& next : startable) {
            if (next->start) next->start();
            if (!next->completes_later) finished.push_back(next);
        }
    }
}

void wait(const operation_ptr& op) {
    std::unique_lock lock(queue().mutex);
    queue().completed.wait(lock, [&] { return !op || op->done; });
}

void wait_for_device() {
    std::unique_lock lock(queue().mutex);
    queue().completed.wait(lock, [] { return queue().outstanding.empty(); });
}

} // namespace dcuda::detail::cpu

namespace {

// What the stream's next operation would wait for.
operation_ptr tail_of(cudaStream_t stream) {
    auto marker = std::make_shared<operation>();
    enqueue(stream, marker);
    return marker;
}

bool exists(cudaEvent_t event) {
    const std::lock_guard lock(queue().mutex);
    return queue().events.count(event) != 0;
}

operation_ptr recorded(cudaEvent_t event) {
    const std::lock_guard lock(queue().mutex);
    return event->recorded;
}

bool is_done(const operation_ptr& op) {
    const std::lock_guard lock(queue().mutex);
    return !op || op->done;
}

} // namespace

extern "C" {

cudaError_t cudaDeviceSynchronize() {
    wait_for_device();
    return report(device_state());
}

cudaError_t cudaStreamCreateWithFlags(cudaStream_t* stream, unsigned int flags) {
    if (!stream || flags > cudaStreamNonBlocking) return report(cudaErrorInvalidValue);
    *stream = new CUstream_st{flags != cudaStreamNonBlocking, nullptr};
    const std::lock_guard lock(queue().mutex);
    queue().streams.insert(*stream);
    return cudaSuccess;
}

cudaError_t cudaStreamCreate(cudaStream_t* stream) { return cudaStreamCreateWithFlags(stream, cudaStreamDefault); }

cudaError_t cudaDeviceGetStreamPriorityRange(int* lowest, int* highest) {
    for (int* const each : {lowest, highest})
        if (each) *each = 0;
    return cudaSuccess;
}

cudaError_t cudaStreamCreateWithPriority(cudaStream_t* stream, unsigned int flags, int) {
    return cudaStreamCreateWithFlags(stream, flags);
}

cudaError_t cudaStreamDestroy(cudaStream_t stream) {
    {
        const std::lock_guard lock(queue().mutex);
        if (queue().streams.erase(stream) == 0) return report(cudaErrorInvalidResourceHandle);
    }
    delete stream; // its operations live on until they are complete
    return cudaSuccess;
}

cudaError_t cudaStreamSynchronize(cudaStream_t stream) {
    if (const cudaError_t e = check_stream(stream)) return report(e);
    wait(tail_of(stream));
    return report(device_state());
}

cudaError_t cudaStreamQuery(cudaStream_t stream) {
    operation_ptr tail;
    {
        const std::lock_guard lock(queue().mutex);
        const CUstream_st* s = find(stream);
        if (!s) return report(cudaErrorInvalidResourceHandle);
        if (s->tail && !s->tail->done) return cudaErrorNotReady;
        if (s == &queue().legacy)
            for (const operation_ptr& other : queue().outstanding)
                if (other->blocking) return cudaErrorNotReady;
    }
    return report(device_state());
}

cudaError_t cudaStreamWaitEvent(cudaStream_t stream, cudaEvent_t event, unsigned int flags) {
    if (const cudaError_t e = check_stream(stream)) return report(e);
    if (!exists(event)) return report(cudaErrorInvalidResourceHandle);
    if (flags != 0) return report(cudaErrorInvalidValue);
    enqueue(stream, std::make_shared<operation>(), recorded(event));
    return cudaSuccess;
}

cudaError_t cudaLaunchHostFunc(cudaStream_t stream, cudaHostFn_t function, void* data) {
    if (!function) return report(cudaErrorInvalidValue);
    return report(enqueue(stream, [=] { function(data); }));
}

cudaError_t cudaEventCreateWithFlags(cudaEvent_t* event, unsigned int flags) {
    if (!event || flags > (cudaEventBlockingSync | cudaEventDisableTiming | cudaEventInterprocess))
        return report(cudaErrorInvalidValue);
    *event = new CUevent_st{flags, nullptr};
    const std::lock_guard lock(queue().mutex);
    queue().events.insert(*event);
    return cudaSuccess;
}

cudaError_t cudaEventCreate(cudaEvent_t* event) { return cudaEventCreateWithFlags(event, cudaEventDefault); }

cudaError_t cudaEventDestroy(cudaEvent_t event) {
    {
        const std::lock_guard lock(queue().mutex);
        if (queue().events.erase(event) == 0) return report(cudaErrorInvalidResourceHandle);
    }
    delete event;
    return cudaSuccess;
}

cudaError_t cudaEventRecord(cudaEvent_t event, cudaStream_t stream) {
    if (const cudaError_t e = check_stream(stream)) return report(e);
    if (!exists(event)) return report(cudaErrorInvalidResourceHandle);
    const operation_ptr op = tail_of(stream);
    const std::lock_guard lock(queue().mutex);
    event->recorded = op;
    return cudaSuccess;
}

cudaError_t cudaEventSynchronize(cudaEvent_t event) {
    if (!exists(event)) return report(cudaErrorInvalidResourceHandle);
    wait(recorded(event));
    return report(device_state());
}

cudaError_t cudaEventQuery(cudaEvent_t event) {
    if (!exists(event)) return report(cudaErrorInvalidResourceHandle);
    return is_done(recorded(event)) ? report(device_state()) : cudaErrorNotReady;
}

cudaError_t cudaEventElapsedTime(float* milliseconds, cudaEvent_t start, cudaEvent_t stop) {
    if (!milliseconds) return report(cudaErrorInvalidValue);
    if (!exists(start) || !exists(stop)) return report(cudaErrorInvalidResourceHandle);
    const operation_ptr first = recorded(start), last = recorded(stop);
    if (!first || !last || ((start->flags | stop->flags) & cudaEventDisableTiming))
        return report(cudaErrorInvalidResourceHandle);
    if (!is_done(first) || !is_done(last)) return cudaErrorNotReady;
    *milliseconds = std::chrono::duration<float, std::milli>(last->finished - first->finished).count();
    return report(device_state());
}

} // extern "C"
