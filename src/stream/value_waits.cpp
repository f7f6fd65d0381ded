// SPDX-License-Identifier: BSD-3-Clause
#include "stream/value_waits.hpp"

#include "dcuda/detail/stream/wanted_word.hpp"

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
    const std::uint64_t own = detail::wanted_word(wait.count, expected);
    int result = tell(stream, address_of(wait.wanted), own, 0);
    if (result == 0) result = await(stream, address_of(wait.arrived), expected, at_least);
    support::require(result == 0, error_code::cuda_failure,
                     "a wait for a value in the stream failed (CUresult {}): use DCUDA_STREAM_OPS=kernels", result);
}

#else

// There is no such operation: the kernel behind it waits.
void wait_for_value(const wait_trigger&, std::uint32_t, cudaStream_t) {}

#endif

} // namespace

bool value_waits::knows(const wait_trigger& wait, cudaStream_t stream) {
    if (!end_stream_) return false;
    // Not with the lock: CUDA may hold up the caller behind a wait that only end() ends.
    const bool is_captured = cuda::is_captured(stream);
    const std::lock_guard lock(mutex_);
    taken_count& counted = counts_[wait.consumed];
    if (counted.taken == 0) counted.stream = stream;
    if (wait.senders != 1 || is_captured || counted.stream != stream) counted.is_known = false;
    return counted.is_known;
}

void value_waits::append(const wait_trigger& wait, cudaStream_t stream) {
    std::uint32_t expected = 0;
    {
        const std::lock_guard lock(mutex_);
        expected = counts_[wait.consumed].taken += wait.count;
        is_used_ = true;
    }
    try {
        wait_for_value(wait, expected, stream);
        cuda::check(append_take(wait, expected, stream), "a wait in the stream");
    } catch (const error&) {
        forget(wait);
        throw;
    }
}

void value_waits::forget(const wait_trigger& wait) {
    if (!end_stream_) return;
    const std::lock_guard lock(mutex_);
    counts_[wait.consumed].is_known = false;
}

void value_waits::end() {
    const std::lock_guard lock(mutex_);
    if (is_used_) static_cast<void>(append_trap(end_stream_->get()));
}

} // namespace dcuda
