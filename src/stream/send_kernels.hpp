// SPDX-License-Identifier: BSD-3-Clause
// The kernels that send and receive for a stream port.
#pragma once

#include "dcuda/detail/stream/put_queue.hpp"
#include "stream/send_queue.hpp"

#include <cuda_runtime.h>

namespace dcuda {

// One send or one receive, for a kernel.
struct transfer {
    enum class kind { send, receive } direction;
    queue_pair queue;
    detail::queue_turns* turns; // of those in this direction
    std::byte* memory;          // of a send the source, else the destination
    std::size_t bytes;
    const std::uint32_t* ended; // not 0: waits end
    std::uint64_t* wanted;      // of the host: the piece, and 1 in the upper half, that a kernel has been waiting for
    std::uint64_t* refused;     // of the host: how long a send is for which the receive is too short
};

// Loads the kernels, as load_stream_kernels does.
cudaError_t load_send_kernels();

// What CUDA says to the launch.
cudaError_t append_transfer(const transfer& work, cudaStream_t stream);

} // namespace dcuda
