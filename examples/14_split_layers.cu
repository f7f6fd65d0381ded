// SPDX-License-Identifier: BSD-3-Clause
// Lesson 14: layers of a neural network that are split over devices, in one kernel, as in docs/guide/split_layers.md.
// In each layer a device has some rows of the first matrix and the same columns of the second, so what the devices get
// must be added up. Four warps of a block compute; a fifth, which is the block's rank, adds up what is finished with
// the ranks of the same number on the other devices, while the four compute the next part.
//
//     dcuda-run -n 2 ./14_split_layers
#include <dcuda/dcuda.hpp>

#include <algorithm>
#include <array>
#include <cmath>
#include <cstdio>
#include <cstring>
#include <vector>

constexpr int hidden = 128, inner = 256; // numbers of a token: between layers, and in a layer on each device
constexpr int layers = 3;
constexpr int groups = 4, group_tokens = 4, tokens = groups * group_tokens; // what is added up at a time
constexpr int warp_threads = 32, worker_warps = 4, workers = worker_warps * warp_threads;
constexpr float tolerance = 1e-4f; // of the largest number: the host adds up in another order

// Of each device. Numbers of the tokens of a group lie together, so that a rank's rows of a group do.
struct device_memory {
    const float* first;  // [layer][inner][hidden]: this device's rows
    const float* second; // [layer][hidden][inner]: this device's columns
    float* state;        // [group][hidden][token]: what goes into a layer, and comes out of it
    float* active;       // [group][inner][token]
    float *part, *sum;   // [group][hidden][token]: of this device, and of all
};

float weight_of(int layer, int matrix, int row, int column) {
    const unsigned hash = (layer * 2654435761u + matrix * 40503u) ^ (row * 2246822519u + column * 3266489917u);
    return (static_cast<float>((hash ^ hash >> 15) % 2001) - 1000) / (matrix == 0 ? 12000 : 18000);
}
float input_of(int row, int token) { return static_cast<float>((row * 7 + token * 13) % 17 - 8) / 8; }

// A row of a matrix times a column of numbers, which lie that far apart.
__device__ float product_of(const float* row, const float* column, int count, int distance) {
    float sum = 0;
    for (int k = 0; k < count; ++k) sum += row[k] * column[k * distance];
    return sum;
}

// --- The kernel ------------------------------------------------------------------------------------------------------

// What the two sides of a block tell each other: in shared memory, counted from the start.
struct progress {
    int finished[worker_warps]; // parts of the work, by each of these warps: one may be several parts ahead of another
    int allowed;                // steps that the rank has let the workers begin
};

// The side that computes. It returns early if the run ends.
__device__ void compute(dcuda::context context, const device_memory& all, progress& both) {
    const int rows = hidden / static_cast<int>(gridDim.x), inner_rows = inner / static_cast<int>(gridDim.x);
    const int first_row = rows * static_cast<int>(blockIdx.x), first_inner = inner_rows * static_cast<int>(blockIdx.x);
    // One thread of each warp tells and asks for all of them.
    const bool leads = threadIdx.x % warp_threads == 0;
    const auto tell = [&] {
        __syncwarp();
        __threadfence(); // the numbers before the count
        if (leads) atomicAdd(&both.finished[threadIdx.x / warp_threads], 1);
    };
    int steps = 0;
    const auto await_rank = [&] {
        ++steps;
        bool going = true;
        if (leads)
            while (going && atomicAdd(&both.allowed, 0) < steps) {
                __nanosleep(100);
                going = !dcuda::is_ending(context);
            }
        going = __shfl_sync(0xffffffffu, going ? 1 : 0, 0) != 0;
        __threadfence(); // the count before the numbers
        __syncwarp();
        return going;
    };
    // Calls function(row, token) for some rows and the tokens of a group: a place always by the same thread.
    const auto for_places = [&](int begin, int count, auto function) {
        for (int i = static_cast<int>(threadIdx.x); i < count * group_tokens; i += workers)
            function(begin + i / group_tokens, i % group_tokens);
    };
    for (int layer = 0; layer < layers; ++layer) {
        const float* const first = all.first + layer * inner * hidden;
        const float* const second = all.second + layer * inner * hidden;
        for (int group = 0; group < groups; ++group) {
            const float* const state = all.state + group * hidden * group_tokens;
            float* const active = all.active + group * inner * group_tokens;
            for_places(first_inner, inner_rows, [&](int row, int token) {
                const float value = product_of(first + row * hidden, state + token, hidden, group_tokens);
                active[row * group_tokens + token] = value > 0 ? value : 0;
            });
        }
        tell();
        if (!await_rank()) return; // until all blocks of the device have finished the first matrix
        for (int group = 0; group < groups; ++group) {
            const float* const active = all.active + group * inner * group_tokens;
            float* const part = all.part + group * hidden * group_tokens;
            for_places(first_row, rows, [&](int row, int token) {
                part[row * group_tokens + token] =
                    product_of(second + row * inner, active + token, inner, group_tokens);
            });
            tell(); // the rank adds it up with the other devices' meanwhile
        }
        for (int group = 0; group < groups; ++group) {
            if (!await_rank()) return; // until the group is added up
            float* const state = all.state + group * hidden * group_tokens;
            const float* const sum = all.sum + group * hidden * group_tokens;
            for_places(first_row, rows, [&](int row, int token) {
                state[row * group_tokens + token] += sum[row * group_tokens + token];
            });
        }
        tell();
        if (!await_rank()) return; // until all blocks of the device have their rows of the state
    }
}

// The side that communicates: one warp, which is the rank.
__device__ void communicate(dcuda::context context, dcuda::rank& self, const device_memory& all, progress& both) {
    const int rows = hidden / static_cast<int>(gridDim.x), first_row = rows * static_cast<int>(blockIdx.x);
    const dcuda::communicator column = self.split(dcuda::world, self.id(dcuda::device), self.id());
    int parts = 0;
    const auto await_workers = [&] {
        ++parts;
        for (int warp = 0; self.thread() == 0 && warp < worker_warps; ++warp)
            while (atomicAdd(&both.finished[warp], 0) < parts && !dcuda::is_ending(context)) __nanosleep(100);
        __threadfence(); // the count before the numbers
        self.sync();
    };
    const auto allow = [&] {
        __threadfence(); // the numbers before the count
        self.sync();
        if (self.thread() == 0) atomicAdd(&both.allowed, 1);
    };
    for (int layer = 0; layer < layers; ++layer) {
        await_workers();
        self.barrier(dcuda::device);
        allow();
        for (int group = 0; group < groups; ++group) {
            await_workers();
            const int begin = (group * hidden + first_row) * group_tokens;
            self.allreduce(column, all.sum + begin, all.part + begin, static_cast<std::size_t>(rows * group_tokens),
                           dcuda::sum{});
            allow();
        }
        await_workers();
        self.barrier(dcuda::device);
        allow();
    }
    self.free_communicator(column);
}

__global__ void __launch_bounds__(workers + warp_threads) run_layers(dcuda::context context, device_memory all) {
    __shared__ dcuda::state state;
    __shared__ progress both;
    if (threadIdx.x == 0) both = {};
    __syncthreads();
    if (threadIdx.x < workers) return compute(context, all, both);
    dcuda::rank self(context, state, dcuda::part{.first_thread = workers, .threads = warp_threads});
    communicate(context, self, all, both);
}

// --- The host --------------------------------------------------------------------------------------------------------

std::size_t place_of(int row, int token) {
    return (static_cast<std::size_t>(token / group_tokens) * hidden + row) * group_tokens + token % group_tokens;
}

std::vector<float> input() {
    std::vector<float> state(static_cast<std::size_t>(hidden) * tokens);
    for (int row = 0; row < hidden; ++row)
        for (int token = 0; token < tokens; ++token) state[place_of(row, token)] = input_of(row, token);
    return state;
}

// The same on the host, of so many devices.
std::vector<float> run_serially(int devices) {
    std::vector<float> state = input();
    const int all = inner * devices;
    for (int layer = 0; layer < layers; ++layer)
        for (int token = 0; token < tokens; ++token) {
            std::vector<double> active(static_cast<std::size_t>(all));
            for (int row = 0; row < all; ++row) {
                double value = 0;
                for (int k = 0; k < hidden; ++k)
                    value += weight_of(layer, 0, row, k) * double{state[place_of(k, token)]};
                active[static_cast<std::size_t>(row)] = std::max(value, 0.0);
            }
            for (int row = 0; row < hidden; ++row) {
                double sum = 0;
                for (int k = 0; k < all; ++k) sum += weight_of(layer, 1, row, k) * active[static_cast<std::size_t>(k)];
                state[place_of(row, token)] += static_cast<float>(sum);
            }
        }
    return state;
}

float* upload(const std::vector<float>& content) {
    float* memory = nullptr;
    const std::size_t bytes = content.size() * sizeof(float);
    if (cudaMalloc(&memory, bytes) != cudaSuccess ||
        cudaMemcpy(memory, content.data(), bytes, cudaMemcpyHostToDevice) != cudaSuccess)
        throw dcuda::error(dcuda::error_code::out_of_resources, "no device memory");
    return memory;
}

// A number for all bits of it.
std::uint64_t bits_of(const std::vector<float>& numbers) {
    std::uint64_t hash = 14695981039346656037u; // FNV-1a
    for (const float number : numbers) {
        std::uint32_t bits = 0;
        std::memcpy(&bits, &number, sizeof bits);
        hash = (hash ^ bits) * 1099511628211u;
    }
    return hash;
}

int main(int argc, char** argv) try {
    dcuda::runtime runtime(argc, argv);
    dcuda::launch_config config{.threads = workers + warp_threads};
    // Rows are divided among blocks: a power of two of them.
    const int most = std::min(runtime.plan(run_layers, config).rank_responsible, 32);
    for (config.ranks_per_device = 1; 2 * config.ranks_per_device <= most;) config.ranks_per_device *= 2;
    const dcuda::rank_info job = runtime.plan(run_layers, config);

    std::vector<float> first(static_cast<std::size_t>(layers) * inner * hidden), second(first.size());
    for (int layer = 0; layer < layers; ++layer)
        for (int i = 0; i < inner; ++i)
            for (int k = 0; k < hidden; ++k) {
                const int number = job.process_index * inner + i;
                first[(static_cast<std::size_t>(layer) * inner + i) * hidden + k] = weight_of(layer, 0, number, k);
                second[(static_cast<std::size_t>(layer) * hidden + k) * inner + i] = weight_of(layer, 1, k, number);
            }
    std::vector<float> state = input();
    const device_memory memory{upload(first), upload(second),
                               upload(state), upload(std::vector<float>(static_cast<std::size_t>(inner) * tokens)),
                               upload(state), upload(state)};
    const std::vector<float> expected = run_serially(job.process_count);
    const float largest = std::fabs(*std::max_element(expected.begin(), expected.end(),
                                                      [](float a, float b) { return std::fabs(a) < std::fabs(b); }));
    float error = 0;
    std::array<std::uint64_t, 2> bits{}; // of each run
    double ms = 0;
    for (std::uint64_t& each : bits) { // twice
        state = input();
        cudaMemcpy(memory.state, state.data(), state.size() * sizeof(float), cudaMemcpyHostToDevice);
        ms = runtime.run(run_layers, config, memory);
        cudaMemcpy(state.data(), memory.state, state.size() * sizeof(float), cudaMemcpyDeviceToHost);
        for (std::size_t i = 0; i < state.size(); ++i)
            error = std::max(error, std::fabs(state[i] - expected[i]) / largest);
        each = bits_of(state);
    }
    // Whether all devices have the same bits, in both runs: process 0 finds out, and tells the others.
    bool are_same = true;
    for (const std::array<std::uint64_t, 2>& each : runtime.gather(bits))
        are_same = are_same && each[0] == bits[0] && each[1] == bits[0];
    runtime.broadcast(are_same);
    const bool is_right = error < tolerance && are_same;
    std::printf("process %d: %d layers of %d tokens by %d blocks in %.3f ms: %s, %s bits on all devices in both runs\n",
                job.process_index, layers, tokens, job.rank_responsible, ms, error < tolerance ? "correct" : "WRONG",
                are_same ? "the same" : "OTHER");
    cudaFree(const_cast<float*>(memory.first));
    cudaFree(const_cast<float*>(memory.second));
    for (float* each : {memory.state, memory.active, memory.part, memory.sum}) cudaFree(each);
    return is_right ? 0 : 1;
} catch (const std::exception& problem) {
    std::fprintf(stderr, "14_split_layers: %s\n", problem.what());
    return 1;
}
