// SPDX-License-Identifier: BSD-3-Clause
#include "device/settings.hpp"

#if DCUDA_BACKEND_CPU
#include "cpu/sanitizer.hpp"
#endif
#include "dcuda/detail/protocol/protocol.hpp"
#include "support/check.hpp"
#include "support/env.hpp"
#include "support/losses.hpp"

#include <bit>
#include <cstdlib>
#include <limits>
#include <string_view>
#include <strings.h>

namespace dcuda {
namespace {

using std::chrono::nanoseconds;

// PERF: 8 KiB, by `dcuda-bench collectives`.
constexpr long default_bounce_bytes = 8192;
// PERF: with so many, both ways take as long (benchmarks/results/2026-11-26-h200-x2-leaders).
constexpr long default_leader_members = 577;

// Under ThreadSanitizer all puts are stored at once: it can then report a target that reads without waiting. In a
// mailbox a small put would not touch the window before the target calls the library.
#if DCUDA_BACKEND_CPU
constexpr long default_small_put_bytes = detail::cpu::sanitizer::instrumented ? 0 : detail::max_small_put_bytes;
#else
constexpr long default_small_put_bytes = -1; // by the ranks of a multiprocessor
#endif
constexpr int max_ranks_per_device = 1 << 20;
constexpr long max_seconds = 1'000'000'000;
constexpr long default_inline_bytes = 16384;
constexpr long default_stream_put_bytes = 4 * 1024 * 1024;

nanoseconds seconds(const char* variable, double otherwise) {
    const double value = support::env_seconds(variable).value_or(otherwise);
    support::require(value <= max_seconds, error_code::invalid_argument, "{}={}: expected at most {} seconds", variable,
                     value, max_seconds);
    return nanoseconds(static_cast<std::int64_t>(value * 1e9));
}

// The arguments are another spelling of the environment variables: --dcuda-ranks=8 is DCUDA_RANKS_PER_DEVICE=8.
struct argument {
    std::string_view name;
    const char* variable;
};
constexpr argument known_arguments[] = {
    {"--dcuda-ranks", "DCUDA_RANKS_PER_DEVICE"},
    {"--dcuda-tags", "DCUDA_TAGS"},
    {"--dcuda-windows", "DCUDA_MAX_WINDOWS"},
    {"--dcuda-wait-timeout", "DCUDA_WAIT_TIMEOUT"},
};

void take_arguments(int& argc, char** argv) {
    int kept = 0;
    for (int i = 0; i < argc; ++i) {
        const std::string_view text = argv[i];
        if (text.substr(0, 8) != "--dcuda-") {
            argv[kept++] = argv[i];
            continue;
        }
        const auto equals = text.find('=');
        const argument* known = nullptr;
        for (const argument& candidate : known_arguments)
            if (text.substr(0, equals) == candidate.name) known = &candidate;
        support::require(known != nullptr && equals != text.npos, error_code::invalid_argument,
                         "{}: expected --dcuda-ranks=N, --dcuda-tags=N, --dcuda-windows=N or "
                         "--dcuda-wait-timeout=SECONDS",
                         text);
        setenv(known->variable, argv[i] + equals + 1, 1);
    }
    argc = kept;
    argv[kept] = nullptr;
}

int integer(const char* field, int requested, const char* variable, int smallest, int largest, int otherwise) {
    support::require(requested >= 0 && requested <= largest, error_code::invalid_argument,
                     "options::{} is {}: expected 0 to {}", field, requested, largest);
    if (requested != 0) return requested;
    return static_cast<int>(support::env_integer(variable, smallest, largest).value_or(otherwise));
}

// DCUDA_STATS is a switch or the name of a file.
std::string statistics_file(const std::string& text) {
    for (const char* word : {"", "0", "false", "no", "off"})
        if (strcasecmp(text.c_str(), word) == 0) return "";
    for (const char* word : {"1", "true", "yes", "on"})
        if (strcasecmp(text.c_str(), word) == 0) return "-";
    return text;
}

check_mode requested_check() {
    const std::string text = support::env_string("DCUDA_CHECK").value_or("0");
    const check_mode mode = text == "report" ? check_mode::report : text == "1" ? check_mode::stop : check_mode::off;
    support::require(mode != check_mode::off || text == "0", error_code::invalid_argument,
                     "DCUDA_CHECK={}: expected 0, 1 (the first finding ends the run) or report (all, at the end)",
                     text);
    support::require(mode == check_mode::off || DCUDA_BACKEND_CPU, error_code::invalid_argument,
                     "DCUDA_CHECK={}: the protocol checker is of the CPU backend: build the program for that (cmake "
                     "--preset cpu-check)",
                     text);
    return mode;
}

unconsumed_mode requested_unconsumed() {
    const std::string text = support::env_string("DCUDA_UNCONSUMED").value_or("report");
    if (text == "ignore") return unconsumed_mode::ignore;
    if (text == "error") return unconsumed_mode::error;
    support::require(
        text == "report", error_code::invalid_argument,
        "DCUDA_UNCONSUMED={}: expected report (a line at the end of the first run that leaves notifications "
        "which no rank has waited for), error or ignore",
        text);
    return unconsumed_mode::report;
}

} // namespace

settings resolve_settings(const options& requested, int* argc, char** argv) {
    support::keep_standard_streams(); // before anything is opened
    if (argc != nullptr) take_arguments(*argc, argv);
    settings result{};
    result.ranks_per_device =
        integer("ranks_per_device", requested.ranks_per_device, "DCUDA_RANKS_PER_DEVICE", 1, max_ranks_per_device, 0);
    result.tags = integer("tags", requested.tags, "DCUDA_TAGS", 1, detail::max_tags, detail::default_tags);
    result.match_sources =
        integer("match_sources", requested.match_sources, "DCUDA_MATCH_SOURCES", 0, detail::max_tags, 0);
    support::require(result.match_sources <= result.tags, error_code::invalid_argument,
                     "{} tags shall be matched by source (DCUDA_MATCH_SOURCES), but there are {} (DCUDA_TAGS)",
                     result.match_sources, result.tags);
    result.max_windows = integer("max_windows", requested.max_windows, "DCUDA_MAX_WINDOWS", 1, detail::max_max_windows,
                                 detail::default_max_windows);
    result.windows_may_fail = requested.windows_may_fail || support::env_flag("DCUDA_WINDOWS_MAY_FAIL").value_or(false);
    support::require(requested.wait_timeout.count() >= 0, error_code::invalid_argument,
                     "options::wait_timeout is {} ms: expected 0 (none) or more", requested.wait_timeout.count());
    result.wait_timeout = requested.wait_timeout;
    if (result.wait_timeout.count() == 0) result.wait_timeout = seconds("DCUDA_WAIT_TIMEOUT", 0);
    result.watchdog_interval = seconds("DCUDA_WATCHDOG_INTERVAL", 0.5);
    result.abort_grace = seconds("DCUDA_ABORT_GRACE", 5);
    result.powercap = support::env_string("DCUDA_POWERCAP").value_or("/sys/class/powercap");
    result.live_view = support::env_flag("DCUDA_TOP").value_or(true);
    result.peer_allowed = !support::env_flag("DCUDA_DISABLE_PEER").value_or(false);
    result.transport = support::env_string("DCUDA_TRANSPORT").value_or("auto");
    support::require(result.transport.find_first_not_of("abcdefghijklmnopqrstuvwxyz0123456789_;:") == std::string::npos,
                     error_code::invalid_argument,
                     "DCUDA_TRANSPORT={}: expected auto, shm, ofi, mpi or verbs; for a provider of libfabric, ofi:tcp",
                     result.transport);
    result.network_ring_bytes =
        static_cast<std::size_t>(support::env_integer("DCUDA_NETWORK_RING_BYTES", 128 << 10, 1 << 30).value_or(0));
    support::require(result.network_ring_bytes == 0 || std::has_single_bit(result.network_ring_bytes),
                     error_code::invalid_argument, "DCUDA_NETWORK_RING_BYTES is {}: expected a power of two",
                     result.network_ring_bytes);
    result.network_inline_bytes = static_cast<int>(
        support::env_integer("DCUDA_NETWORK_INLINE_BYTES", 0, detail::max_ring_bytes).value_or(default_inline_bytes));
    result.mailbox_packets =
        static_cast<int>(support::env_integer("DCUDA_MAILBOX_PACKETS", 0, detail::max_queue_packets).value_or(-1));
    support::require(result.mailbox_packets < 8 ? result.mailbox_packets <= 0
                                                : std::has_single_bit(static_cast<unsigned>(result.mailbox_packets)),
                     error_code::invalid_argument,
                     "DCUDA_MAILBOX_PACKETS is {}: expected a power of two from 8 to {}, or 0 for no mailboxes",
                     result.mailbox_packets, detail::max_queue_packets);
    result.mailbox_queues = static_cast<int>(
        support::env_integer("DCUDA_MAILBOX_QUEUES", 0, max_ranks_per_device * long{detail::most_partners})
            .value_or(-1));
    result.small_put_bytes =
        static_cast<int>(support::env_integer("DCUDA_SMALL_PUT_BYTES", 0, detail::max_small_put_bytes)
                             .value_or(default_small_put_bytes));
    result.stream_put_bytes = static_cast<std::size_t>(
        support::env_integer("DCUDA_STREAM_PUT_BYTES", 0, 1 << 30).value_or(default_stream_put_bytes));
    const std::string stream_ops = support::env_string("DCUDA_STREAM_OPS").value_or("auto");
    support::require(stream_ops == "auto" || stream_ops == "kernels" || stream_ops == "memops",
                     error_code::invalid_argument, "DCUDA_STREAM_OPS={}: expected auto, kernels or memops", stream_ops);
    result.streams_wait_for_values = stream_ops == "memops";
    result.bounce_bytes = static_cast<int>(
        support::env_integer("DCUDA_BOUNCE_BYTES", 0, std::numeric_limits<int>::max()).value_or(default_bounce_bytes));
    result.leader_members =
        static_cast<int>(support::env_integer("DCUDA_LEADER_MEMBERS", 0, std::numeric_limits<int>::max())
                             .value_or(default_leader_members));
    result.barrier_row =
        static_cast<int>(support::env_integer("DCUDA_BARRIER_ROW", 0, max_ranks_per_device).value_or(0));
    result.trace = support::env_string("DCUDA_TRACE").value_or("");
    if (const auto events = support::env_integer("DCUDA_TRACE_EVENTS", 2, 1 << 24))
        result.trace_events = std::bit_ceil(static_cast<std::uint32_t>(*events));
    result.statistics = statistics_file(support::env_string("DCUDA_STATS").value_or(""));
    result.count = requested.count || !result.statistics.empty();
    result.check = requested_check();
    result.check_seed = support::env_integer("DCUDA_CHECK_SEED", 0, std::numeric_limits<long>::max()).value_or(1);
    result.unconsumed = requested_unconsumed();
    result.measure_energy = requested.measure_energy || result.count || !result.trace.empty() ||
                            support::env_flag("DCUDA_ENERGY").value_or(false);
    result.counter_start =
        static_cast<std::uint32_t>(support::env_integer("DCUDA_COUNTER_START", 0, UINT32_MAX).value_or(0));
    return result;
}

} // namespace dcuda
