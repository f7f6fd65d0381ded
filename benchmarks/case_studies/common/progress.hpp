// SPDX-License-Identifier: BSD-3-Clause
// World rank 0 tells now and then how far a kernel is.
#pragma once

#if DCUDA_BACKEND_CUDA
#include <cuda/std/chrono>
#else
#include <chrono>
#endif

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
    // `what` is counted up to `total`, such as "stencil: iteration". 0 seconds between two lines: none.
    DCUDA_DEVICE progress(dcuda::rank& self, const char* what, int total, double seconds)
        : self_(self), what_(what), total_(total), seconds_(seconds),
          reports_(seconds > 0.0 && self.id() == 0 && threadIdx.x == 0 && threadIdx.y == 0) {
        if (reports_) last() = seconds_now();
    }

    DCUDA_DEVICE void done(int count) {
        if (!reports_ || count == total_) return;
        const double now = seconds_now();
        if (now - last() < seconds_) return;
        last() = now;
        const auto percent = static_cast<int>(100LL * count / total_);
        self_.log() << what_ << ' ' << count << " of " << total_ << " (" << percent << " %)";
    }

private:
    // When the last line came. PERF: takes no registers of all threads.
    static DCUDA_DEVICE double& last() {
        __shared__ double result;
        return result;
    }

    dcuda::rank& self_;
    const char* what_;
    int total_;
    double seconds_;
    bool reports_;
};

} // namespace common
