// SPDX-License-Identifier: BSD-3-Clause
// What a stream port sends and receives: requests, and the streams of the port's own in which their kernels run.
#pragma once

#include "dcuda/stream.hpp"
#include "stream/port_memory.hpp"
#include "support/cuda.hpp"

#include <deque>
#include <memory>
#include <optional>
#include <span>
#include <vector>

namespace dcuda {

enum class transfer_direction { send, receive };

// Of a send or a receive, which may be posted again and again.
class request::implementation {
public:
    transfer_direction direction{};
    int process = 0;
    transfer work{};
    bool is_posted = false;
    cuda::event done{cudaEventDisableTiming}; // the last time
};

class port_sends {
public:
    explicit port_sends(int processes);

    request prepare(transfer_direction direction, int process, const transfer& work);

    // They begin when what the stream has now is done; without a stream at once. Those to a process begin one after the
    // other, and so do those from a process.
    void post(std::span<const request> requests, std::optional<cudaStream_t> stream);

    // Throws error(invalid_argument) unless the request is one that was posted.
    static request::implementation& posted(const request& chosen);

    // Says of each process whose sends or receives are under way still.
    void tell_of_open(int own_process) const;

private:
    static void start(request::implementation& chosen, const cuda::stream& own);
    const cuda::stream& stream_of(transfer_direction direction, int process) const {
        return direction == transfer_direction::send ? sending_[static_cast<std::size_t>(process)]
                                                     : receiving_[static_cast<std::size_t>(process)];
    }

    std::deque<cuda::stream> sending_, receiving_; // by process
    cuda::event begin_{cudaEventDisableTiming};    // of what is being posted
    // PERF: a request that the program no longer has is used again, since making its event takes the driver a while.
    std::vector<std::shared_ptr<request::implementation>> requests_;
    std::size_t looked_at_ = 0; // last, of them
};

} // namespace dcuda
