// SPDX-License-Identifier: BSD-3-Clause
// Latency and bandwidth between processes 0 and 1 by size of the message, for each way.
#include <algorithm>
#include <chrono>
#include <cstdint>
#include <stdexcept>

#include "common/device_memory.hpp"
#include "common/samples.hpp"
#include "mpi/ways.hpp"

namespace benchmark {

namespace {

constexpr std::size_t most_window_bytes = 64 << 20; // unless one message is larger
constexpr std::size_t answer_bytes = 1, answer_place = 256;

// Messages of a window: they lie one behind the other.
int window_of(const mpi_options& chosen, std::size_t bytes) {
    const std::size_t fit = std::max<std::size_t>(1, most_window_bytes / bytes);
    return static_cast<int>(std::min(fit, static_cast<std::size_t>(chosen.window)));
}

int rounds_of(const mpi_options& chosen, std::size_t bytes_of_round) {
    if (chosen.common.rounds > 0) return chosen.common.rounds;
    const std::size_t fit = (std::size_t{4} << 20) / bytes_of_round;
    return static_cast<int>(std::clamp<std::size_t>(fit, 2, by_backend<std::size_t>(200, 20)));
}

int batches_of(const mpi_options& chosen) {
    return chosen.common.batches > 0 ? chosen.common.batches : by_backend(20, 6);
}

// What a process sends: another content by process, way and size.
std::vector<std::byte> content(const comparison& of, const way& one, int sender, std::size_t bytes, std::size_t size) {
    const auto number =
        static_cast<std::uint32_t>(&*std::find_if(all_ways.begin(), all_ways.end(), [&](const way& other) {
            return other.name == one.name;
        }) - all_ways.data());
    const std::uint32_t salt = (number * 2 + static_cast<std::uint32_t>(sender) + 1) * 40503u +
                               static_cast<std::uint32_t>(size) + static_cast<std::uint32_t>(of.chosen.window);
    std::vector<std::byte> result(bytes);
    for (std::size_t i = 0; i < bytes; ++i)
        result[i] = static_cast<std::byte>((static_cast<std::uint32_t>(i) * 2654435761u ^ salt * 2246822519u) >> 24);
    return result;
}

void copy(std::byte* target, const std::byte* source, std::size_t bytes) {
    check(cudaMemcpy(target, source, bytes, cudaMemcpyDefault), "cannot copy messages");
    check(cudaDeviceSynchronize(), "cannot copy messages");
}

void require_same(const std::vector<std::byte>& expected, const std::byte* seen_memory, const row& where) {
    std::vector<std::byte> seen(expected.size());
    copy(seen.data(), seen_memory, seen.size());
    const auto [wanted, wrong] = std::mismatch(expected.begin(), expected.end(), seen.begin());
    if (wanted == expected.end()) return;
    throw std::runtime_error(where.operation + ", " + std::to_string(where.bytes) + " B: byte " +
                             std::to_string(wanted - expected.begin()) + " of what came is " +
                             std::to_string(std::to_integer<int>(*wrong)) + " instead of " +
                             std::to_string(std::to_integer<int>(*wanted)));
}

// One measurement of one way and size: it says how much goes each way in a round, and which row the times make.
struct exchange {
    const char* name;
    std::size_t bytes; // of a message
    int window;        // 0: messages there and back in turn
    int rounds, batches;

    std::size_t messages() const { return static_cast<std::size_t>(std::max(1, window)); }
    std::size_t bytes_of_round() const { return messages() * bytes; }
    bool comes_to(int process) const { return window == 0 || process == 1; }

    // `samples`: microseconds of batches.
    void summarise(const std::vector<double>& samples, row& result) const {
        if (window == 0) {
            result.value = measure::summarise(scaled(samples, 0.5 / rounds));
        } else {
            result.unit = "GB/s";
            const double moved = static_cast<double>(bytes_of_round()) * rounds;
            result.value = measure::summarise(rate(moved * 1e-3, samples));
        }
    }
};

exchange latency_of(const mpi_options& chosen, std::size_t bytes) {
    return {"latency", bytes, 0, rounds_of(chosen, bytes), batches_of(chosen)};
}
exchange bandwidth_of(const mpi_options& chosen, std::size_t bytes) {
    const int window = window_of(chosen, bytes);
    return {"bandwidth", bytes, window, rounds_of(chosen, bytes * static_cast<std::size_t>(window)),
            batches_of(chosen)};
}

std::vector<exchange> all_exchanges(const mpi_options& chosen) {
    std::vector<exchange> result;
    for (const std::size_t bytes : chosen.sizes)
        if (chosen.wants("latency")) result.push_back(latency_of(chosen, bytes));
    for (const std::size_t bytes : chosen.sizes)
        if (chosen.wants("bandwidth")) result.push_back(bandwidth_of(chosen, bytes));
    return result;
}

std::size_t most_bytes(const std::vector<exchange>& all) {
    std::size_t result = 0;
    for (const exchange& one : all) result = std::max(result, one.bytes_of_round());
    return result;
}

// --- Ways that the host calls ----------------------------------------------------------------------------------------

// Memory of a line: what goes, what comes, and an answer each.
class host_exchanges {
public:
    host_exchanges(comparison& of, const way& one, std::size_t bytes)
        : of_(of), way_(one), in_((bytes + answer_bytes + answer_place - 1) / answer_place * answer_place),
          line_(of, one, 2 * in_, {{1 - of.all.index(), bytes, bytes}}) {}

    row measure(const exchange& load) {
        const int own = of_.all.index();
        const auto sent = content(of_, way_, own, load.bytes_of_round(), load.bytes);
        const std::vector<std::byte> nothing(sent.size());
        copy(out(), sent.data(), sent.size());
        copy(in(), nothing.data(), nothing.size());
        std::vector<double> samples;
        for (int batch = -1; batch < load.batches; ++batch) {
            line_.meet();
            const double time = time_batch(load);
            if (batch >= 0) samples.push_back(time);
        }
        row result = of_.row_of(way_, load.name, load.bytes);
        result.library = line_.library();
        load.summarise(samples, result);
        if (load.comes_to(own))
            require_same(content(of_, way_, 1 - own, load.bytes_of_round(), load.bytes), in(), result);
        return result;
    }

private:
    std::byte* out() const { return line_.memory(); }
    std::byte* in() const { return line_.memory() + in_; }

    double time_batch(const exchange& load) {
        const int peer = 1 - of_.all.index();
        std::vector<common::message> going, coming;
        for (std::size_t i = 0; i < load.messages(); ++i) {
            const std::size_t place = i * load.bytes;
            going.push_back({peer, out() + place, load.bytes, in_ + place, nullptr, 0});
            coming.push_back({peer, nullptr, 0, 0, in() + place, load.bytes});
        }
        // Behind the messages: an answer overwrites none of them.
        std::vector<common::message> answer_going = going, answer_coming = coming;
        if (load.window > 0) {
            const std::size_t place = in_ - answer_bytes;
            answer_going = {{peer, out() + place, answer_bytes, in_ + place, nullptr, 0}};
            answer_coming = {{peer, nullptr, 0, 0, in() + place, answer_bytes}};
        }
        const auto start = std::chrono::steady_clock::now();
        for (int round = 0; round < load.rounds; ++round) {
            line_.bring(of_.first() ? going : coming);
            line_.bring(of_.first() ? answer_coming : answer_going);
        }
        line_.finish();
        return std::chrono::duration<double, std::micro>(std::chrono::steady_clock::now() - start).count();
    }

    comparison& of_;
    way way_;
    std::size_t in_; // where what comes begins
    line line_;
};

// --- Ranks -----------------------------------------------------------------------------------------------------------

row measure_by_ranks(comparison& of, const way& one, const exchange& load, int ranks, std::byte* memory) {
    const int own = of.all.index();
    const std::size_t bytes = load.bytes_of_round();
    const auto sent = content(of, one, own, bytes, load.bytes);
    const std::vector<std::byte> nothing(bytes);
    copy(memory, sent.data(), bytes);
    copy(memory + bytes, nothing.data(), bytes);
    row result = of.row_of(one, load.name, load.bytes, ranks);
    load.summarise(
        time_messages_of_ranks(of, {load.bytes, load.window, load.rounds, load.batches, memory, memory + bytes}, ranks),
        result);
    if (load.comes_to(own)) require_same(content(of, one, 1 - own, bytes, load.bytes), memory + bytes, result);
    return result;
}

void measure_way(comparison& of, const way& one, const std::vector<exchange>& all) {
    if (one.is_by_ranks()) {
        const auto memory = allocate<std::byte>(2 * most_bytes(all));
        const int many = of.chosen.ranks > 0 ? of.chosen.ranks : of.multiprocessors;
        for (const exchange& load : all) {
            of.rows.push_back(measure_by_ranks(of, one, load, 1, memory.get()));
            // Many share a message: each has a part of it.
            if (load.window > 0 && many > 1) of.rows.push_back(measure_by_ranks(of, one, load, many, memory.get()));
        }
        return;
    }
    host_exchanges line(of, one, most_bytes(all) + answer_bytes);
    for (const exchange& load : all) of.rows.push_back(line.measure(load));
}

} // namespace

void measure_messages(comparison& of) {
    const std::vector<exchange> all = all_exchanges(of.chosen);
    if (all.empty()) return;
    for (const way& one : of.ways()) {
        std::string missing;
        if (of.all.count() != 2) missing = "takes exactly two processes: mpirun -n 2 dcuda-bench mpi";
        try {
            if (missing.empty()) measure_way(of, one, all);
        } catch (const no_way& reason) {
            missing = reason.what();
        }
        for (const char* name : {"latency", "bandwidth"}) {
            if (missing.empty() || !of.chosen.wants(name)) continue;
            row none = of.row_of(one, name, 0);
            none.missing = missing;
            of.rows.push_back(none);
        }
    }
    std::stable_sort(of.rows.begin(), of.rows.end(), [](const row& a, const row& b) {
        return a.operation.starts_with("latency") && b.operation.starts_with("bandwidth");
    });
}

} // namespace benchmark
