// SPDX-License-Identifier: BSD-3-Clause
// What every case study does around its own work.
#pragma once

#include <algorithm>
#include <cstdio>
#include <exception>
#include <new>
#include <stdexcept>

#include "common/agreed_error.hpp"
#include "common/command_line.hpp"
#include "common/device_buffer.hpp"
#include "dcuda/dcuda.hpp"

namespace common {

inline constexpr const char* backend = DCUDA_BACKEND_CUDA ? "cuda" : "cpu";
inline constexpr int default_threads = DCUDA_BACKEND_CUDA ? 256 : 8;

// The job that a program is part of.
struct session {
    dcuda::runtime& runtime;
    dcuda::rank_info job;
    bool asked_for_ranks; // by an option of the runtime, not the program's

    bool first() const { return job.process_index == 0; }
    // Of this process's device.
    int multiprocessors() const { return common::multiprocessors(); }
    // Before the host makes what is larger than any memory here.
    void require_device_memory(double bytes) const {
        std::size_t free = 0, all = 0;
        check(cudaMemGetInfo(&free, &all), "asking for the device's memory");
        if (bytes > static_cast<double>(all))
            throw std::runtime_error("the device's memory does not hold this: use smaller sizes, or more devices");
    }
    // Of its L2 cache.
    std::size_t cache_bytes() const {
        int device = 0;
        cudaDeviceProp properties;
        check(cudaGetDevice(&device), "asking for the device");
        check(cudaGetDeviceProperties(&properties, device), "asking for the cache's size");
        return static_cast<std::size_t>(properties.l2CacheSize);
    }
};

__global__ void meet(dcuda::context) {}

// main: connects the processes, reads the options and calls work(session, options), which returns the exit status.
template <class Options, class Work>
int run_program(const char* name, int argc, char** argv, arguments::command_line<Options> (*parse)(int, char**),
                const Work& work) {
    try {
        if (arguments::asks_for_help(argc, argv)) {
            std::fputs(parse(argc, argv).text.c_str(), stdout);
            return 0;
        }
        const bool asked_for_ranks = arguments::asks_runtime_for_ranks(argc, argv);
        // Reading the counters of energy takes some milliseconds before and after a run.
        dcuda::runtime runtime(argc, argv, {.measure_energy = arguments::asks_for_json(argc, argv)});
        session here{runtime, runtime.info(), asked_for_ranks};
        const arguments::command_line<Options> command = parse(argc, argv);
        if (!command.chosen) {
            if (here.first()) std::fputs(command.text.c_str(), stderr);
            return command.status;
        }
        try {
            return work(here, *command.chosen);
        } catch (const agreed_error& reason) {
            // Process 0 tells the reason and leaves. It never comes to what the others wait for, by which the launcher
            // knows whose end is the cause of theirs.
            if (here.first()) {
                std::fprintf(stderr, "%s: %s\n", name, reason.what());
                return 1;
            }
            try {
                runtime.plan(meet, {dim3(32), 0, 1});
            } catch (const dcuda::error&) {
            }
            return 1;
        }
    } catch (const std::bad_alloc&) {
        std::fprintf(stderr, "%s: the host's memory does not hold this: use smaller sizes\n", name);
    } catch (const std::length_error&) {
        std::fprintf(stderr, "%s: no memory can hold this: use smaller sizes\n", name);
    } catch (const std::exception& reason) {
        std::fprintf(stderr, "%s: %s\n", name, reason.what());
    }
    return 1;
}

// How many ranks per device: as asked, else all that fit together, but no more than `most`.
template <class... Params>
int choose_ranks(session& here, void (*kernel)(dcuda::context, Params...), const dcuda::launch_config& config,
                 int most) {
    const int planned = here.runtime.plan(kernel, config).rank_responsible;
    const bool asked = config.ranks_per_device > 0 || here.asked_for_ranks;
    return asked ? planned : std::min(planned, std::max(1, most));
}

} // namespace common
