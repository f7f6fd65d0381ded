// The host's part of a running kernel: serves the ranks' commands and the control plane, and ends the run if it has to.
#pragma once

#include "bootstrap/control.hpp"
#include "dcuda/error.hpp"
#include "runtime/device_link.hpp"
#include "runtime/device_log.hpp"
#include "runtime/device_state.hpp"
#include "runtime/watchdog.hpp"
#include "runtime/window_host.hpp"

#include <chrono>
#include <optional>
#include <vector>

namespace dcuda {

// For one run. Used by one thread.
class progress {
public:
    progress(bootstrap::control& control, device_state& state, device_link& link, const settings& with);

    // Does what there is to do. True if there was something.
    bool poll();

    // Ends the run on all processes because of an error here. The first error counts.
    void fail(const error& cause);

    // Why the run ended early, if it did. Once set, ranks are leaving the kernel.
    const std::optional<error>& failure() const { return failure_; }
    std::chrono::steady_clock::time_point failed_at() const { return failed_at_; }

    // After the kernel: takes the last commands, and after a failure waits for the other processes' view of it.
    void finish();

    const std::vector<double>& timings() const { return timings_; }

private:
    bool serve_commands();
    bool serve_events();
    void serve(const detail::command& cmd);
    void serve(const bootstrap::event& what);
    void report_deadlock(const std::vector<bootstrap::blob>& waits_by_process);
    void end_run(const error& cause);

    bootstrap::control& control_;
    device_state& state_;
    device_link& link_;
    device_log log_;
    window_host windows_;
    watchdog watchdog_;
    std::uint32_t taken_ = 0;    // commands
    std::uint32_t reported_ = 0; // of these, told to the ranks
    std::uint64_t timer_start_ns_ = 0;
    std::vector<double> timings_; // ms
    std::optional<error> failure_;
    bool failure_is_agreed_ = false; // it came from the control plane, so all processes have the same
    std::chrono::steady_clock::time_point failed_at_{};
};

} // namespace dcuda
