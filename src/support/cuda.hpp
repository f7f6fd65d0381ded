// SPDX-License-Identifier: BSD-3-Clause
// CUDA's runtime API (or the CPU backend's stand-in) with errors as exceptions and owners for what it gives out.
#pragma once

#include "support/check.hpp"

#include "dcuda/config.hpp"

#include <cuda_runtime.h>

#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>

namespace dcuda::cuda {

inline void check(cudaError_t result, std::string_view subject,
                  support::source_location location = support::source_location::current()) {
    if (result == cudaSuccess) return;
    const error_code code =
        result == cudaErrorMemoryAllocation ? error_code::out_of_resources : error_code::cuda_failure;
    support::fail(code, "{}: {} ({})", subject, cudaGetErrorString(result), support::short_location(location));
}

// The number of the calling thread's device.
inline int device_in_use() {
    int device = 0;
    check(cudaGetDevice(&device), "asking for the device");
    return device;
}

#if DCUDA_BACKEND_CUDA
// A function of the driver, found through the runtime, so that nothing links against the driver.
template <class Function>
Function driver_function(const char* name) {
    void* function = nullptr;
    cudaDriverEntryPointQueryResult found{};
    check(cudaGetDriverEntryPointByVersion(name, &function, 12000, cudaEnableDefault, &found), name);
    support::require(found == cudaDriverEntryPointSuccess, error_code::cuda_failure,
                     "the CUDA driver has no {}: a driver for CUDA 12 or later is needed", name);
    return reinterpret_cast<Function>(function);
}
#endif

// Whether work that is given to the stream becomes part of a graph, and runs later.
inline bool is_captured([[maybe_unused]] cudaStream_t stream) {
#if DCUDA_BACKEND_CUDA
    cudaStreamCaptureStatus status{};
    check(cudaStreamIsCapturing(stream, &status), "asking whether a stream is captured");
    return status != cudaStreamCaptureStatusNone;
#else
    return false;
#endif
}

// Device memory of `count` elements. Freed without a word: after a failed kernel nothing can be freed in order.
template <class Element>
struct device_deleter {
    void operator()(Element* memory) const { cudaFree(memory); }
};
template <class Element>
using device_array = std::unique_ptr<Element[], device_deleter<Element>>;

template <class Element>
device_array<Element> allocate(std::size_t count, std::string_view subject) {
    void* memory = nullptr;
    check(cudaMalloc(&memory, count * sizeof(Element)), subject);
    return device_array<Element>(static_cast<Element*>(memory));
}

// The same, for memory that holds zeros.
// PERF: new memory of the CPU backend does (cpu/arena.hpp). Most of what runs have for messages is never touched there;
// to touch it took half of the time of short runs with many ranks.
template <class Element>
device_array<Element> allocate_zeros(std::size_t count, std::string_view subject) {
    device_array<Element> memory = allocate<Element>(count, subject);
    if (DCUDA_BACKEND_CUDA) check(cudaMemset(memory.get(), 0, count * sizeof(Element)), subject);
    return memory;
}

// Host memory that the device can access.
template <class Element>
struct pinned_deleter {
    void operator()(Element* memory) const { cudaFreeHost(memory); }
};
template <class Element>
using pinned_array = std::unique_ptr<Element[], pinned_deleter<Element>>;

template <class Element>
pinned_array<Element> allocate_pinned(std::size_t count, std::string_view subject) {
    void* memory = nullptr;
    check(cudaHostAlloc(&memory, count * sizeof(Element), cudaHostAllocDefault), subject);
    return pinned_array<Element>(static_cast<Element*>(memory));
}

// Makes memory of another owner, of whole pages, accessible to the device for as long as it is used.
inline std::shared_ptr<std::byte> pin(std::shared_ptr<std::byte> memory, std::size_t bytes, std::string_view subject) {
    std::byte* const base = memory.get();
    check(cudaHostRegister(base, bytes, cudaHostRegisterPortable), subject);
    return {base, [memory = std::move(memory)](std::byte* pinned) { cudaHostUnregister(pinned); }};
}

class event {
public:
    explicit event(unsigned flags = cudaEventDefault) {
        check(cudaEventCreateWithFlags(&event_, flags), "creating an event");
    }
    ~event() { cudaEventDestroy(event_); }
    event(const event&) = delete;
    event& operator=(const event&) = delete;
    // cudaSuccess if all work before record() has ended, cudaErrorNotReady if not.
    cudaError_t query() const { return cudaEventQuery(event_); }
    bool is_over() const {
        const cudaError_t state = query();
        if (state != cudaErrorNotReady) check(state, "asking for an event");
        return state == cudaSuccess;
    }
    void record(cudaStream_t target) { check(cudaEventRecord(event_, target), "recording an event"); }
    cudaEvent_t get() const { return event_; }
    friend double milliseconds(const event& begin, const event& end) {
        float elapsed = 0;
        check(cudaEventElapsedTime(&elapsed, begin.event_, end.event_), "reading the kernel's time");
        return elapsed;
    }

private:
    cudaEvent_t event_ = nullptr;
};

// Its work begins as soon as it can, with `highest_priority` before that of other streams.
class stream {
public:
    enum class priority { usual, highest };
    explicit stream(priority chosen = priority::usual) {
        int highest = 0, lowest = 0;
        if (chosen == priority::highest)
            check(cudaDeviceGetStreamPriorityRange(&lowest, &highest), "asking for priorities");
        check(cudaStreamCreateWithPriority(&stream_, cudaStreamNonBlocking, highest), "creating a stream");
    }
    ~stream() { cudaStreamDestroy(stream_); }
    stream(const stream&) = delete;
    stream& operator=(const stream&) = delete;
    cudaStream_t get() const { return stream_; }
    // What follows in the stream begins when all work before the event's record() is done.
    void wait_for(const event& before) const {
        check(cudaStreamWaitEvent(stream_, before.get(), 0), "a stream's wait for an event");
    }

private:
    cudaStream_t stream_ = nullptr;
};

// Copies by the device's copy engine, one after the other. They are numbered from 1.
class copy_queue {
public:
    static constexpr std::size_t capacity = 64; // copies under way

    bool is_full() { return started_ - done_ == capacity && !is_done(done_ + 1); }

    // The number of the copy. There must be room.
    std::uint64_t start(void* target, const void* source, std::size_t bytes, std::string_view subject) {
        check(cudaMemcpyAsync(target, source, bytes, cudaMemcpyDefault, stream_.get()), subject);
        return end_start();
    }
    // The same of rows, which lie one after the other at the source and `distance` bytes apart at the target.
    std::uint64_t start_rows(void* target, std::size_t distance, const void* source, std::size_t width,
                             std::size_t rows, std::string_view subject) {
        check(cudaMemcpy2DAsync(target, distance, source, width, width, rows, cudaMemcpyDefault, stream_.get()),
              subject);
        return end_start();
    }

    std::uint64_t started() const { return started_; }
    bool is_done(std::uint64_t copy) {
        while (done_ < copy && ends_[done_ % capacity].is_over()) ++done_;
        return done_ >= copy;
    }
    // The last copy that is done, with all before it.
    std::uint64_t done() {
        is_done(started_);
        return done_;
    }

private:
    std::uint64_t end_start() {
        ends_[started_ % capacity].record(stream_.get());
        return ++started_;
    }

    stream stream_;
    std::array<event, capacity> ends_;
    std::uint64_t started_ = 0, done_ = 0;
};

} // namespace dcuda::cuda
