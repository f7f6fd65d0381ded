// SPDX-License-Identifier: BSD-3-Clause
#include "common/goals.hpp"

#include <string_view>

namespace benchmark {
namespace {

constexpr int any = 0;
constexpr std::size_t no_limit = ~std::size_t{0};

struct entry {
    std::string_view benchmark, path, operation;
    std::size_t fewest_bytes, most_bytes;
    int threads, ranks, processes;
    goal is;
};

constexpr goal at_most(double limit) { return {limit, false}; }
constexpr goal at_least(double limit) { return {limit, true}; }

constexpr std::size_t kib = 1024, mib = kib * kib;

constexpr entry goals[] = {
    {"latency", "same device", "put_notify", 4, 384, any, any, any, at_most(0.60)},
    {"latency", "same device", "notify", 0, 0, any, any, any, at_most(0.50)},
    {"latency", "peer", "put_notify", 4, 512, any, any, any, at_most(1.05)},
    {"latency", "peer", "put_notify", kib, kib, 256, any, any, at_most(1.2)},
    {"latency", "peer", "put_notify", 4 * kib, 4 * kib, 256, any, any, at_most(2.0)},
    {"latency", "peer", "put_notify", 64 * kib, 64 * kib, 256, any, any, at_most(4.0)},
    {"latency", "peer", "notify", 0, 0, any, any, any, at_most(0.80)},
    {"latency", "peer", "notify_relaxed", 0, 0, any, any, any, at_most(0.75)},
    {"bandwidth", "peer", "put, 1 rank", mib, no_limit, 128, any, any, at_least(44)},
    {"bandwidth", "peer", "put, 16 ranks", mib, no_limit, 128, any, any, at_least(340)},
    {"bandwidth", "peer", "put, all ranks", mib, no_limit, 128, any, any, at_least(360)},
    {"bandwidth", "same device", "put, all ranks", mib, no_limit, 128, any, any, at_least(1800)},
    {"barrier", "same device", "barrier", 0, 0, any, 132, any, at_most(0.9)},
    {"barrier", "same device", "barrier", 0, 0, any, 2112, any, at_most(2.4)},
    {"barrier", "all devices", "barrier", 0, 0, any, 132, 4, at_most(2.6)},
    {"barrier", "all devices", "barrier", 0, 0, any, 1056, 4, at_most(4.0)},
    {"latency", "remote", "put_notify", 4, 8, any, any, any, at_most(6)},
    {"latency", "remote", "notify", 0, 0, any, any, any, at_most(5)},
    {"bandwidth", "remote", "put, 1 rank", mib, no_limit, any, any, any, at_least(20)},
    {"messages", "remote", "messages", 64, 64, any, any, any, at_least(1.5)},
    // A command to the host and an answer: at most 1.2 us each way.
    {"host", "host / host", "flag round trip", 0, no_limit, any, any, any, at_most(2.4)},
    {"host", "host / host", "queue round trip", 0, no_limit, any, any, any, at_most(2.4)},
    {"one_sided", "peer", "get and flush", 8, 8, any, any, any, at_most(1.8)},
    {"one_sided", "peer", "fetch_add", 4, 4, any, any, any, at_most(1.6)},
    {"one_sided", "peer", "compare_swap", 4, 4, any, any, any, at_most(1.6)},
    {"one_sided", "peer", "accumulate_notify", 4 * kib, 4 * kib, any, any, any, at_most(2.5)},
    {"one_sided", "peer", "put_notify of a column", 4 * kib, 4 * kib, any, any, any, at_most(2.4)},
    {"flush", "peer", "put and flush", kib, kib, any, any, any, at_most(1.4)},
};

} // namespace

std::optional<goal> find_goal(const row& of, int processes) {
    // The cost of the checks: how much slower than the same program without them.
    if (of.operation.ends_with(", cost of checks")) return at_most(5);
    if (of.benchmark == "trace" && of.operation.ends_with(", an event")) return at_most(100);
    const auto fits = [](int wanted, int value) { return wanted == any || wanted == value; };
    for (const entry& one : goals)
        if (one.benchmark == of.benchmark && one.path == of.path && one.operation == of.operation &&
            of.bytes >= one.fewest_bytes && of.bytes <= one.most_bytes && fits(one.threads, of.threads) &&
            fits(one.ranks, of.ranks) && fits(one.processes, processes))
            return one.is;
    return std::nullopt;
}

} // namespace benchmark
