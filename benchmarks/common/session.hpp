// SPDX-License-Identifier: BSD-3-Clause
// What a benchmark gets to run with, and the host's part of what its kernels need.
#pragma once

#include <algorithm>
#include <chrono>
#include <cstddef>
#include <memory>
#include <stdexcept>
#include <string>
#include <sys/resource.h>
#include <utility>
#include <vector>

#include "common/device.hpp"
#include "common/device_memory.hpp"
#include "common/options.hpp"
#include "common/row.hpp"
#include "common/samples.hpp"
#include "dcuda/host.hpp"

namespace benchmark {

// How many cores this process keeps busy, since then.
class busy_host {
public:
    double cores() const {
        const std::chrono::duration<double> elapsed = std::chrono::steady_clock::now() - start_;
        return (cpu_seconds() - used_) / std::max(1e-9, elapsed.count());
    }

private:
    static double cpu_seconds() {
        rusage used{};
        getrusage(RUSAGE_SELF, &used);
        const auto seconds = [](const timeval& time) {
            return static_cast<double>(time.tv_sec) + 1e-6 * static_cast<double>(time.tv_usec);
        };
        return seconds(used.ru_utime) + seconds(used.ru_stime);
    }

    std::chrono::steady_clock::time_point start_ = std::chrono::steady_clock::now();
    double used_ = cpu_seconds();
};

inline constexpr const char* needs_two_processes = "takes two processes: dcuda-run -n 2 dcuda-bench";

struct session {
    dcuda::runtime& runtime;
    const options& chosen;
    dcuda::rank_info job;
    int multiprocessors;
    std::vector<row> rows; // process 0's count

    // How ranks of another device are reached.
    std::string other_device() const { return runtime.network().empty() ? "peer" : "remote"; }
    bool first() const { return job.process_index == 0; }
    int rounds(int gpu, int cpu) const { return chosen.rounds > 0 ? chosen.rounds : by_backend(gpu, cpu); }
    int batches(int gpu, int cpu) const { return chosen.batches > 0 ? chosen.batches : by_backend(gpu, cpu); }

    // A row without a value, for lack of a second process.
    void add_missing(row none) {
        none.missing = needs_two_processes;
        rows.push_back(std::move(none));
    }

    // Runs the kernel for this row, and notes what it costs the host if the network is part of it.
    template <class... Parameters, class... Arguments>
    void run(row& entry, void (*kernel)(dcuda::context, Parameters...), const dcuda::launch_config& config,
             Arguments&&... arguments) {
        const busy_host host;
        runtime.run(kernel, config, std::forward<Arguments>(arguments)...);
        if (!runtime.network().empty() && entry.path != "same device") entry.host_cores = host.cores();
    }
};

// The subcommands. Collective over the processes.
void measure_latency(session& suite);
void measure_bandwidth(session& suite);
void measure_barrier(session& suite);
void measure_collectives(session& suite);
void measure_flush(session& suite);
void measure_one_sided(session& suite);
void measure_partners(session& suite);
void measure_overlap(session& suite);
void measure_host(session& suite);
void measure_waiters(session& suite);
void measure_warps(session& suite);
void measure_messages(session& suite);
void measure_stream(session& suite);
void measure_trace(session& suite);

// Throws if data was wrong.
inline void require_right(const mistake& wrong, const row& where) {
    if (wrong.count == 0) return;
    throw std::runtime_error(where.benchmark + ", " + where.path + ", " + where.operation + ", " +
                             std::to_string(where.bytes) + " B, " + std::to_string(where.threads) + " threads, " +
                             std::to_string(where.ranks) + " ranks: " + std::to_string(wrong.count) +
                             " words were wrong; the first, word " + std::to_string(wrong.word) + " in round " +
                             std::to_string(wrong.round) + " of batch " + std::to_string(wrong.batch) + ", was " +
                             std::to_string(wrong.seen) + " instead of " + std::to_string(wrong.expected));
}

// --- Memory ----------------------------------------------------------------------------------------------------------

template <class Element>
std::vector<Element> download(const Element* source, std::size_t count) {
    std::vector<Element> result(count);
    check(cudaMemcpy(result.data(), source, count * sizeof(Element), cudaMemcpyDeviceToHost), "cannot copy results");
    return result;
}

// Where a kernel leaves what it measured.
class results {
public:
    results(int batches, int ranks)
        : batches_(static_cast<std::size_t>(batches)), ranks_(static_cast<std::size_t>(ranks)),
          stamps_(allocate<interval>(batches_ * ranks_)), wrong_(allocate<mistake>(1)) {}

    interval* stamps() const { return stamps_.get(); } // [batch][rank]
    mistake* wrong() const { return wrong_.get(); }

    // Of each batch.
    std::vector<double> microseconds() const {
        return microseconds_of_batches(download(stamps_.get(), batches_ * ranks_), ranks_);
    }
    void require_right(const row& where) const { benchmark::require_right(download(wrong_.get(), 1)[0], where); }

private:
    std::size_t batches_, ranks_;
    device_array<interval> stamps_;
    device_array<mistake> wrong_;
};

inline dcuda::launch_config shape(int threads, int ranks) {
    dcuda::launch_config config;
    config.profiled = false; // but for what tracing itself costs
    config.threads = dim3(static_cast<unsigned>(threads));
    config.ranks_per_device = ranks;
    return config;
}

// Memory of processes 0 and 1 as each sees that of the other one, for stores without the library. Other processes see
// that of process 0.
class neighbour_memory {
public:
    // Collective over all processes, at least two; so is the destructor. At least `bytes` bytes.
    neighbour_memory(dcuda::runtime& runtime, std::size_t bytes);
    ~neighbour_memory();
    neighbour_memory(const neighbour_memory&) = delete;
    neighbour_memory& operator=(const neighbour_memory&) = delete;

    unsigned char* own() const { return mine_.get(); }
    unsigned char* theirs() const { return static_cast<unsigned char*>(theirs_); }

private:
    dcuda::runtime& runtime_;
    device_array<unsigned char> mine_;
    void* theirs_ = nullptr;
};

} // namespace benchmark
