// SPDX-License-Identifier: BSD-3-Clause
// What a stream port has in memory: the words that notifications are counted in.
//
// A notification is added to a word of its sender and its tag in the receiver's device memory. So the receiver can wait
// for one sender, or for the sum of all; and only one process adds to a word.
#pragma once

#include "bootstrap/control.hpp"
#include "dcuda/types.hpp"
#include "device/device_access.hpp"
#include "support/cuda.hpp"
#include "transport/peer.hpp"

#include <vector>

namespace dcuda {

class port_memory {
public:
    // Collective. Throws error(no_path) on all processes if one is reached over a network only.
    port_memory(bootstrap::control& control, const std::vector<bool>& is_remote, int tags);

    // Collective, unless the port has failed: nobody uses the others' memory any more. Never throws.
    void close(bool has_failed);

    int device() const { return device_; }

    // Where this process's notifications with the tag are counted at the process; and what is rung there then.
    std::uint32_t* counter(int process, int tag) const {
        return ports_[place(process)] + place(own_) * place(tags_) + place(tag);
    }
    std::uint32_t* doorbell(int process) const { return ports_[place(process)] + ports_.size() * place(tags_); }

    // Notifications of one process, or of any (-1).
    wait_trigger wait_of(int process, int tag, std::uint32_t count) const;

    // Not 0 once waits shall end. In device memory: many blocks may look.
    const std::uint32_t* ended() const { return ended_.get(); }
    void end_waits() { link_.write_word(ended_.get(), 1); } // by one thread

    // Of a test, in the host's memory: whether the notifications were there, and up to which number they go.
    std::uint32_t* result() const { return result_.get(); }

    // A wait of the host, after a test of it: as a kernel that waits tells of itself. Returns what end_wait takes.
    std::uint64_t tell_of_wait(const wait_trigger& wait) const;
    void end_wait(const wait_trigger& wait, std::uint64_t told) const;

    // Waits that last: of which process (-1: any), with which tag, and for how many; up to which number of
    // notifications.
    struct lasting_wait {
        int process, tag;
        std::uint32_t count, expected;
        auto operator<=>(const lasting_wait&) const = default;
    };
    std::vector<lasting_wait> lasting_waits() const;

    // Notifications so far, by process.
    std::vector<std::uint32_t> read_arrived(int tag);

private:
    static std::size_t place(int number) { return static_cast<std::size_t>(number); }
    // Where waits are counted: those for notifications of any process, then those of each process.
    std::size_t places() const { return (ports_.size() + 1) * place(tags_); }

    bootstrap::control& control_;
    int own_, tags_, device_;
    cuda::device_array<std::uint32_t> arrived_;  // by process and tag; then the doorbell
    cuda::device_array<std::uint32_t> consumed_; // by place
    cuda::device_array<std::uint32_t> ended_;
    cuda::pinned_array<std::uint32_t> result_;
    cuda::pinned_array<std::uint64_t> wanted_; // by place
    transport::peer_mappings mappings_;
    std::vector<std::uint32_t*> ports_; // by process: its arrived_
    device_access link_;                // while kernels wait
};

} // namespace dcuda
