// SPDX-License-Identifier: BSD-3-Clause
#include "stream/stream_kernels.hpp"

#include "dcuda/trigger.hpp"

#include <algorithm>

namespace dcuda {

using namespace detail;

namespace {

__global__ void put_kernel(put_trigger put) { trigger_by_block(put); }

__global__ void notify_kernel(put_trigger put) { add_notification(put); }

// Waits that are in streams at the same time take what comes in the order in which they begin. One thread.
DCUDA_DEVICE void await_next(const wait_trigger& wait) {
    await_notifications(wait, fetch_add_relaxed(wait.consumed, wait.count) + wait.count);
}
__global__ void wait_kernel(wait_trigger wait) { await_next(wait); }

// ORDER notify-observe: the barrier stands between the thread that has acquired and what the others send next.
__global__ void steps_kernel(stream_steps steps) {
    for (std::size_t i = 0; i < steps.count; ++i) {
        const stream_step& step = steps.at[i];
        if (step.wait.count == 0) {
            trigger_by_block(step.put);
            continue;
        }
        if (exec::thread_index() == 0) await_next(step.wait);
        exec::sync_block();
    }
}

__global__ void test_kernel(wait_trigger wait, std::uint32_t* result) {
    const std::uint32_t before = load_relaxed(wait.consumed), expected = before + wait.count;
    bool is_taken = has_come(count_arrived(wait), expected);
    if (is_taken) {
        const atomic_update take{atomic_action::compare_swap, element_type::uint32, expected, before};
        is_taken = update_element(reinterpret_cast<std::byte*>(wait.consumed), take) == before;
    }
    if (is_taken) acquire_after_all<order_tag::notify_observe>(scope::system, wait.arrived, wait.senders, wait.stride);
    store_relaxed(result, is_taken ? 1u : 0u);
    store_relaxed(result + 1, expected);
}

// ORDER notify-observe: what its writer has released before the word is seen by what follows in the stream.
__global__ void wait_word_kernel(const std::uint32_t* word, std::uint32_t value, comparison how,
                                 const std::uint32_t* ended) {
    const auto compares = [=](std::uint32_t found) {
        return how == comparison::at_least ? has_come(found, value)
               : how == comparison::equal  ? found == value
                                           : (found & value) != 0;
    };
    const auto keep_polling = [=](std::uint32_t) { return load_relaxed(ended) == 0; };
    if (!poll<order_tag::notify_observe>(scope::system, word, compares, keep_polling)) __trap();
}

// PERF: as many threads as have something to do, 16 bytes each, in whole warps.
unsigned threads_for(std::size_t bytes) {
    constexpr std::size_t most = DCUDA_BACKEND_CUDA ? 1024 : 32; // CPU backend: one of them copies
    return static_cast<unsigned>(std::clamp<std::size_t>((bytes / 16 + 31) / 32 * 32, 32, most));
}

template <class... Params, class... Args>
cudaError_t append(void (*kernel)(Params...), unsigned threads, cudaStream_t stream, const Args&... arguments) {
    cudaLaunchConfig_t shape{};
    shape.gridDim = dim3(1);
    shape.blockDim = dim3(threads);
    shape.stream = stream;
    return cudaLaunchKernelEx(&shape, kernel, static_cast<Params>(arguments)...);
}

} // namespace

cudaError_t load_stream_kernels() {
    cudaFuncAttributes unused{};
    cudaError_t result = cudaFuncGetAttributes(&unused, put_kernel);
    const auto load = [&](auto* kernel) {
        if (result == cudaSuccess) result = cudaFuncGetAttributes(&unused, kernel);
    };
    load(notify_kernel);
    load(wait_kernel);
    load(steps_kernel);
    load(wait_word_kernel);
    load(test_kernel);
    return result;
}

cudaError_t append_put(const put_trigger& put, cudaStream_t stream) {
    return append(put_kernel, threads_for(put.bytes), stream, put);
}

cudaError_t append_steps(const stream_steps& steps, cudaStream_t stream) {
    std::size_t most = 0;
    for (std::size_t i = 0; i < steps.count; ++i) most = std::max(most, steps.at[i].put.bytes);
    return append(steps_kernel, threads_for(most), stream, steps);
}

cudaError_t append_notify(const put_trigger& put, cudaStream_t stream) { return append(notify_kernel, 1, stream, put); }

cudaError_t append_wait(const wait_trigger& wait, cudaStream_t stream) { return append(wait_kernel, 1, stream, wait); }

cudaError_t append_wait_word(const std::uint32_t* word, std::uint32_t value, comparison how, const std::uint32_t* ended,
                             cudaStream_t stream) {
    return append(wait_word_kernel, 1, stream, word, value, how, ended);
}

cudaError_t append_test(const wait_trigger& wait, std::uint32_t* result, cudaStream_t stream) {
    return append(test_kernel, 1, stream, wait, result);
}

} // namespace dcuda
