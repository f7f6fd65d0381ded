// SPDX-License-Identifier: BSD-3-Clause
// The host's part of a running kernel: serves the ranks' commands and the control plane, and ends the run if it has to.
#pragma once

#include "bootstrap/control.hpp"
#include "dcuda/error.hpp"
#include "device/device_access.hpp"
#include "device/device_state.hpp"
#include "network/network_path.hpp"
#include "runtime/device_log.hpp"
#include "runtime/live_view.hpp"
#include "runtime/signals.hpp"
#include "runtime/watchdog.hpp"
#include "runtime/window_exchange.hpp"
#include "trace/profiler.hpp"

#include <array>
#include <chrono>
#include <optional>
#include <vector>

namespace dcuda {

// For one run. Used by one thread.
class progress {
public:
    // `network`: null if all processes map each other's memory. `live`: null if nobody may watch.
    progress(bootstrap::control& control, device_state& state, device_access& link, network_path* network,
             live_view* live, profiler& profiler, signal_requests& signals, const settings& chosen);

    // Serves the ranks' commands and the network. True if there was something.
    bool poll();

    // What can wait a little: the control plane, the watchdog, signals and who watches. After poll(). True if there was
    // something.
    bool poll_rest();

    // Ends the run on all processes because of an error here. The first error counts.
    void fail(const error& cause);

    // Why the run ended early, if it did. Once set, ranks are leaving the kernel.
    const std::optional<error>& failure() const { return failure_; }
    std::chrono::steady_clock::time_point failed_at() const { return failed_at_; }

    // After the kernel, without a failure: lets the network work until all processes are here and nothing is under way.
    void end_network();

    // After the kernel: takes the last commands, and after a failure waits for the other processes' view of it.
    void finish();

    const std::vector<double>& timings() const { return timings_; }

    // After finish(): which of this process's ranks ended with notifications that they had not waited for. Empty if
    // none.
    std::string describe_unconsumed() const;

private:
    static constexpr std::size_t payload_words =
        detail::first_ring_bytes / 4 + detail::commands_for(detail::max_packet_bytes) * detail::command_words;

    bool serve_commands();
    bool take_words(std::uint32_t number, std::uint32_t* words) const;
    bool take_command(std::uint32_t number, detail::command& taken) const;
    void serve_last_words();
    bool serve_network();
    bool serve_events();
    error found_by_checker() const;
    void serve_watchers();
    void serve_signals();
    std::string describe_own_waits(const std::string& before);
    std::optional<sent_messages> count_sent();
    void serve(const detail::command& cmd, const std::byte* payload);
    void serve(const bootstrap::event& happened);
    void report_deadlock(const std::vector<bootstrap::blob>& waits_by_process);
    void report_lost(const std::string& who);
    void end_run(const error& cause);

    bootstrap::control& control_;
    device_state& state_;
    device_access& link_;
    device_log log_;
    network_path* network_;
    live_view* live_;
    profiler& profiler_;
    signal_requests& signals_;
    window_exchange windows_;
    watchdog watchdog_;
    std::uint32_t taken_;    // commands
    std::uint32_t reported_; // of these, told to the ranks
    std::uint64_t timer_start_ns_ = 0;
    std::vector<double> timings_;  // ms
    detail::command unconsumed_{}; // of the first rank that ended so
    std::uint32_t ranks_with_unconsumed_ = 0;
    std::optional<error> failure_;
    std::optional<error> network_failure_; // a process does not answer there; the control plane may say more,
    std::chrono::steady_clock::time_point network_deadline_; // up to here
    std::array<std::uint32_t, payload_words> payload_;       // that came in packets, of the command being served
    bool network_ended_ = false;
    bool failure_is_agreed_ = false; // it came from the control plane, so all processes have the same
    std::chrono::steady_clock::time_point failed_at_{};
};

} // namespace dcuda
