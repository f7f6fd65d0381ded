// SPDX-License-Identifier: BSD-3-Clause
// What a running process shows of itself to dcuda-top: a snapshot of its ranks, for everybody who connects.
#pragma once

#include "bootstrap/job.hpp"
#include "dcuda/detail/protocol/protocol.hpp"
#include "dcuda/statistics.hpp"
#include "support/descriptor.hpp"

#include <chrono>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <sys/types.h>
#include <vector>

namespace dcuda {

// What a device's ranks have sent in this run, by path.
struct sent_messages {
    path_statistics local, peer, network;
};

// What dcuda-top learns of a process. Travels as JSON.
struct snapshot {
    static constexpr int format = 6; // readers refuse others

    std::string version, backend, program, host, device;
    std::string job; // equal for all processes of a job; says nothing about its secret
    pid_t pid = 0;
    int process = 0, processes = 1;
    int processes_here = 1; // of these, on this host
    std::uint32_t ranks_per_device = 0, ranks_per_block = 1;
    int run = 0;                            // number of the run that goes on, from 1
    double run_seconds = 0;                 // for how long
    std::vector<detail::wait_record> waits; // by rank of the device
    std::optional<sent_messages> sent;      // empty: nothing is counted

    std::string to_json() const;
    static snapshot from_json(const std::string& text); // throws std::exception
};

// A process listens at this name in the abstract namespace of local sockets, which leaves no file behind:
// dcuda-top/USER/PID.
inline constexpr const char* live_prefix = "dcuda-top/";
std::string live_address(uid_t user, pid_t pid);

// Whoever connects, of the same user or root, gets one snapshot, and the connection is closed. Nothing is read from it.
// Never blocks and never throws; holds at most a few connections and one text. Used by one thread, which looks here
// from time to time while a kernel runs; between runs nobody is answered.
class live_view {
public:
    live_view(const bootstrap::job& job, std::string device_name);

    void begin_run(int ranks_per_device, int ranks_per_block);

    // Goes on with what is under way, if it is time. True: somebody waits for a snapshot.
    //
    // PERF: a call that is not due costs a look at the clock, 25 ns; one that is due two system calls each 20 ms.
    bool poll();

    // After that: answers all who wait.
    void answer(std::vector<detail::wait_record> waits, const std::optional<sent_messages>& sent);

private:
    using clock = std::chrono::steady_clock;
    static constexpr std::size_t most_readers = 8; // the others wait until they are accepted
    static constexpr std::chrono::milliseconds look_interval{20}, answer_interval{50};
    static constexpr std::chrono::seconds patience{2}; // with a reader that reads nothing

    struct reader {
        support::descriptor socket;
        std::shared_ptr<const std::string> text; // null: not answered yet
        std::size_t sent = 0;
        clock::time_point deadline{};
    };
    static bool is_finished(reader& caller, clock::time_point now);

    snapshot about_;
    support::descriptor listener_; // empty: nobody can connect
    std::vector<reader> readers_;
    clock::time_point next_look_{}, run_start_{};
};

} // namespace dcuda
