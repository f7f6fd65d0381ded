// SPDX-License-Identifier: BSD-3-Clause
// Lesson 8: particles that repel each other when they are close, as in docs/guide/particles.md. A rank has a segment of
// the domain, as high as the force reaches. It shows its particles to its neighbours, and gives them those that leave:
// the size of messages changes from step to step. benchmarks/case_studies/particles is the same program, tuned.
//
//     dcuda-run -n 2 ./08_particles
#include <dcuda/dcuda.hpp>

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdio>
#include <vector>

constexpr int capacity = 64, start_count = 20; // particles of a segment: room, and at the start
constexpr int steps = 60;
constexpr double width = 4;        // of the domain in x; a segment is 1 high
constexpr double time_step = 0.01; // the mass is 1, and so is the force at distance 0
constexpr double tolerance = 1e-6; // sums are made in another order, and motion makes differences larger

struct particle {
    double at[2], velocity[2], force[2];
    int number;
};

// --- Motion, for ranks and for the host ------------------------------------------------------------------------------

__host__ __device__ void add_force(particle& p, const particle& other) {
    const double dx = p.at[0] - other.at[0], dy = p.at[1] - other.at[1], distance = std::sqrt(dx * dx + dy * dy);
    if (distance == 0 || distance >= 1) return;
    p.force[0] += (1 - distance) / distance * dx;
    p.force[1] += (1 - distance) / distance * dy;
}

// One step; walls reflect.
__host__ __device__ void move(particle& p, double height) {
    for (int axis = 0; axis < 2; ++axis) {
        const double wall = axis == 0 ? width : height;
        p.velocity[axis] += time_step * p.force[axis];
        p.at[axis] += time_step * p.velocity[axis];
        p.force[axis] = 0;
        if (p.at[axis] >= 0 && p.at[axis] <= wall) continue;
        p.at[axis] = p.at[axis] < 0 ? -p.at[axis] : 2 * wall - p.at[axis];
        p.velocity[axis] = -p.velocity[axis];
    }
}

// --- The kernel ------------------------------------------------------------------------------------------------------

struct list {
    int count;
    particle items[capacity];

    __host__ __device__ void add(const particle& p) {
        if (count < capacity) items[count++] = p; // else it is missed at the end
    }
};

// A rank's memory, which is its window. [0] is of the segment before, [1] of the segment after; a list of a segment
// that does not exist stays empty.
struct segment {
    list own, shown, leaving[2], seen[2], arrived[2];
};

enum tag : int { particles_seen = 0, particles_arrived = 2 }; // plus 0: from the segment before, plus 1: after

__global__ void simulate(dcuda::context context, segment* segments) {
    __shared__ dcuda::state state;
    dcuda::rank self(context, state);
    segment& here = segments[self.id(dcuda::device)];
    const dcuda::window window = self.create_window(dcuda::world, &here, sizeof here);
    const int neighbours[2] = {self.id() - 1, self.id() + 1};
    const bool exists[2] = {neighbours[0] >= 0, neighbours[1] < self.size()};

    // Puts a list to each neighbour, whose `lists` begin there in its segment, and waits for theirs.
    const auto exchange = [&](const list& for_before, const list& for_after, std::size_t lists, int tag) {
        for (int side = 0; side < 2; ++side) {
            const list& sent = side == 0 ? for_before : for_after;
            const int own_side = 1 - side; // this rank, as the neighbour sees it
            if (exists[side])
                self.put_notify(window, neighbours[side], lists + own_side * sizeof(list),
                                offsetof(list, items) + sent.count * sizeof(particle), &sent, tag + own_side);
        }
        for (int side = 0; side < 2; ++side) self.wait_notifications(tag + side, exists[side] ? 1 : 0);
    };

    // A list is overwritten, by its rank or by a neighbour, only after the other one has sent what it made of it.
    for (int step = 0; step < steps; ++step) {
        if (threadIdx.x == 0) here.shown = here.own;
        __syncthreads();
        exchange(here.shown, here.shown, offsetof(segment, seen), particles_seen);

        const int i = static_cast<int>(threadIdx.x); // each thread has a particle
        if (i < here.own.count) {
            for (const list* others : {&here.shown, &here.seen[0], &here.seen[1]})
                for (int j = 0; j < others->count; ++j) add_force(here.own.items[i], others->items[j]);
            move(here.own.items[i], self.size());
        }
        __syncthreads();

        if (threadIdx.x == 0) {
            const int count = here.own.count;
            here.own.count = here.leaving[0].count = here.leaving[1].count = 0;
            for (int j = 0; j < count; ++j) {
                const particle p = here.own.items[j];
                const bool before = exists[0] && p.at[1] < self.id(), after = exists[1] && p.at[1] >= self.id() + 1;
                (before ? here.leaving[0] : after ? here.leaving[1] : here.own).add(p);
            }
        }
        __syncthreads();
        exchange(here.leaving[0], here.leaving[1], offsetof(segment, arrived), particles_arrived);
        if (threadIdx.x == 0)
            for (const list& others : here.arrived)
                for (int j = 0; j < others.count; ++j) here.own.add(others.items[j]);
    }
    self.free_window(window);
}

// --- The host --------------------------------------------------------------------------------------------------------

particle start_of(int number) {
    const auto part = [&](int factor) { return number * factor % 101 / 101.0; }; // as good as random
    const double x = number % 10 + part(37), y = number / 10 + part(53);         // two rows of ten in a segment
    return {{x * width / 10, y / 2}, {2 * part(71) - 1, 2 * part(29) - 1}, {0, 0}, number};
}

int main(int argc, char** argv) try {
    dcuda::runtime runtime(argc, argv);
    dcuda::launch_config config{.threads = capacity};
    dcuda::rank_info job = runtime.plan(simulate, config);
    config.ranks_per_device = std::min(job.rank_responsible, 16); // the host computes all pairs
    job = runtime.plan(simulate, config);

    std::vector<segment> segments(job.rank_responsible);
    for (int i = 0; i < job.rank_responsible * start_count; ++i)
        segments[i / start_count].own.add(start_of(job.rank_start * start_count + i));
    const std::size_t bytes = segments.size() * sizeof(segment);
    segment* memory = nullptr;
    if (cudaMalloc(&memory, bytes) != cudaSuccess)
        throw dcuda::error(dcuda::error_code::out_of_resources, "no device memory");
    cudaMemcpy(memory, segments.data(), bytes, cudaMemcpyHostToDevice);
    const double milliseconds = runtime.run(simulate, config, memory);
    cudaMemcpy(segments.data(), memory, bytes, cudaMemcpyDeviceToHost);
    cudaFree(memory);

    // All particles on the host; then each of them is looked for in its segment.
    std::vector<particle> expected;
    for (int i = 0; i < job.rank_count * start_count; ++i) expected.push_back(start_of(i));
    for (int step = 0; step < steps; ++step) {
        const std::vector<particle> before = expected;
        for (particle& p : expected) {
            for (const particle& other : before) add_force(p, other);
            move(p, job.rank_count);
        }
    }
    int wrong = 0;
    for (const particle& p : expected) {
        const int rank = std::min(static_cast<int>(p.at[1]), job.rank_count - 1) - job.rank_start;
        if (rank < 0 || rank >= job.rank_responsible) continue; // another process's
        const list& own = segments[rank].own;
        const auto matches = [&](const particle& found) {
            return found.number == p.number && std::abs(found.at[0] - p.at[0]) <= tolerance &&
                   std::abs(found.at[1] - p.at[1]) <= tolerance;
        };
        if (std::none_of(own.items, own.items + own.count, matches)) ++wrong;
    }
    if (wrong != 0) {
        std::fprintf(stderr, "08_particles: %d particles of process %d are wrong or lost\n", wrong, job.process_index);
        return 1;
    }
    if (job.process_index == 0)
        std::printf("%zu particles on %d ranks, %d steps in %.3f ms: correct\n", expected.size(), job.rank_count, steps,
                    milliseconds);
    return 0;
} catch (const dcuda::error& problem) {
    std::fprintf(stderr, "08_particles: %s\n", problem.what());
    return 1;
}
