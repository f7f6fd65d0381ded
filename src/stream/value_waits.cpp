// SPDX-License-Identifier: BSD-3-Clause
#include "stream/value_waits.hpp"

#include "support/cuda.hpp"

#if DCUDA_BACKEND_CPU
#include "dcuda/detail/protocol/memory.hpp"

#include <memory>
#include <sched.h>
#endif

namespace dcuda {

namespace {

#if DCUDA_BACKEND_CUDA

using stream_operation_32 = int (*)(cudaStream_t, unsigned long long address, std::uint32_t value, unsigned flags);
using stream_operation_64 = int (*)(cudaStream_t, unsigned long long address, std::uint64_t value, unsigned flags);

unsigned long long address_of(const void* word) {
    return static_cast<unsigned long long>(reinterpret_cast<std::uintptr_t>(word));
}

// The host is told of the wait when it begins, as by a kernel that waits (tell_of_wait).
// ORDER notify-observe: the kernel behind it acquires.
void wait_for_value(const wait_trigger& wait, std::uint32_t expected, cudaStream_t stream) {
    constexpr unsigned at_least = 0; // CU_STREAM_WAIT_VALUE_GEQ: modulo 2^32
    static const auto tell = cuda::driver_function<stream_operation_64>("cuStreamWriteValue64");
    static const auto await = cuda::driver_function<stream_operation_32>("cuStreamWaitValue32");
    const std::uint64_t own = std::uint64_t{wait.count} << 32 | expected;
    int result = tell(stream, address_of(wait.wanted), own, 0);
    if (result == 0) result = await(stream, address_of(wait.arrived), expected, at_least);
    support::require(result == 0, error_code::cuda_failure, "a wait for a value in the stream failed: CUresult {}",
                     result);
}

#else

// The stream's thread compares.
void wait_for_value(const wait_trigger& wait, std::uint32_t expected, cudaStream_t stream) {
    struct task {
        wait_trigger wait;
        std::uint32_t expected;
    };
    const auto run = [](void* given) {
        const std::unique_ptr<task> own(static_cast<task*>(given));
        detail::store_relaxed(own->wait.wanted, std::uint64_t{own->wait.count} << 32 | own->expected);
        while (static_cast<std::int32_t>(detail::load_relaxed(own->wait.arrived) - own->expected) < 0) sched_yield();
    };
    auto made = std::make_unique<task>(task{wait, expected});
    cuda::check(cudaLaunchHostFunc(stream, run, made.get()), "a wait for a value in the stream");
    static_cast<void>(made.release()); // the stream's
}

#endif

} // namespace

bool value_waits::knows(const wait_trigger& wait, cudaStream_t stream) {
    taken_count& counted = counts_[wait.consumed];
    if (wait.senders != 1 || cuda::is_captured(stream)) counted.is_known = false;
    return counted.is_known;
}

bool value_waits::append(const wait_trigger& wait, cudaStream_t stream) {
    if (!is_wanted_) return false;
    std::uint32_t expected = 0;
    {
        const std::lock_guard lock(mutex_);
        if (has_ended_ || !knows(wait, stream)) return false;
        taken_count& counted = counts_[wait.consumed];
        expected = counted.taken += wait.count;
        counted.word = const_cast<std::uint32_t*>(wait.arrived);
    }
    // Not with the lock: a stream may be full of work behind a wait that only end() ends.
    wait_for_value(wait, expected, stream);
    cuda::check(append_take(wait, stream), "a wait in the stream");
    return true;
}

void value_waits::count(const wait_trigger& wait, cudaStream_t stream) {
    if (!is_wanted_) return;
    const std::lock_guard lock(mutex_);
    if (knows(wait, stream)) counts_[wait.consumed].taken += wait.count;
}

void value_waits::forget(const wait_trigger& wait) {
    if (!is_wanted_) return;
    const std::lock_guard lock(mutex_);
    counts_[wait.consumed].is_known = false;
}

void value_waits::end(device_access& link) {
    const std::lock_guard lock(mutex_);
    has_ended_ = true;
    for (const auto& [place, counted] : counts_)
        if (counted.word != nullptr) link.write_word(counted.word, counted.taken);
}

} // namespace dcuda
