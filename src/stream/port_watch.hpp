// SPDX-License-Identifier: BSD-3-Clause
// The thread that looks after a stream port: it hears of lost processes, sees waits that last, and does the relay's
// work for processes that are reached over a network only.
#pragma once

#include "bootstrap/control.hpp"
#include "dcuda/error.hpp"
#include "device/settings.hpp"
#include "stream/port_memory.hpp"
#include "stream/port_relay.hpp"
#include "stream/value_waits.hpp"

#include <chrono>
#include <condition_variable>
#include <map>
#include <mutex>
#include <optional>
#include <string>
#include <thread>

namespace dcuda {

class port_watch {
public:
    // From begin() to stop() the thread alone uses the control plane and the relay, which is null where the job needs
    // no network.
    port_watch(bootstrap::control& control, port_memory& memory, port_relay* relay, value_waits& waits,
               const settings& chosen);
    ~port_watch() { stop(); }
    port_watch(const port_watch&) = delete;
    port_watch& operator=(const port_watch&) = delete;

    void begin();

    // Ends all waits, here and in the other processes' ports. The first reason counts.
    void fail(const error& cause);
    bool has_failed() const;
    // Throws the reason if the port has failed.
    void require_success() const;

    // If the job needs a network: collective over the processes, unless the port has failed. What this process's
    // streams have given the relay has been delivered then.
    void stop();

private:
    using clock = std::chrono::steady_clock;
    void use_device() const;
    bool stops();
    void watch();
    void look();
    bool serve_relay(clock::time_point now);
    void rest(bool has_moved);
    void end_relay();
    void serve(const bootstrap::event& happened);
    void look_at_waits();
    void tell_of_failure();
    std::string describe(const port_memory::lasting_wait& wait);
    void end(const error& cause);

    bootstrap::control& control_;
    port_memory& memory_;
    port_relay* relay_;
    value_waits& value_waits_;
    // The port ends: this process has done so far, and has said so, and all have.
    bool ends_relay_ = false, is_end_told_ = false, is_relay_ended_ = false;
    // A process does not answer there; the control plane may say more, up to that time.
    std::optional<error> unreachable_;
    clock::time_point unreachable_until_{};
    clock::time_point moved_{}, served_{}, looked_{}; // last
    std::chrono::nanoseconds timeout_;                // 0: none
    struct sighting {
        clock::time_point first;
        bool is_reported = false;
    };
    std::map<port_memory::lasting_wait, sighting> waits_; // as they were seen last
    mutable std::mutex mutex_;                            // of what follows
    std::condition_variable changed_;
    bool begins_ = false, stops_ = false;
    std::optional<error> failure_;
    bool is_told_ = false; // to the other processes
    std::thread thread_;
};

} // namespace dcuda
