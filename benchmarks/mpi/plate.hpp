// SPDX-License-Identifier: BSD-3-Clause
// A plate whose points become the mean of their four neighbours, step by step (Jacobi). Each process has a square part
// of it on its device.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>

#include "common/device_memory.hpp"
#include "dcuda/host.hpp"

namespace benchmark {

enum edge : int { above, below, left, right };
inline constexpr int edges = 4;
DCUDA_HOST_DEVICE constexpr edge opposite(edge of) { return static_cast<edge>(of ^ 1); }

// How the processes' parts lie in the plate: process 0 at the top left, then along rows.
struct decomposition {
    int across, down;

    // -1: there the plate ends.
    int neighbour(int process, edge beside) const;
};

// A part, as kernels see it. Steps read the arrays of their parity, and write the others.
struct part_of_plate {
    int points;                 // along each side
    long long first_x, first_y; // in the plate
    double* values[2];
    double* borders[2]; // by parity: what has come over each edge, then what goes over it

    DCUDA_HOST_DEVICE std::size_t length() const { return static_cast<std::size_t>(points); }
    DCUDA_HOST_DEVICE double* in(int parity, int over) const {
        return borders[parity] + static_cast<std::size_t>(over) * length();
    }
    DCUDA_HOST_DEVICE double* out(int parity, int over) const { return in(parity, edges + over); }
};

// When to stop: after so many steps, or when no point changes by more. The change is looked at now and then.
struct stop_rule {
    int steps;
    double change = 1e-5;
    static constexpr int interval = 100;

    DCUDA_HOST_DEVICE bool looks_after(int step) const { return (step + 1) % interval == 0; }
};

struct outcome {
    int steps = 0;
    double microseconds = 0; // of all steps
};

class plate {
public:
    plate(const decomposition& parts, int process, int points);

    static std::size_t border_bytes(int points) {
        return 2 * 2 * edges * static_cast<std::size_t>(points) * sizeof(double);
    }
    // The plate at the beginning, with borders in this memory.
    void begin(double* borders);
    const part_of_plate& part() const { return part_; }

    // A step in the stream. `looks`: the largest change is asked for.
    void step(int number, bool looks, cudaStream_t stream);
    // Of the last step, when it is done.
    double change(cudaStream_t stream) const;
    // All steps, by ranks that exchange borders. Collective.
    outcome run_by_ranks(dcuda::runtime& runtime, const stop_rule& until, int ranks);

    // Of all bits of this process's part after so many steps. The sum of those of all processes tells the whole plate.
    std::uint64_t checksum(int steps) const;

private:
    decomposition parts_;
    int process_;
    part_of_plate part_{};
    std::array<device_array<double>, 2> values_;
    device_array<unsigned long long> change_;
};

} // namespace benchmark
