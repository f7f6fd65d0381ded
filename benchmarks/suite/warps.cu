// SPDX-License-Identifier: BSD-3-Clause
// Ranks that are one warp of their block: the latency of their messages, while the block's other warps are idle or
// compute; and how much a halo exchange by such a rank slows a matrix product of the other warps.
#include "suite/ping_pong.hpp"

namespace benchmark {
namespace {

constexpr int workers = 256, rank_threads = 32; // the block's last warp is the rank

DCUDA_DEVICE dcuda::part last_warp() { return {.index = 0, .first_thread = workers, .threads = rank_threads}; }

// --- Latency ---------------------------------------------------------------------------------------------------------

// `busy`: the other warps compute meanwhile.
__global__ void __launch_bounds__(workers + rank_threads)
    warp_ping_pong(dcuda::context context, game of, bool busy, const board* board, mistake* wrong) {
    __shared__ dcuda::state state;
    __shared__ unsigned done;
    if (threadIdx.x == 0) done = 0;
    __syncthreads();
    if (threadIdx.x < workers) {
        float value = static_cast<float>(threadIdx.x);
        while (busy && atomicAdd(&done, 0u) == 0 && !dcuda::is_ending(context)) {
            value = multiply_add(value, 100);
            __nanosleep(0);
        }
        if (value == -1) expect(wrong, 0, no_round, 0, 0, 1); // never: the arithmetic is used
        return;
    }
    dcuda::rank self(context, state, last_warp());
    play_or_watch(self, of, false, board, self);
    if (self.thread() == 0) atomicAdd(&done, 1u);
}

void measure_latency_of_warps(session& suite, bool peer, std::size_t bytes, bool busy) {
    row entry{"warps",
              peer ? suite.other_device() : "same device",
              std::string(bytes == 0 ? "notify" : "put_notify") + (busy ? ", others compute" : ""),
              bytes,
              rank_threads,
              peer ? 1 : 2};
    const game of = choose_game(suite, bytes);
    const results measured(of.batches, 1);
    const auto buffers = allocate<unsigned char>(2 * buffers_of_player * stride_bytes(bytes));
    const auto game_board = allocate<board>(1);
    set_board(game_board.get(), buffers.get(), bytes, measured);
    suite.run(entry, warp_ping_pong, shape(workers + rank_threads, entry.ranks), of, busy, game_board.get(),
              measured.wrong());
    summarise_latency(measured, of, entry);
    suite.rows.push_back(entry);
}

// --- A product and a halo --------------------------------------------------------------------------------------------

constexpr int tile = 64;                                      // rows, columns and depth
constexpr int halo_words = 26 * 1024 / sizeof(std::uint32_t); // to a partner in each step
constexpr int landings = 4, sources = 2;                      // in turn: see the kernel
constexpr std::size_t words_of_rank = (landings + sources) * halo_words;

struct steps_of {
    int steps, products, batches; // products of tiles in a step
};

DCUDA_DEVICE std::uint32_t halo_word(int rank, int step, int word) {
    return stamp_of(static_cast<std::uint32_t>(step * 65536 + word)) + static_cast<std::uint32_t>(rank);
}

// A worker's 4 rows and 4 columns of a product of tiles, added up. It begins with another term each time, so that the
// compiler takes none for another.
DCUDA_DEVICE void add_product(const float (&a)[tile][tile], const float (&b)[tile][tile], int number,
                              float (&sum)[4][4]) {
    const unsigned row = threadIdx.x / 16 * 4, column = threadIdx.x % 16 * 4;
    for (int i = 0; i < tile; ++i) {
        const int k = (i + number) % tile;
        for (unsigned y = 0; y < 4; ++y)
            for (unsigned x = 0; x < 4; ++x) sum[y][x] += a[k][row + y] * b[k][column + x];
    }
}

// In each step the workers multiply, and make what the rank then puts to its partner. A step needs what the partner has
// made two steps before. So a source is used again when `received` says that its put is complete, and a landing when
// the partner has read it: who puts the halo of step i has that of i - 2, which its partner made after it had read that
// of i - 4.
template <bool Exchanges>
__global__ void __launch_bounds__(workers + rank_threads)
    multiply(dcuda::context context, steps_of all, std::uint32_t* memory, interval* stamps, mistake* wrong) {
    __shared__ dcuda::state state;
    __shared__ float a[tile][tile], b[tile][tile];
    __shared__ unsigned made[landings], received; // by step: workers that have made their part; halos so far
    std::uint32_t* const landing = memory + words_of_rank * blockIdx.x;
    std::uint32_t* const source = landing + landings * halo_words;
    for (int i = static_cast<int>(threadIdx.x); i < tile * tile; i += workers + rank_threads) {
        a[i / tile][i % tile] = static_cast<float>(i % 7);
        b[i / tile][i % tile] = static_cast<float>(i % 5);
    }
    const int ranks = static_cast<int>(gridDim.x);
    if (threadIdx.x < workers) {
        const int thread = static_cast<int>(threadIdx.x);
        for (int batch = -1; batch < all.batches; ++batch) {
            __syncthreads(); // the rank goes to the barrier now
            if (thread < landings) made[thread] = 0;
            if (thread == 0) received = 0;
            __syncthreads(); // and comes back
            const std::uint64_t start = now_ns();
            float sum[4][4] = {};
            for (int step = 0; step < all.steps; ++step) {
                if (Exchanges && step >= 2) {
                    while (atomicAdd(&received, 0u) + 1 < static_cast<unsigned>(step)) {
                        if (dcuda::is_ending(context)) return;
                        __nanosleep(20);
                    }
                    __threadfence();
                    // Which rank the partner is stands in the first word.
                    const std::uint32_t* const halo = landing + (step - 2) % landings * halo_words;
                    const int partner = static_cast<int>(halo[0]);
                    for (int word = 1 + thread; word < halo_words; word += workers)
                        expect(wrong, batch, step, static_cast<std::uint32_t>(word), halo_word(partner, step - 2, word),
                               halo[word]);
                }
                for (int product = 0; product < all.products; ++product) add_product(a, b, step + product, sum);
                if (Exchanges) {
                    std::uint32_t* const next = source + step % sources * halo_words;
                    for (int word = 1 + thread; word < halo_words; word += workers)
                        next[word] = halo_word(static_cast<int>(blockIdx.x), step, word);
                    if (thread == 0) next[0] = blockIdx.x;
                    __threadfence();
                    atomicAdd(&made[step % landings], 1u);
                }
            }
            const std::uint64_t stop = now_ns();
            if (batch >= 0 && thread == 0) stamps[batch * ranks + static_cast<int>(blockIdx.x)] = {start, stop};
            float expected = 0;
            for (int k = 0; k < tile; ++k) expected += a[k][thread / 16 * 4] * b[k][thread % 16 * 4];
            expect(wrong, batch, no_round, 0,
                   static_cast<std::uint32_t>(expected * static_cast<float>(all.steps * all.products)),
                   static_cast<std::uint32_t>(sum[0][0]));
        }
        return;
    }
    dcuda::rank self(context, state, last_warp());
    const dcuda::window window =
        self.create_window(dcuda::world, landing, landings * halo_words * sizeof(std::uint32_t));
    const int partner = (self.id() + self.size() / 2) % self.size(); // on another device if there are two
    for (int batch = -1; batch < all.batches; ++batch) {
        __syncthreads();
        self.barrier(dcuda::world);
        __syncthreads();
        for (int step = 0; Exchanges && step < all.steps; ++step) {
            const unsigned ready = static_cast<unsigned>(step / landings + 1) * workers;
            if (self.thread() == 0)
                while (atomicAdd(&made[step % landings], 0u) < ready) __nanosleep(20);
            __threadfence();
            self.sync();
            self.put_notify(window, partner, step % landings * halo_words * sizeof(std::uint32_t),
                            halo_words * sizeof(std::uint32_t), source + step % sources * halo_words, tag);
            self.wait_notifications(tag, 1);
            self.flush(window); // the source may change
            __threadfence();
            self.sync();
            if (self.thread() == 0) atomicAdd(&received, 1u);
        }
    }
    self.free_window(window);
}

template <bool Exchanges>
row measure_product(session& suite, int ranks, const steps_of& all) {
    row entry{"warps",
              suite.job.process_count > 1 ? suite.other_device() : "same device",
              Exchanges ? "product and halo" : "product alone",
              Exchanges ? halo_words * sizeof(std::uint32_t) : 0,
              rank_threads,
              ranks};
    const results measured(all.batches, ranks);
    const auto memory = allocate<std::uint32_t>(static_cast<std::size_t>(ranks) * words_of_rank);
    suite.run(entry, multiply<Exchanges>, shape(workers + rank_threads, ranks), all, memory.get(), measured.stamps(),
              measured.wrong());
    measured.require_right(entry);
    entry.value = measure::summarise(scaled(measured.microseconds(), 1.0 / all.steps));
    return entry;
}

} // namespace

void measure_warps(session& suite) {
    for (const bool peer : {false, true}) {
        if (peer && suite.job.process_count < 2) {
            suite.add_missing({"warps", suite.other_device(), "put_notify"});
            continue;
        }
        for (const std::size_t bytes : {std::size_t{0}, std::size_t{64}, std::size_t{384}})
            for (const bool busy : {false, true}) measure_latency_of_warps(suite, peer, bytes, busy);
    }
    // Of two tiles' products a step takes about as long as its halo; of thirty, an order of magnitude longer.
    for (const int products : {by_backend(2, 1), by_backend(30, 2)}) {
        const int ranks = by_backend(suite.multiprocessors / 2 * 2, 2);
        const steps_of all{suite.rounds(100, 6), products, suite.batches(12, 3)};
        row alone = measure_product<false>(suite, ranks, all), both = measure_product<true>(suite, ranks, all);
        for (row* each : {&alone, &both}) each->operation += ", " + std::to_string(products) + " tiles";
        both.rivals.push_back({"alone", alone.value.median});
        suite.rows.push_back(alone);
        suite.rows.push_back(both);
    }
}

} // namespace benchmark
