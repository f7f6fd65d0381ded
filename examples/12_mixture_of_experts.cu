// SPDX-License-Identifier: BSD-3-Clause
// Lesson 12: a mixture of experts, as in docs/guide/mixture_of_experts.md. Every token goes to one of eight experts,
// small networks that live on different ranks; popular experts get far more than others. In each layer ranks send their
// tokens to the experts and get them back by all_to_all_v: nobody knows beforehand how many come.
//
//     dcuda-run -n 2 ./12_mixture_of_experts
#include <dcuda/dcuda.hpp>

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <vector>

constexpr int experts = 8, layers = 4;
constexpr int features = 32; // of a token
constexpr int tokens = 48;   // of a rank
constexpr int threads = 64;

struct token {
    float feature[features];
    int expert;
    int number; // on its rank: where it belongs when it comes back
};

// --- What both sides compute -----------------------------------------------------------------------------------------

__host__ __device__ unsigned scramble(unsigned a, unsigned b) {
    unsigned x = a * 0x9E3779B1u + b * 0x85EBCA6Bu + 0xC2B2AE35u;
    x = (x ^ x >> 15) * 0x2C1B3C6Du;
    return x ^ x >> 13;
}

// The expert for a token: by Zipf's law the first one gets twice as many as the second, three times as many as the
// third, and so on.
__host__ __device__ int route(int rank, int number, int layer) {
    const unsigned hash = scramble(scramble(rank, number), layer);
    float all = 0;
    for (int expert = 0; expert < experts; ++expert) all += 1.0f / (expert + 1);
    float left = hash / 4294967296.0f * all;
    for (int expert = 0; expert + 1 < experts; ++expert) {
        left -= 1.0f / (expert + 1);
        if (left < 0) return expert;
    }
    return experts - 1;
}

__host__ __device__ float weight(int expert, int layer, int row, int column) {
    return (scramble(scramble(expert, layer), row * features + column) >> 20) / 4096.0f - 0.5f;
}
__host__ __device__ float first_feature(int rank, int number, int feature) {
    return (scramble(scramble(rank, number), 1000 + feature) >> 20) / 4096.0f;
}

// One feature of what an expert makes of a token: its row of the matrix, and what is negative becomes 0.
__host__ __device__ float apply_row(const float* in, int expert, int layer, int row) {
    float sum = 0;
    for (int column = 0; column < features; ++column) sum = fmaf(weight(expert, layer, row, column), in[column], sum);
    return in[row] + (sum > 0 ? sum / features : 0);
}

// The rank that has an expert. Where there are more ranks than experts each expert is on several, and a rank sends to
// the one nearest behind it.
__host__ __device__ int home_of(int expert, int rank, int ranks) {
    if (ranks <= experts) return expert % ranks;
    const int copies = (ranks - expert + experts - 1) / experts;
    return expert + experts * (rank / experts % copies);
}

// --- The kernel ------------------------------------------------------------------------------------------------------

// A rank's memory.
struct workspace {
    token* own;      // [tokens]
    token* sorted;   // [tokens]: those for one rank lie together
    token* arrived;  // [ranks][tokens]
    token* returned; // [tokens]: as sorted
    // By rank: how many tokens go there, and where they begin; how many have come from there, and where those begin.
    std::size_t *counts, *begins, *received, *arrivals;
    std::size_t* most; // tokens that this rank's experts got in one layer
};

// Sorts the rank's tokens by where they go.
__device__ void sort_tokens(const dcuda::rank& self, const workspace& w, int layer) {
    const int rank = self.id(), ranks = self.size();
    for (int number = threadIdx.x; number < tokens; number += threads)
        w.own[number].expert = route(rank, number, layer);
    for (int target = threadIdx.x; target < ranks; target += threads) w.counts[target] = 0;
    __syncthreads();
    if (threadIdx.x == 0) {
        for (int number = 0; number < tokens; ++number) ++w.counts[home_of(w.own[number].expert, rank, ranks)];
        for (int target = 0, begin = 0; target < ranks; begin += static_cast<int>(w.counts[target++]))
            w.begins[target] = begin;
        for (int number = 0; number < tokens; ++number)
            w.sorted[w.begins[home_of(w.own[number].expert, rank, ranks)]++] = w.own[number];
        for (int target = 0; target < ranks; ++target) w.begins[target] -= w.counts[target];
    }
    __syncthreads();
}

__global__ void transform(dcuda::context context, workspace all) {
    __shared__ dcuda::state state;
    dcuda::rank self(context, state);
    const int local = self.id(dcuda::device), rank = self.id(), ranks = self.size();
    const workspace w{all.own + local * tokens,      all.sorted + local * tokens,  all.arrived + local * ranks * tokens,
                      all.returned + local * tokens, all.counts + local * ranks,   all.begins + local * ranks,
                      all.received + local * ranks,  all.arrivals + local * ranks, all.most + local};
    for (int i = threadIdx.x; i < tokens * features; i += threads)
        w.own[i / features].feature[i % features] = first_feature(rank, i / features, i % features);
    for (int number = threadIdx.x; number < tokens; number += threads) w.own[number].number = number;
    for (int from = threadIdx.x; from < ranks; from += threads) w.arrivals[from] = std::size_t(from) * tokens;
    std::size_t most = 0;

    for (int layer = 0; layer < layers; ++layer) {
        sort_tokens(self, w, layer);
        self.all_to_all_v(dcuda::world, w.arrived, w.arrivals, w.sorted, w.counts, w.begins, w.received);
        // The experts of this rank: each thread makes one feature of a token.
        std::size_t got = 0;
        for (int from = 0; from < ranks; ++from) {
            token* const batch = w.arrived + w.arrivals[from];
            for (std::size_t i = 0; i < w.received[from]; i += threads / features) {
                const std::size_t number = i + threadIdx.x / features;
                const int row = static_cast<int>(threadIdx.x) % features;
                float made = 0;
                if (number < w.received[from])
                    made = apply_row(batch[number].feature, batch[number].expert, layer, row);
                __syncthreads(); // all threads have read the token
                if (number < w.received[from]) batch[number].feature[row] = made;
            }
            got += w.received[from];
        }
        most = got > most ? got : most;
        // Back the same way: what has come from a rank goes there, and comes where it was sent from.
        self.all_to_all_v(dcuda::world, w.returned, w.begins, w.arrived, w.received, w.arrivals, w.counts);
        for (int i = threadIdx.x; i < tokens * features; i += threads) {
            const token& back = w.returned[i / features];
            w.own[back.number].feature[i % features] = back.feature[i % features];
        }
        __syncthreads();
    }
    if (threadIdx.x == 0) *w.most = most;
}

// --- The host --------------------------------------------------------------------------------------------------------

template <class Item>
Item* allocate(std::size_t count) {
    Item* memory = nullptr;
    if (cudaMalloc(&memory, count * sizeof(Item)) != cudaSuccess)
        throw dcuda::error(dcuda::error_code::out_of_resources, "no device memory");
    return memory;
}

// Whether a token of a rank is what the experts make of it one after the other.
bool is_right(const token& found, int rank, int number) {
    float in[features], out[features];
    for (int feature = 0; feature < features; ++feature) in[feature] = first_feature(rank, number, feature);
    for (int layer = 0; layer < layers; ++layer) {
        for (int row = 0; row < features; ++row) out[row] = apply_row(in, route(rank, number, layer), layer, row);
        std::copy(out, out + features, in);
    }
    for (int feature = 0; feature < features; ++feature)
        if (std::abs(found.feature[feature] - in[feature]) > 1e-5f * std::abs(in[feature]) + 1e-6f) return false;
    return true;
}

int main(int argc, char** argv) try {
    dcuda::runtime runtime(argc, argv);
    dcuda::launch_config config{.threads = threads};
    dcuda::rank_info job = runtime.plan(transform, config);
    config.ranks_per_device = std::min(job.rank_responsible, 64); // a rank has memory for all tokens of all
    job = runtime.plan(transform, config);
    const int ranks = job.rank_responsible;
    const auto own = static_cast<std::size_t>(ranks), all = static_cast<std::size_t>(job.rank_count);

    const workspace memory{
        allocate<token>(own * tokens),    allocate<token>(own * tokens),    allocate<token>(own * all * tokens),
        allocate<token>(own * tokens),    allocate<std::size_t>(own * all), allocate<std::size_t>(own * all),
        allocate<std::size_t>(own * all), allocate<std::size_t>(own * all), allocate<std::size_t>(own)};
    const double milliseconds = runtime.run(transform, config, memory);
    std::vector<token> found(own * tokens);
    std::vector<std::size_t> most(own);
    cudaMemcpy(found.data(), memory.own, found.size() * sizeof(token), cudaMemcpyDeviceToHost);
    cudaMemcpy(most.data(), memory.most, most.size() * sizeof(std::size_t), cudaMemcpyDeviceToHost);
    for (token* each : {memory.own, memory.sorted, memory.arrived, memory.returned}) cudaFree(each);
    for (std::size_t* each : {memory.counts, memory.begins, memory.received, memory.arrivals, memory.most})
        cudaFree(each);

    for (int rank = 0; rank < ranks; ++rank)
        for (int number = 0; number < tokens; ++number)
            if (!is_right(found[rank * tokens + number], job.process_index * ranks + rank, number)) {
                std::fprintf(stderr, "12_mixture_of_experts: token %d of rank %d is wrong\n", number,
                             job.process_index * ranks + rank);
                return 1;
            }
    if (job.process_index == 0)
        std::printf(
            "%d layers, %d tokens on %d ranks in %.3f ms: correct; up to %zu tokens at a rank of the first device\n",
            layers, tokens * job.rank_count, job.rank_count, milliseconds, *std::max_element(most.begin(), most.end()));
    return 0;
} catch (const dcuda::error& problem) {
    std::fprintf(stderr, "12_mixture_of_experts: %s\n", problem.what());
    return 1;
}
