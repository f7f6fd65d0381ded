// SPDX-License-Identifier: BSD-3-Clause
// Waits of streams by the driver: the stream itself compares the word with a value (a memory operation, "memop"), and
// no multiprocessor waits. So it can always begin, also on a GPU full of kernels that wait.
//
// The value is fixed when the wait is appended: all that has been waited for so far, and this. The host knows that of a
// word whose notifications are taken by its own calls alone. It does not where a captured graph takes them, which may
// be launched many times, or a kernel of the program: there a kernel waits, from then on.
#pragma once

#include "dcuda/types.hpp"
#include "device/device_access.hpp"
#include "stream/stream_kernels.hpp"

#include <map>
#include <mutex>

namespace dcuda {

class value_waits {
public:
    // `is_wanted`: else all waits are kernels.
    explicit value_waits(bool is_wanted) : is_wanted_(is_wanted) {}
    bool are_wanted() const { return is_wanted_; }

    // Appends the wait, if it is one for a word whose value is known, and a kernel that takes what has come. Else
    // appends nothing and returns false: a kernel has to wait.
    bool append(const wait_trigger& wait, cudaStream_t stream);

    // A kernel in the stream, or a call of the host, takes the notifications.
    void count(const wait_trigger& wait, cudaStream_t stream);
    // Others may take notifications of that word from now on.
    void forget(const wait_trigger& wait);

    // Ends all waits in streams: kernels behind them find that the port has ended.
    void end(device_access& link);

private:
    // What the host's calls have taken, and will.
    struct taken_count {
        std::uint32_t taken = 0;
        bool is_known = true;
        std::uint32_t* word = nullptr; // that streams have waited for; null: none has
    };
    bool knows(const wait_trigger& wait, cudaStream_t stream);

    const bool is_wanted_;
    std::mutex mutex_; // of what follows
    bool has_ended_ = false;
    std::map<const std::uint32_t*, taken_count> counts_; // by where a wait's notifications are counted
};

} // namespace dcuda
