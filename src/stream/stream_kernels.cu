// SPDX-License-Identifier: BSD-3-Clause
#include "stream/stream_kernels.hpp"

#include "dcuda/trigger.hpp"
#include "stream/block_cluster.hpp"

namespace dcuda {

using namespace detail;

namespace {

constexpr unsigned put_threads = 1024;
constexpr std::size_t bytes_of_block = 32 * 1024;

// Each block copies a part. ORDER notify-publish: what all of them have stored, by the barrier, comes before the
// notification.
__global__ void __launch_bounds__(put_threads) put_kernel(put_trigger put) {
    const block_cluster blocks;
    const std::size_t part = (put.bytes / blocks.blocks() + 127) / 128 * 128;
    const auto begin_of = [&](unsigned block) {
        return block == blocks.blocks() || part * block > put.bytes ? put.bytes : part * block;
    };
    const std::size_t first = begin_of(blocks.block()), last = begin_of(blocks.block() + 1);
    exec::copy_bytes(calling_block(), put.target + first, put.source + first, last - first);
    blocks.sync();
    if (blocks.leads()) add_notification(put);
}

__global__ void __launch_bounds__(put_threads) put_by_host_kernel(put_trigger put) {
    put_by_host(calling_block(), put);
}

DCUDA_DEVICE std::size_t lesser(std::size_t a, std::size_t b) { return a < b ? a : b; }

// Pieces of whole rows, as many as a slot holds; of rows that are longer a piece for each part.
__global__ void __launch_bounds__(put_threads) put_rows_kernel(put_trigger put, box shape, pitch there, pitch here) {
    constexpr std::size_t slot_bytes = put_queue::slot_bytes;
    const host_path& by = put.by_host;
    const auto group = calling_block();
    const std::size_t width = shape.width_bytes, parts = pieces_of(width, slot_bytes);
    // The copy engine at the target takes no rows that are farther apart.
    const std::size_t rows_of_piece = parts > 1 || there.row_bytes > INT32_MAX ? 1 : slot_bytes / width;
    const std::size_t pieces_of_slice = parts > 1 ? shape.height * parts : pieces_of(shape.height, rows_of_piece);
    const auto pieces = static_cast<std::uint32_t>(shape.depth * pieces_of_slice);
    fill_pieces(group, by, pieces, [&](std::uint32_t i, std::uint32_t slot) {
        const std::size_t slice = i / pieces_of_slice, place = i % pieces_of_slice;
        const std::size_t row = place / parts * rows_of_piece, begin = place % parts * slot_bytes;
        const std::size_t rows = lesser(shape.height - row, rows_of_piece), bytes = lesser(width - begin, slot_bytes);
        const std::byte* const source = put.source + slice * here.slice_bytes + row * here.row_bytes + begin;
        std::byte* const data = by.queue->data[slot];
        if (rows == 1) {
            exec::copy_bytes(group, data, source, bytes);
        } else {
            for (std::size_t at = exec::thread_index(); at < rows * width; at += exec::block_threads())
                data[at] = source[at / width * here.row_bytes + at % width];
        }
        if (group.leads())
            by.queue->commands[slot] = {rows == 1 ? put_command::kind::put : put_command::kind::rows,
                                        i + 1 < pieces ? no_tag : by.tag,
                                        by.place + slice * there.slice_bytes + row * there.row_bytes + begin,
                                        rows * bytes,
                                        there.row_bytes,
                                        static_cast<std::uint32_t>(bytes),
                                        0,
                                        nullptr};
    });
}

__global__ void get_by_host_kernel(put_trigger get) { get_by_host(get.by_host, get.bytes, get.target); }

__global__ void notify_kernel(put_trigger put) { notify(put); }

// Waits that are in streams at the same time take what comes in the order in which they begin. One thread.
DCUDA_DEVICE void await_next(const wait_trigger& wait) {
    await_notifications(wait, fetch_add_relaxed(wait.consumed, wait.count) + wait.count);
}
__global__ void wait_kernel(wait_trigger wait) { await_next(wait); }

// Behind a wait by the driver, of which the host was told that it is for so many.
__global__ void take_kernel(wait_trigger wait, std::uint32_t told) {
    forget_wait(wait.wanted, wanted_word(wait.count, told));
    await_next(wait);
}

__global__ void trap_kernel() { __trap(); }

// ORDER notify-observe: the barrier stands between the thread that has acquired and what the others send next.
// PERF: ByHost: some puts are the host's; what copies them needs more registers than all else.
template <bool ByHost>
__global__ void __launch_bounds__(put_threads) steps_kernel(stream_steps steps) {
    for (std::size_t i = 0; i < steps.count; ++i) {
        const stream_step& step = steps.at[i];
        if (step.wait.count != 0) {
            if (exec::thread_index() == 0) await_next(step.wait);
            exec::sync_block();
        } else if (ByHost && step.put.by_host.queue != nullptr) {
            put_by_host(calling_block(), step.put);
        } else {
            put_to_mapped(calling_block(), step.put);
        }
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

constexpr cluster_shape one_thread{1, 1};
cluster_shape one_block(std::size_t bytes) {
    return {1, shape_for(put_by_host_kernel, bytes, SIZE_MAX, put_threads).threads};
}

} // namespace

cudaError_t load_stream_kernels() {
    cudaFuncAttributes unused{};
    cudaError_t result = cudaFuncGetAttributes(&unused, put_kernel);
    const auto load = [&](auto* kernel) {
        if (result == cudaSuccess) result = cudaFuncGetAttributes(&unused, kernel);
    };
    load(put_by_host_kernel);
    load(put_rows_kernel);
    load(get_by_host_kernel);
    load(notify_kernel);
    load(wait_kernel);
    load(take_kernel);
    load(trap_kernel);
    load(steps_kernel<false>);
    load(steps_kernel<true>);
    load(wait_word_kernel);
    load(test_kernel);
    return result;
}

cudaError_t append_put(const put_trigger& put, cudaStream_t stream) {
    if (put.by_host.queue != nullptr) return append(put_by_host_kernel, one_block(put.bytes), stream, put);
    return append(put_kernel, shape_for(put_kernel, put.bytes, bytes_of_block, put_threads), stream, put);
}

cudaError_t append_put_rows(const put_trigger& put, const box& shape, const pitch& there, const pitch& here,
                            cudaStream_t stream) {
    return append(put_rows_kernel, one_block(payload_of(shape)), stream, put, shape, there, here);
}

cudaError_t append_get(const put_trigger& get, cudaStream_t stream) {
    return append(get_by_host_kernel, one_thread, stream, get);
}

cudaError_t append_steps(const stream_steps& steps, cudaStream_t stream) {
    std::size_t most = 0;
    bool is_by_host = false;
    for (std::size_t i = 0; i < steps.count; ++i) {
        most = std::max(most, steps.at[i].put.bytes);
        is_by_host = is_by_host || steps.at[i].put.by_host.queue != nullptr;
    }
    return append(is_by_host ? steps_kernel<true> : steps_kernel<false>, one_block(most), stream, steps);
}

cudaError_t append_notify(const put_trigger& put, cudaStream_t stream) {
    return append(notify_kernel, one_thread, stream, put);
}

cudaError_t append_wait(const wait_trigger& wait, cudaStream_t stream) {
    return append(wait_kernel, one_thread, stream, wait);
}

cudaError_t append_take(const wait_trigger& wait, std::uint32_t told, cudaStream_t stream) {
    return append(take_kernel, one_thread, stream, wait, told);
}

cudaError_t append_trap(cudaStream_t stream) { return append(trap_kernel, one_thread, stream); }

cudaError_t append_wait_word(const std::uint32_t* word, std::uint32_t value, comparison how, const std::uint32_t* ended,
                             cudaStream_t stream) {
    return append(wait_word_kernel, one_thread, stream, word, value, how, ended);
}

cudaError_t append_test(const wait_trigger& wait, std::uint32_t* result, cudaStream_t stream) {
    return append(test_kernel, one_thread, stream, wait, result);
}

} // namespace dcuda
