// One-way latency of notify and put_notify: half of a round trip between two ranks, timed by the rank itself, in the
// kernel. Same device: both ranks on one device. Peer: on two devices, when there are two processes.
//
//     notify_latency
//     dcuda-run -n 2 notify_latency --json result.json
#include <cstdio>
#include <exception>
#include <memory>
#include <stdexcept>
#include <string>
#include <vector>

#include <dcuda/dcuda.hpp>
#include <nlohmann/json.hpp>

#include "common/latency.hpp"
#include "common/machine.hpp"
#include "common/ping_pong.hpp"

namespace {

using benchmark::side;

constexpr int tag = 0;

// The players of a device, in device memory. World rank 0 plays ping, rank 1 pong; all others watch.
struct board {
    benchmark::player players[2];
};

struct put_channel {
    dcuda::rank& self;
    dcuda::window landing;
    int peer;
    std::size_t bytes;

    DCUDA_DEVICE void send(const void* source) { self.put_notify(landing, peer, 0, bytes, source, tag); }
    DCUDA_DEVICE void wait() { self.wait_notifications(tag, 1); }
    DCUDA_DEVICE void complete() { self.flush(landing); }
    DCUDA_DEVICE void barrier() { self.barrier(dcuda::world); }
};

struct notify_channel {
    dcuda::rank& self;
    int peer;

    DCUDA_DEVICE void send(const void*) { self.notify(peer, dcuda::world, tag); }
    DCUDA_DEVICE void wait() { self.wait_notifications(tag, 1); }
    DCUDA_DEVICE void complete() {}
    DCUDA_DEVICE void barrier() { self.barrier(dcuda::world); }
};

__global__ void ping_pong(dcuda::context context, benchmark::shape of, const board* board) {
    __shared__ dcuda::state state;
    dcuda::rank self(context, state);
    const int id = self.id();
    const bool plays = id < 2;
    const benchmark::player* const me = plays ? &board->players[id] : nullptr;
    const std::size_t bytes = of.words * sizeof(std::uint32_t);

    // The window holds all of a player's buffers: sources lie in the window, too.
    const std::size_t window_bytes = plays && bytes != 0 ? 3 * benchmark::stride_bytes(bytes) : 0;
    const dcuda::window window = self.create_window(dcuda::world, plays ? me->landing : nullptr, window_bytes);
    if (!plays) {
        for (int batch = -1; batch < of.batches; ++batch) self.barrier(dcuda::world);
    } else if (bytes == 0) {
        notify_channel channel{self, 1 - id};
        benchmark::play(channel, of, *me);
    } else {
        put_channel channel{self, window, 1 - id, bytes};
        benchmark::play(channel, of, *me);
    }
    self.free_window(window);
}

// --- Host ----------------------------------------------------------------------------------------------------------

void check(cudaError_t status, const char* what) {
    if (status != cudaSuccess) throw std::runtime_error(std::string(what) + ": " + cudaGetErrorString(status));
}

struct free_device {
    void operator()(void* memory) const { cudaFree(memory); }
};
template <class Element>
using device_array = std::unique_ptr<Element[], free_device>;

template <class Element>
device_array<Element> allocate(std::size_t count) {
    void* memory = nullptr;
    check(cudaMalloc(&memory, count * sizeof(Element)), "no device memory");
    check(cudaMemset(memory, 0, count * sizeof(Element)), "cannot clear device memory");
    return device_array<Element>(static_cast<Element*>(memory));
}

template <class Element>
std::vector<Element> download(const Element* source, std::size_t count) {
    std::vector<Element> result(count);
    check(cudaMemcpy(result.data(), source, count * sizeof(Element), cudaMemcpyDeviceToHost), "cannot copy results");
    return result;
}

// Fills the row with what was measured. Collective; the result is that of process 0.
void measure(dcuda::runtime& runtime, const benchmark::options& chosen, int ranks_per_device, benchmark::row& what) {
    const auto batches = static_cast<std::size_t>(chosen.batches);
    const std::size_t player_bytes = 3 * benchmark::stride_bytes(what.bytes);
    const auto memory = allocate<unsigned char>(2 * player_bytes);
    const auto batch_ns = allocate<std::uint64_t>(batches);
    const auto wrong = allocate<benchmark::mistake>(2);
    const auto players = allocate<board>(1);

    board pieces;
    for (int i = 0; i < 2; ++i)
        pieces.players[i] =
            benchmark::make_player(static_cast<side>(i), memory.get() + static_cast<std::size_t>(i) * player_bytes,
                                   what.bytes, batch_ns.get(), wrong.get() + i);
    check(cudaMemcpy(players.get(), &pieces, sizeof pieces, cudaMemcpyHostToDevice), "cannot copy parameters");

    const benchmark::shape of{static_cast<std::uint32_t>(what.bytes / 4), chosen.rounds, chosen.batches};
    dcuda::launch_config config;
    config.threads = dim3(static_cast<unsigned>(what.threads));
    config.ranks_per_device = ranks_per_device;
    runtime.run(ping_pong, config, of, players.get());

    for (const benchmark::mistake& one : download(wrong.get(), 2)) benchmark::require_right(one, what);
    what.us = benchmark::one_way_us(download(batch_ns.get(), batches), chosen.rounds);
}

int run_program(int argc, char** argv) {
    const auto parse = [&] {
        return benchmark::parse_command_line(
            argc, argv, "notify_latency",
            "One-way latency of notify and put_notify between two ranks: on one device, and with two\n"
            "processes also between two devices: dcuda-run -n 2 notify_latency");
    };
    if (benchmark::asks_for_help(argc, argv)) {
        std::fputs(parse().text.c_str(), stdout);
        return 0;
    }
    dcuda::runtime runtime(argc, argv);
    const dcuda::rank_info job = runtime.info();
    const bool first = job.process_index == 0;
    const benchmark::command_line command = parse();
    if (!command.chosen) {
        if (first) std::fputs(command.text.c_str(), stderr);
        return command.status;
    }
    const benchmark::options& chosen = *command.chosen;
    const std::vector<benchmark::row> rival =
        chosen.rival.empty() ? std::vector<benchmark::row>() : benchmark::read_rows(chosen.rival);

    std::vector<std::size_t> payloads{0};
    payloads.insert(payloads.end(), chosen.sizes.begin(), chosen.sizes.end());
    std::vector<benchmark::row> rows;
    for (const bool peer : {false, true}) {
        if (peer && job.process_count < 2) continue;
        for (const std::size_t bytes : payloads)
            for (const int threads : chosen.threads) {
                rows.push_back(
                    {peer ? "peer" : "same device", bytes == 0 ? "notify" : "put_notify", bytes, threads, {}});
                measure(runtime, chosen, peer ? 1 : 2, rows.back());
            }
    }
    if (!first) return 0;

    const nlohmann::ordered_json machine = benchmark::describe_machine(chosen.commit);
    if (!chosen.csv) {
        std::printf("%s\n", benchmark::machine_in_words(machine).c_str());
        std::printf("one-way latency: half of a round trip; median of %d batches of %d round trips; %d process%s\n\n",
                    chosen.batches, chosen.rounds, job.process_count, job.process_count == 1 ? "" : "es");
    }
    std::fputs(benchmark::format_table(rows, rival, chosen).c_str(), stdout);
    if (!chosen.csv) {
        if (!rival.empty()) std::printf("\nratio: NVSHMEM's time by dCUDA's; above 1, dCUDA is faster\n");
        if (job.process_count < 2) std::printf("\npeer: not measured, it takes two processes: dcuda-run -n 2\n");
    }
    if (!chosen.json.empty()) {
        nlohmann::ordered_json parameters = benchmark::to_json(chosen);
        parameters["processes"] = job.process_count;
        benchmark::write_json(chosen.json, {{"program", "notify_latency"},
                                            {"machine", machine},
                                            {"parameters", parameters},
                                            {"rows", benchmark::describe(rows, rival)}});
    }
    return 0;
}

} // namespace

int main(int argc, char** argv) {
    try {
        return run_program(argc, argv);
    } catch (const std::exception& reason) {
        std::fprintf(stderr, "notify_latency: %s\n", reason.what());
        return 1;
    }
}
