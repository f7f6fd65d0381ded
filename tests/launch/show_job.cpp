// SPDX-License-Identifier: BSD-3-Clause
// Prints what detect_job() finds, then meets the other processes of the job, if there are any.
#include "bootstrap/control.hpp"

#include <cstdio>
#include <exception>

int main() {
    try {
        const auto job = dcuda::bootstrap::detect_job();
        dcuda::bootstrap::control control(job, "show_job");
        const auto keys = control.allgather(job.key, "keys");
        bool same = true;
        for (const auto& key : keys) same = same && key == job.key;
        std::printf("%s %d/%d %d/%d %s\n", job.launcher.c_str(), job.index, job.count, job.local_index, job.local_count,
                    same ? "met" : "keys differ");
        return 0;
    } catch (const std::exception& problem) {
        std::fprintf(stderr, "show_job: %s\n", problem.what());
        return 1;
    }
}
