// SPDX-License-Identifier: BSD-3-Clause
// The kernels that a stream port appends to streams.
#pragma once

#include "dcuda/detail/protocol/box.hpp"
#include "dcuda/stream.hpp"

namespace dcuda {

// Loads the kernels. A kernel that is loaded when it is first launched may wait for kernels that run, and these may be
// waiting.
cudaError_t load_stream_kernels();

// What CUDA says to the launch.
// Of a put: it notifies if it has a counter. Also for a get: a copy to where the put goes.
cudaError_t append_put(const put_trigger& put, cudaStream_t stream);
// Of a box, to a process that is reached over a network only. Few bytes in a row, or many.
cudaError_t append_put_rows(const put_trigger& put, const box& shape, const pitch& there, const pitch& here,
                            cudaStream_t stream);
// Of bytes of such a process, to put.target. Waits until they are there.
cudaError_t append_get(const put_trigger& get, cudaStream_t stream);
cudaError_t append_notify(const put_trigger& put, cudaStream_t stream);
cudaError_t append_wait(const wait_trigger& wait, cudaStream_t stream);
// Behind a wait by the driver, of which the host was told that it is for so many: takes the notifications.
cudaError_t append_take(const wait_trigger& wait, std::uint32_t told, cudaStream_t stream);
// Ends all work of the device with an error.
cudaError_t append_trap(cudaStream_t stream);
cudaError_t append_wait_word(const std::uint32_t* word, std::uint32_t value, comparison how, const std::uint32_t* ended,
                             cudaStream_t stream);
// Some puts and waits in order, by one block.
struct stream_step {
    put_trigger put;
    wait_trigger wait; // in place of the put, if its count is not 0
};
struct stream_steps {
    static constexpr std::size_t most = 16, most_bytes = 128 * 1024; // of a put; more are done sooner by several blocks
    stream_step at[most];
    std::size_t count = 0;
};
cudaError_t append_steps(const stream_steps& steps, cudaStream_t stream);
// Two words that the host can read: 1 if the notifications were there and are taken, else 0; and up to which number
// they go.
cudaError_t append_test(const wait_trigger& wait, std::uint32_t* result, cudaStream_t stream);

} // namespace dcuda
