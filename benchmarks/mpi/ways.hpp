// SPDX-License-Identifier: BSD-3-Clause
// The ways that are compared: who brings messages from device to device, and where they lie.
#pragma once

#include <array>
#include <cstddef>
#include <memory>
#include <span>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

#include "case_studies/common/models/streams.hpp"
#include "common/models/carrier.hpp"
#include "common/row.hpp"
#include "dcuda/host.hpp"
#include "mpi/options.hpp"

namespace benchmark {

enum class message_memory { host, device };

struct way {
    const char* name;    // on the command line
    const char* title;   // in tables
    const char* carrier; // its name; "": ranks, without a carrier
    message_memory memory = message_memory::device;

    bool is_by_ranks() const { return *carrier == '\0'; }
};
inline constexpr std::array<way, 8> all_ways{{
    {"mpi-host", "MPI, host memory", "mpi-host", message_memory::host},
    {"mpi-staged", "MPI, staged", "mpi-staged"},
    {"mpi-pipeline", "MPI, staged in pieces", "mpi-pipeline"},
    {"mpi-device", "MPI, device memory", "mpi-device"},
    {"dcuda-host", "dCUDA, host", "host"},
    {"dcuda-stream", "dCUDA, streams", "stream"},
    {"dcuda-ranks", "dCUDA, ranks", ""},
    {"nccl", "NCCL", "nccl"},
}};

// There is no such way here, and why. All processes get it.
class no_way : public std::runtime_error {
    using std::runtime_error::runtime_error;
};

// What all measurements have, and where they leave their results.
struct comparison {
    dcuda::runtime& runtime;
    common::processes& all;
    const mpi_options& chosen;
    int multiprocessors;
    std::vector<row> rows;                                      // process 0's count
    std::vector<std::pair<std::string, std::string>> checksums; // of plates, by decomposition

    bool first() const { return all.index() == 0; }
    std::string path() const { return runtime.network().empty() ? "peer" : "remote"; }
    std::vector<way> ways() const;
    row row_of(const way& one, const std::string& measurement, std::size_t bytes, int ranks = 0) const {
        return {"mpi", path(), measurement + ", " + one.title, bytes, 0, ranks};
    }
};

// A way between processes that the host calls, with the memory that messages come from and go into, which is cleared.
class line {
public:
    // Collective. Throws no_way.
    line(comparison& of, const way& chosen, std::size_t bytes, const std::vector<common::route>& routes);

    std::byte* memory() const { return memory_.get(); }
    cudaStream_t stream() const { return stream_.get(); }
    std::string library() const;

    void bring(std::span<const common::message> messages) { carrier_->bring(messages, stream()); }
    void meet() {
        carrier_->meet(stream());
        finish();
    }
    // What the stream has brought is there.
    void finish() const { stream_.wait_on_host(); }

private:
    struct release {
        message_memory memory;
        void operator()(std::byte* area) const;
    };

    const way way_;
    std::unique_ptr<std::byte[], release> memory_;
    common::stream stream_{common::stream::priority::low};
    std::unique_ptr<common::carrier> carrier_;
};

// Latency and bandwidth between two processes.
void measure_messages(comparison& of);
// The ranks' part: microseconds of each batch. `source` and `landing` are device memory of window * bytes.
struct traffic {
    std::size_t bytes;
    int window, rounds, batches; // a window of 0: messages there and back in turn
    const std::byte* source;
    std::byte* landing;
};
std::vector<double> time_messages_of_ranks(comparison& of, const traffic& load, int ranks);

// A solver on a plate that all processes have parts of. Throws if the ways differ in their results.
void measure_jacobi(comparison& of);

} // namespace benchmark
