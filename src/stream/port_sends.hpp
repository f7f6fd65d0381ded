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

// Of a send or a receive, which may be posted again and again.
class request::implementation {
public:
    int process = 0;
    transfer work{};
    std::weak_ptr<void> owner;                   // the port
    bool is_posted = false, is_captured = false; // the last time
    cuda::event done{cudaEventDisableTiming};
};

class port_sends {
public:
    explicit port_sends(int processes);

    request prepare(int process, const transfer& work);

    // They begin when what the stream has now is done; without a stream at once. Those to a process begin one after the
    // other, and so do those from a process.
    void post(std::span<const request> requests, std::optional<cudaStream_t> stream);

    // What a stream waits for, and what the host waits for. Throws error(invalid_argument) unless the request is one of
    // this port that was posted; for the host, outside of a graph.
    const cuda::event& awaited_by_stream(const request& chosen) const;
    const cuda::event& awaited_by_host(const request& chosen) const;

    // Says of each process whose sends or receives are under way still.
    void tell_of_open(int own_process) const;

private:
    std::shared_ptr<request::implementation> unused();
    request::implementation& owned(const request& chosen) const;
    static void start(request::implementation& chosen, const cuda::stream& own);
    const cuda::stream& stream_of(const request::implementation& chosen) const {
        const auto& streams = chosen.work.direction == transfer::kind::send ? sending_ : receiving_;
        return streams[static_cast<std::size_t>(chosen.process)];
    }

    std::deque<cuda::stream> sending_, receiving_; // by process
    cuda::event begin_{cudaEventDisableTiming};    // of what is being posted
    // PERF: a request that the program no longer has is used again, since making its event takes the driver a while.
    std::vector<std::shared_ptr<request::implementation>> requests_;
    std::size_t looked_at_ = 0;                             // last, of them
    std::shared_ptr<void> port_ = std::make_shared<char>(); // for requests, which may outlive it
};

} // namespace dcuda
