// SPDX-License-Identifier: BSD-3-Clause
// Lesson 15: a work queue. Ranks of all devices draw tasks from one counter until there are none left, so nobody need
// know before how long a task takes, and count what they find in a histogram that is spread over all ranks. The tasks:
// how many steps do numbers take to 1, if odd ones become 3 n + 1 and even ones a half?
//
//     dcuda-run -n 2 ./15_work_queue
#include <dcuda/dcuda.hpp>

#include <cstdio>
#include <vector>

constexpr unsigned numbers_of_task = 256, tasks = 500, bins = 40, steps_of_bin = 10;

DCUDA_HOST_DEVICE unsigned bin_of(unsigned long long number) {
    unsigned steps = 0;
    for (; number != 1; ++steps) number = number % 2 != 0 ? 3 * number + 1 : number / 2;
    return steps / steps_of_bin < bins ? steps / steps_of_bin : bins - 1;
}

// `memory` of each rank: the counter, of which only rank 0's is used, and its part of the histogram. `whole`: of each
// device; the device with rank 0 gets the histogram there.
__global__ void draw_tasks(dcuda::context context, unsigned* memory, unsigned* whole) {
    __shared__ dcuda::state state;
    __shared__ unsigned found[bins];
    dcuda::rank self(context, state);
    const unsigned ranks = static_cast<unsigned>(self.size());
    unsigned* const own = memory + (1 + bins) * self.id(dcuda::device);
    const auto queue = self.create_typed_window(dcuda::world, own, 1);
    const auto histogram = self.create_typed_window(dcuda::world, own + 1, bins);

    // Bin b is number b / ranks of the rank b % ranks.
    unsigned drawn = 0;
    for (unsigned task; (task = self.fetch_add(queue, 0, 0, 1u)) < tasks; ++drawn) {
        for (unsigned bin = self.thread(); bin < bins; bin += self.threads()) found[bin] = 0;
        self.sync();
        for (unsigned i = self.thread(); i < numbers_of_task; i += self.threads())
            atomicAdd(&found[bin_of(task * numbers_of_task + i + 1ull)], 1u);
        self.sync();
        for (unsigned bin = 0; bin < bins; ++bin)
            if (found[bin] != 0) self.add(histogram, static_cast<int>(bin % ranks), bin / ranks, found[bin]);
        self.sync();
    }
    self.log() << "rank " << self.id() << " has done " << drawn << " tasks";

    self.flush(histogram);      // what this rank has added is there
    self.barrier(dcuda::world); // and what the others have
    if (self.id() == 0) {
        for (unsigned bin = 0; bin < bins; ++bin)
            self.get(histogram, static_cast<int>(bin % ranks), bin / ranks, 1, whole + bin);
        self.flush(histogram);
    }
    self.free_window(histogram);
    self.free_window(queue);
}

int main(int argc, char** argv) try {
    dcuda::runtime runtime(argc, argv);
    const dcuda::launch_config config{.threads = 64};
    const dcuda::rank_info info = runtime.plan(draw_tasks, config);

    const std::size_t count = std::size_t(1 + bins) * static_cast<std::size_t>(info.rank_responsible);
    unsigned* memory = nullptr;
    if (cudaMalloc(&memory, (count + bins) * sizeof(unsigned)) != cudaSuccess ||
        cudaMemset(memory, 0, (count + bins) * sizeof(unsigned)) != cudaSuccess)
        throw dcuda::error(dcuda::error_code::out_of_resources, "no device memory");
    const double milliseconds = runtime.run(draw_tasks, config, memory, memory + count);
    std::vector<unsigned> whole(bins);
    if (cudaMemcpy(whole.data(), memory + count, bins * sizeof(unsigned), cudaMemcpyDeviceToHost) != cudaSuccess)
        throw dcuda::error(dcuda::error_code::device_fault, "the histogram cannot be read");
    cudaFree(memory);
    if (info.process_index != 0) return 0;

    std::vector<unsigned> expected(bins);
    for (unsigned number = 1; number <= tasks * numbers_of_task; ++number) ++expected[bin_of(number)];
    const bool is_right = whole == expected;
    std::printf("%s: %u numbers by %d ranks, %.3f ms\n", is_right ? "right" : "WRONG", tasks * numbers_of_task,
                info.rank_count, milliseconds);
    return is_right ? 0 : 1;
} catch (const dcuda::error& problem) {
    std::fprintf(stderr, "15_work_queue: %s\n", problem.what());
    return 1;
}
