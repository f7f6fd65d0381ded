// SPDX-License-Identifier: BSD-3-Clause
#include "support/env.hpp"

#include "support/check.hpp"

#include <algorithm>
#include <array>
#include <charconv>
#include <cmath>
#include <cstdlib>
#include <numeric>
#include <string_view>
#include <strings.h>
#include <unistd.h>

namespace dcuda::support {

namespace {

// True if the whole text is one number of type T; no spaces, no locale.
template <typename T>
bool parse(const std::string& text, T& value) {
    const char* end = text.data() + text.size();
    auto [stop, problem] = std::from_chars(text.data(), end, value);
    return problem == std::errc() && stop == end;
}

[[noreturn]] void malformed(const char* name, const std::string& value, const std::string& expected) {
    fail(error_code::invalid_argument, "{}={}: expected {}", name, value, expected);
}

// All that the library, its tools and their launchers read.
constexpr std::string_view known_variables[] = {
    "DCUDA_ABORT_GRACE",
    "DCUDA_BARRIER_ROW",
    "DCUDA_BLAME_FD",
    "DCUDA_BOUNCE_BYTES",
    "DCUDA_CHECK",
    "DCUDA_CHECK_SEED",
    "DCUDA_CONNECT_TIMEOUT",
    "DCUDA_COUNTER_START",
    "DCUDA_DISABLE_PEER",
    "DCUDA_ENERGY",
    "DCUDA_FIBER_SEED",
    "DCUDA_INTERFACE",
    "DCUDA_JOB",
    "DCUDA_LAUNCHER",
    "DCUDA_LEADER_MEMBERS",
    "DCUDA_LISTEN_FD",
    "DCUDA_LOCAL_COUNT",
    "DCUDA_LOCAL_INDEX",
    "DCUDA_LOST_AFTER",
    "DCUDA_MAILBOX_PACKETS",
    "DCUDA_MAILBOX_QUEUES",
    "DCUDA_MATCH_SOURCES",
    "DCUDA_MAX_WINDOWS",
    "DCUDA_NETWORK_INLINE_BYTES",
    "DCUDA_NETWORK_RING_BYTES",
    "DCUDA_POWERCAP",
    "DCUDA_PROCESS_COUNT",
    "DCUDA_PROCESS_INDEX",
    "DCUDA_RANKS_PER_DEVICE",
    "DCUDA_RENDEZVOUS",
    "DCUDA_SILENT_AFTER",
    "DCUDA_SMALL_PUT_BYTES",
    "DCUDA_STREAM_OPS",
    "DCUDA_STREAM_PUT_BYTES",
    "DCUDA_STACK_BYTES",
    "DCUDA_STATS",
    "DCUDA_TAGS",
    "DCUDA_TOP",
    "DCUDA_TRACE",
    "DCUDA_TRACE_EVENTS",
    "DCUDA_TRANSPORT",
    "DCUDA_TRANSPORT_PATH",
    "DCUDA_UNCONSUMED",
    "DCUDA_VERBS_DC",
    "DCUDA_VERBS_DEVICE",
    "DCUDA_VERBS_GID",
    "DCUDA_VERBS_POOL",
    "DCUDA_VERBS_RECEIVES",
    "DCUDA_WAIT_TIMEOUT",
    "DCUDA_WATCHDOG_INTERVAL",
    "DCUDA_WATCH_LAUNCHER",
    "DCUDA_WINDOWS_MAY_FAIL",
};
constexpr std::string_view foreign_prefixes[] = {"DCUDA_TEST_", "DCUDA_BUILD_",   "DCUDA_TRAFFIC_", "DCUDA_COMMIT",
                                                 "DCUDA_FUZZ_", "DCUDA_NVSHMEM_", "DCUDA_NCCL_"};

// How many characters must be left out, added or changed to make the one of the other.
std::size_t distance(std::string_view a, std::string_view b) {
    std::vector<std::size_t> row(b.size() + 1);
    std::iota(row.begin(), row.end(), std::size_t{0});
    for (std::size_t i = 0; i < a.size(); ++i) {
        std::size_t corner = row[0]++;
        for (std::size_t j = 0; j < b.size(); ++j) {
            const std::size_t changed = corner + (a[i] != b[j] ? 1 : 0);
            corner = row[j + 1];
            row[j + 1] = std::min({changed, row[j + 1] + 1, row[j] + 1});
        }
    }
    return row[b.size()];
}

std::string describe_unknown(std::string_view name) {
    const auto* const nearest =
        std::min_element(std::begin(known_variables), std::end(known_variables),
                         [&](auto first, auto second) { return distance(name, first) < distance(name, second); });
    const std::string hint = distance(name, *nearest) <= 4 ? fmt::format("; is {} meant?", *nearest)
                                                           : std::string("; docs/guide/running.md has all");
    return fmt::format("the environment variable {} is none of dCUDA's{}", name, hint);
}

} // namespace

std::vector<std::string> unknown_variables() {
    std::vector<std::string> found;
    for (char** entry = environ; entry != nullptr && *entry != nullptr; ++entry) {
        const std::string_view text = *entry, name = text.substr(0, text.find('='));
        const auto begins_name = [&](std::string_view prefix) { return name.starts_with(prefix); };
        if (!begins_name("DCUDA_") ||
            std::any_of(std::begin(foreign_prefixes), std::end(foreign_prefixes), begins_name) ||
            std::find(std::begin(known_variables), std::end(known_variables), name) != std::end(known_variables))
            continue;
        found.push_back(describe_unknown(name));
    }
    return found;
}

std::optional<std::string> env_string(const char* name) {
    const char* value = std::getenv(name);
    if (value == nullptr || *value == '\0') return std::nullopt;
    return value;
}

std::optional<long> env_integer(const char* name, long min, long max) {
    auto text = env_string(name);
    if (!text) return std::nullopt;
    long value = 0;
    if (!parse(*text, value) || value < min || value > max)
        malformed(name, *text, fmt::format("an integer from {} to {}", min, max));
    return value;
}

std::optional<bool> env_flag(const char* name) {
    auto text = env_string(name);
    if (!text) return std::nullopt;
    for (const char* word : {"1", "true", "yes", "on"})
        if (strcasecmp(text->c_str(), word) == 0) return true;
    for (const char* word : {"0", "false", "no", "off"})
        if (strcasecmp(text->c_str(), word) == 0) return false;
    malformed(name, *text, "1, true, yes, on, 0, false, no or off");
}

std::optional<double> env_seconds(const char* name) {
    auto text = env_string(name);
    if (!text) return std::nullopt;
    double value = 0;
    if (!parse(*text, value) || !std::isfinite(value) || value < 0)
        malformed(name, *text, "a number of seconds, 0 or more");
    return value;
}

} // namespace dcuda::support
