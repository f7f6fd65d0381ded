// SPDX-License-Identifier: BSD-3-Clause
// World rank 0 tells now and then how far a program is, from inside its kernel.
#pragma once

#if DCUDA_BACKEND_CUDA
#include <cuda/std/chrono>
#else
#include <chrono>
#endif

#include "common/run_series.hpp"
#include "dcuda/device.hpp"

namespace common {

DCUDA_DEVICE double seconds_now() {
#if DCUDA_BACKEND_CUDA
    using namespace cuda::std::chrono;
    return duration<double>(system_clock::now().time_since_epoch()).count();
#else
    using namespace std::chrono;
    return duration<double>(steady_clock::now().time_since_epoch()).count();
#endif
}

class progress {
public:
    // Of a run of so many steps, such as iterations: `step` is the word for one.
    DCUDA_DEVICE progress(dcuda::rank& self, const char* program, const char* step, int steps, const run_series& runs)
        : self_(self), program_(program), step_(step), steps_(steps), runs_(runs),
          reports_(runs.report_seconds > 0.0 && self.id() == 0 && threadIdx.x == 0 && threadIdx.y == 0) {
        if (!reports_) return;
        const double now = seconds_now();
        times().begin = now;
        times().last_line = now - runs.seconds_since_line; // so that many short runs have lines, too
    }

    DCUDA_DEVICE void done(int count) {
        if (!reports_ || (count == steps_ && runs_.current == runs_.count)) return;
        const double now = seconds_now();
        if (now - times().last_line < runs_.report_seconds) return;
        times().last_line = now;
        const double left = runs_.seconds_left(now - times().begin, count, steps_);
        const bool in_minutes = left > 120.0;
        auto line = self_.log();
        line << program_ << ": ";
        if (runs_.count > 1) line << "run " << runs_.current << " of " << runs_.count << ", ";
        line << step_ << ' ' << count << " of " << steps_ << " (" << static_cast<int>(100LL * count / steps_)
             << " %), about " << 1 + static_cast<long long>(in_minutes ? left / 60.0 : left)
             << (in_minutes ? " min left" : " s left");
    }

private:
    struct moments {
        double begin, last_line;
    };
    // PERF: takes no registers of all threads.
    static DCUDA_DEVICE moments& times() {
        __shared__ moments result;
        return result;
    }

    dcuda::rank& self_;
    const char* program_;
    const char* step_;
    int steps_;
    run_series runs_;
    bool reports_;
};

} // namespace common
