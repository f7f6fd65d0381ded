// SPDX-License-Identifier: BSD-3-Clause
// Waits of streams by the driver: the stream itself compares the word with a value (a memory operation, "memop"), and
// no multiprocessor waits. So it can begin on a GPU that is full of kernels that wait.
//
// The value is fixed when the wait is appended: all that has been waited for so far, and this. It is known for a word
// that a single stream waits for, by the port's calls alone. It is not where waits for the word are in several streams,
// of which any may begin first, where a captured graph waits, which may be launched many times, or where a kernel of
// the program or a test of the host takes notifications. There a kernel waits, from then on.
#pragma once

#include "dcuda/types.hpp"
#include "stream/stream_kernels.hpp"
#include "support/cuda.hpp"

#include <map>
#include <mutex>
#include <optional>

namespace dcuda {

class value_waits {
public:
    // `are_wanted`: else all waits are kernels.
    explicit value_waits(bool are_wanted) {
        if (are_wanted) end_stream_.emplace();
    }

    // Whether the value of this wait is known, which the stream is about to get.
    bool knows(const wait_trigger& wait, cudaStream_t stream);
    // Appends such a wait, and a kernel behind it that takes what has come.
    void append(const wait_trigger& wait, cudaStream_t stream);
    // Others may take notifications of that word from now on.
    void forget(const wait_trigger& wait);

    // The port has failed: nothing behind a wait may run. The device's work ends with an error.
    void end();

private:
    struct taken_count {
        std::uint32_t taken = 0; // by all waits so far
        cudaStream_t stream = nullptr;
        bool is_known = true;
    };

    std::optional<cuda::stream> end_stream_; // of what ends the work; nothing: no such waits are wanted
    std::mutex mutex_;                       // of what follows
    bool is_used_ = false;
    std::map<const std::uint32_t*, taken_count> counts_; // by where a wait's notifications are counted
};

} // namespace dcuda
