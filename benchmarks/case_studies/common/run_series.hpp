// SPDX-License-Identifier: BSD-3-Clause
// The runs of a program, of which one goes on: from this its lines of progress say how long all of them still take.
#pragma once

#include <cmath>

#include "dcuda/config.hpp"

namespace common {

struct run_series {
    int count = 1;
    double report_seconds = 0.0; // between two lines; 0: none
    int current = 1;
    double seconds_before = 0.0;     // that the runs before the current one took together
    double seconds_since_line = 0.0; // of these, after the last line that was due

    // The current run took so many seconds, and the next one is about to begin.
    void next(double seconds) {
        ++current;
        seconds_before += seconds;
        if (report_seconds > 0.0) seconds_since_line = std::fmod(seconds_before, report_seconds);
    }

    // From now, when `done` of the current run's `steps` have taken so many seconds, to the end of the last run. Runs
    // that have ended tell it best: they may have needed fewer steps, and what surrounds the steps is in their time.
    DCUDA_HOST_DEVICE double seconds_left(double seconds, int done, int steps) const {
        const double of_run = current > 1 ? seconds_before / (current - 1) : seconds * steps / done;
        const double of_current = of_run > seconds ? of_run - seconds : 0.0;
        return of_current + of_run * (count - current);
    }
};

} // namespace common
