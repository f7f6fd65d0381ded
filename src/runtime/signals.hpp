// SPDX-License-Identifier: BSD-3-Clause
// Signals to a process whose kernel runs: SIGINT and SIGTERM end the run, which keeps what was profiled; SIGQUIT asks
// what the ranks wait for.
#pragma once

#include <csignal>

namespace dcuda {

// For the life of a runtime. A signal for which the program has a handler of its own, or which it ignores, is left
// alone. Used by one thread; handlers may run in any.
class signal_requests {
public:
    signal_requests();
    ~signal_requests();
    signal_requests(const signal_requests&) = delete;
    signal_requests& operator=(const signal_requests&) = delete;

    // In its life SIGINT and SIGTERM wait to be taken. Before and after they do what they always do; and so does the
    // second of a kind: its sender does not want to wait for what the first one ends.
    class during_run {
    public:
        during_run();
        ~during_run();
        during_run(const during_run&) = delete;
        during_run& operator=(const during_run&) = delete;
    };

    // SIGINT or SIGTERM, if one has come in this run; else 0.
    int take_end();

    // Whether somebody has asked for a report since the last call.
    bool take_report();
};

} // namespace dcuda
