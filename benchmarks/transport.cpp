// SPDX-License-Identifier: BSD-3-Clause
// Transports alone, below the runtime: half round trips, bandwidth and message rate of the one that DCUDA_TRANSPORT
// names ("shm", "mpi", "ofi:tcp"), between two processes.
#include <algorithm>
#include <array>
#include <chrono>
#include <cstdio>
#include <cstring>
#include <fstream>
#include <string>
#include <vector>

#include <CLI/CLI.hpp>
#include <fmt/format.h>
#include <nlohmann/json.hpp>
#include <sched.h>
#include <sys/resource.h>

#include "bootstrap/control.hpp"
#include "common/machine.hpp"
#include "support/check.hpp"
#include "support/command_line.hpp"
#include "support/env.hpp"
#include "support/wire.hpp"
#include "transport/network.hpp"

namespace {

using namespace dcuda;
using steady = std::chrono::steady_clock;
using support::require;
using transport::network;
using transport::network_event;
using transport::remote_memory;

constexpr std::size_t kib = 1024, mib = 1024 * kib;
constexpr std::size_t memory_bytes = 64 * mib;
constexpr std::uint64_t ready = 0; // the unit that tells the first process that all has arrived

struct result {
    std::string quantity, unit;
    std::size_t bytes;
    double best, median;
    std::array<double, 2> cpu_microseconds; // for one write, of each process
};

double cpu_seconds() {
    rusage usage{};
    getrusage(RUSAGE_SELF, &usage);
    const auto seconds = [](const timeval& time) {
        return static_cast<double>(time.tv_sec) + static_cast<double>(time.tv_usec) * 1e-6;
    };
    return seconds(usage.ru_utime) + seconds(usage.ru_stime);
}

double seconds_since(steady::time_point start) { return std::chrono::duration<double>(steady::now() - start).count(); }

double median(std::vector<double> samples) {
    const auto middle = samples.begin() + static_cast<std::ptrdiff_t>(samples.size() / 2);
    std::nth_element(samples.begin(), middle, samples.end());
    return *middle;
}

class pair {
public:
    pair(const bootstrap::job& who, const std::string& transport, const std::string& provider)
        : who_(who), control_(who, "transport benchmark"), source_(memory_bytes),
          network_(transport::open_network(transport, {who.index, who.count, provider, ""})),
          memory_(network_->share(memory_bytes)) {
        if (memory_ == nullptr) memory_ = {new std::byte[memory_bytes], std::default_delete<std::byte[]>()};
        std::memset(memory_.get(), 0, memory_bytes);
        network_->connect(peer_, their(network_->invite(peer_)));
        network_->add_source(source_.data(), memory_bytes);
        support::wire_writer writer;
        writer.put(network_->expose(memory_.get(), memory_bytes, 0));
        remote_ = support::wire_reader(their(writer.bytes())).get<remote_memory>();
    }

    bool is_first() const { return who_.index == 0; }
    std::string name() const { return network_->name(); }

    // Each payload carries the number of its round, and is looked at.
    result latency(std::size_t bytes, int rounds) {
        const double cpu = begin();
        std::vector<double> samples;
        for (int round = -rounds / 10; round < rounds; ++round) { // some to warm up
            const auto start = steady::now();
            const std::size_t place = mib * static_cast<std::size_t>(2 + (round & 1));
            if (is_first()) write(place, bytes, round);
            await(place, round);
            if (!is_first()) write(place, bytes, round);
            if (round >= 0) samples.push_back(seconds_since(start) / 2 * 1e6);
        }
        return {"half round trip",
                "us",
                bytes,
                *std::min_element(samples.begin(), samples.end()),
                median(samples),
                end(cpu, samples.size() * 11 / 10)};
    }

    // From the first write to the answer that all have arrived; `scale` times writes in a second.
    result stream(const char* quantity, const char* unit, double scale, std::size_t bytes, int writes,
                  int outstanding) {
        constexpr int batches = 7;
        const double cpu = begin();
        const std::size_t stride = std::max(bytes, network::unit_bytes);
        std::vector<double> samples;
        for (int batch = 0; batch < batches; ++batch) {
            const auto start = steady::now();
            if (is_first()) {
                for (int i = 0; i < writes; ++i) {
                    while (in_flight_ >= outstanding) progress();
                    write(mib + stride * static_cast<std::size_t>(i % outstanding), bytes, i);
                }
                await(ready, batch);
            } else {
                while (arrived_ < writes) progress();
                arrived_ = 0;
                write(ready, 8, batch);
            }
            arrived_ = 0;
            samples.push_back(scale * writes / seconds_since(start));
        }
        return {quantity,        unit,
                bytes,           *std::max_element(samples.begin(), samples.end()),
                median(samples), end(cpu, static_cast<std::size_t>(writes) * batches)};
    }

private:
    std::string their(std::string_view ours) {
        return control_.allgather(ours, "memory")[static_cast<std::size_t>(peer_)];
    }

    double begin() {
        control_.barrier("begin");
        arrived_ = 0;
        return cpu_seconds();
    }
    std::array<double, 2> end(double cpu_at_start, std::size_t writes) {
        while (in_flight_ > 0) progress();
        support::wire_writer own;
        own.put((cpu_seconds() - cpu_at_start) * 1e6 / static_cast<double>(writes));
        std::array<double, 2> both{};
        const auto parts = control_.allgather(own.bytes(), "time");
        for (std::size_t i = 0; i < both.size(); ++i) both[i] = support::wire_reader(parts[i]).get<double>();
        return both;
    }

    void write(std::size_t place, std::size_t bytes, std::int64_t stamp) {
        std::byte* const source = source_.data() + place;
        const auto number = static_cast<std::uint32_t>(place / network::unit_bytes);
        while (in_flight_of_[number] > 0) progress(); // the source may not change yet
        std::memcpy(source, &stamp, sizeof stamp);
        while (!network_->write(peer_, remote_, place, source, bytes, number, number)) progress();
        ++in_flight_;
        ++in_flight_of_[number];
    }

    void await(std::size_t place, std::int64_t stamp) {
        while (last_ != static_cast<std::int64_t>(place / network::unit_bytes)) progress();
        last_ = -1;
        std::int64_t found = 0;
        std::memcpy(&found, memory_.get() + place, sizeof found);
        require(found == stamp, error_code::kernel_failure, "{} arrived instead of {}", found, stamp);
    }

    void progress() {
        network_event event{};
        if (!network_->poll(event)) {
            sched_yield();
        } else if (event.type == network_event::kind::sent) {
            --in_flight_;
            --in_flight_of_[event.number];
        } else {
            ++arrived_;
            last_ = static_cast<std::int64_t>(event.number);
        }
    }

    bootstrap::job who_;
    int peer_ = 1 - who_.index;
    bootstrap::control control_;
    std::vector<std::byte> source_;
    std::unique_ptr<network> network_;
    transport::shared_memory memory_;
    remote_memory remote_{};
    int in_flight_ = 0, arrived_ = 0;
    std::vector<int> in_flight_of_ = std::vector<int>(memory_bytes / network::unit_bytes); // by unit
    std::int64_t last_ = -1;                                                               // unit of the last arrival
};

void print(const std::string& name, const std::vector<result>& results) {
    fmt::print("{} between two processes\n\n{:<16} {:>8} {:>10} {:>10} {:<6} {:>22}\n", name, "", "bytes", "best",
               "median", "", "CPU us/write, each side");
    for (const result& one : results)
        fmt::print("{:<16} {:>8} {:>10.3f} {:>10.3f} {:<6} {:>10.2f} {:>11.2f}\n", one.quantity, one.bytes, one.best,
                   one.median, one.unit, one.cpu_microseconds[0], one.cpu_microseconds[1]);
}

void save(const std::string& path, const std::string& name, const std::vector<result>& results) {
    nlohmann::ordered_json record{{"program", "bench_transport"},
                                  {"transport", name},
                                  {"machine", benchmark::describe_machine("")},
                                  {"results", nlohmann::ordered_json::array()}};
    for (const result& one : results)
        record["results"].push_back({{"what", one.quantity},
                                     {"bytes", one.bytes},
                                     {"unit", one.unit},
                                     {"best", one.best},
                                     {"median", one.median},
                                     {"cpu_us_per_write", one.cpu_microseconds}});
    std::ofstream file(path);
    file << record.dump(2) << "\n";
    require(file.good(), error_code::invalid_argument, "cannot write {}", path);
}

} // namespace

int main(int argc, char** argv) try {
    CLI::App app("Measures a transport between two processes: DCUDA_TRANSPORT=ofi:tcp dcuda-run -n 2 bench_transport");
    std::string json;
    int rounds = 2000;
    app.add_option("--json", json, "write a record to this file");
    app.add_option("--rounds", rounds, "of ping-pong with the smallest payload")->check(CLI::Range(10, 10'000'000));
    parse_or_exit(app, "bench_transport", argc, argv);

    const std::string wanted = support::env_string("DCUDA_TRANSPORT").value_or("ofi");
    const std::size_t colon = std::min(wanted.find(':'), wanted.size());
    const bootstrap::job who = bootstrap::detect_job();
    require(who.count == 2, error_code::invalid_argument, "it takes two processes, not {}: dcuda-run -n 2 {}",
            who.count, argv[0]);

    pair both(who, wanted.substr(0, colon), wanted.substr(std::min(colon + 1, wanted.size())));
    std::vector<result> results;
    for (const std::size_t bytes : {std::size_t{8}, 4 * kib, 64 * kib, mib})
        results.push_back(both.latency(bytes, bytes > 64 * kib ? std::max(10, rounds / 10) : rounds));
    results.push_back(
        both.stream("stream", "GB/s", static_cast<double>(mib) * 1e-9, mib, std::max(10, rounds / 10), 16));
    results.push_back(both.stream("message rate", "M/s", 1e-6, 64, rounds * 25, 1024));
    if (both.is_first()) {
        print(both.name(), results);
        if (!json.empty()) save(json, both.name(), results);
    }
    return 0;
} catch (const std::exception& problem) {
    std::fprintf(stderr, "bench_transport: %s\n", problem.what());
    return 1;
}
