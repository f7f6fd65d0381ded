// SPDX-License-Identifier: BSD-3-Clause
#include "trace/profiler.hpp"

#include "device/device_state.hpp"
#include "support/check.hpp"
#include "support/losses.hpp"
#include "trace/timeline.hpp"

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include <algorithm>
#include <bit>
#include <cerrno>
#include <chrono>
#include <cstring>
#include <set>
#include <stdio_ext.h>
#include <thread>
#include <unistd.h>

namespace dcuda {

using namespace detail;

namespace {

using steady = std::chrono::steady_clock;
using json = nlohmann::ordered_json;

constexpr std::size_t default_event_bytes = 32u << 20; // of a device
constexpr std::uint32_t fewest_default_events = 64, most_default_events = 65536;
constexpr std::size_t host_events = 65536;
constexpr std::chrono::seconds last_words{3}; // how long processes of a failed job wait for each other's
constexpr unsigned clock_rounds = 15;

// How messages between observations begin. Those of the network path begin with a `greeting`, which is small.
enum class message_kind_of_profile : std::uint32_t { part = 0x0b5e0001, confirmed = 0x0b5e0002 };

struct wishes {
    bool counts, traces;
};

// The statistics' fields, with their names in JSON.
constexpr std::pair<const char*, std::uint64_t rank_statistics::*> sums[] = {
    {"through_mailbox", &rank_statistics::through_mailbox},
    {"waits", &rank_statistics::waits},
    {"tests", &rank_statistics::tests},
    {"gets", &rank_statistics::gets},
    {"atomics", &rank_statistics::atomics},
    {"flushes", &rank_statistics::flushes},
    {"barriers", &rank_statistics::barriers},
    {"windows", &rank_statistics::windows},
    {"put_ns", &rank_statistics::put_ns},
    {"access_ns", &rank_statistics::access_ns},
    {"wait_ns", &rank_statistics::wait_ns},
    {"flush_ns", &rank_statistics::flush_ns},
    {"barrier_ns", &rank_statistics::barrier_ns},
    {"window_ns", &rank_statistics::window_ns},
    {"ring_full_ns", &rank_statistics::ring_full_ns},
    {"mailbox_full_ns", &rank_statistics::mailbox_full_ns},
};
constexpr std::pair<const char*, std::uint64_t rank_statistics::*> marks[] = {
    {"mailbox_messages", &rank_statistics::mailbox_messages},
    {"mailbox_packets", &rank_statistics::mailbox_packets},
};
constexpr std::pair<const char*, path_statistics rank_statistics::*> path_names[] = {
    {"local", &rank_statistics::local},
    {"peer", &rank_statistics::peer},
    {"network", &rank_statistics::network},
};
constexpr std::pair<const char*, std::uint64_t path_statistics::*> figure_names[] = {
    {"puts", &path_statistics::puts},
    {"notified_puts", &path_statistics::notified_puts},
    {"notifications", &path_statistics::notifications},
    {"bytes", &path_statistics::bytes},
};

void add(rank_statistics& target, const rank_statistics& more) {
    for (const auto& [path, member] : path_names)
        for (const auto& [name, figure] : figure_names) (target.*member).*figure += (more.*member).*figure;
    for (const auto& [name, member] : sums) target.*member += more.*member;
    for (const auto& [name, member] : marks) target.*member = std::max(target.*member, more.*member);
}

rank_statistics statistics_of(const rank_counters& counters, int rank) {
    const double tick = ns_per_tick(counters);
    const auto ns = [&](std::uint64_t ticks) { return static_cast<std::uint64_t>(static_cast<double>(ticks) * tick); };
    const auto path = [](const path_counters& from) {
        return path_statistics{from.puts, from.notified_puts, from.notifications, from.bytes};
    };
    rank_statistics result;
    result.rank = rank;
    result.local = path(counters.local);
    result.peer = path(counters.peer);
    result.network = path(counters.network);
    result.through_mailbox = counters.through_mailbox;
    const auto count = [&](operation kind) { return counters.operations[static_cast<std::size_t>(kind)].count; };
    const auto time_in = [&](std::initializer_list<operation> kinds) {
        std::uint64_t ticks = 0;
        for (const operation kind : kinds) ticks += counters.operations[static_cast<std::size_t>(kind)].ticks;
        return ns(ticks);
    };
    result.waits = count(operation::wait_notifications) + count(operation::wait_notifications_from) +
                   count(operation::wait_notifications_for) + count(operation::wait_any) + count(operation::wait_some);
    result.tests = count(operation::test_notifications) + count(operation::pending_notifications);
    result.gets = count(operation::get) + count(operation::get_notify);
    result.access_ns = time_in({operation::get, operation::get_notify});
    for (operation kind = operation::fetch_add; kind <= operation::accumulate_notify;
         kind = static_cast<operation>(static_cast<std::uint32_t>(kind) + 1)) {
        result.atomics += count(kind);
        result.access_ns += time_in({kind});
    }
    result.flushes = count(operation::flush);
    result.barriers = count(operation::barrier);
    result.windows = count(operation::create_window);
    result.put_ns = time_in({operation::put, operation::put_notify, operation::notify, operation::notify_relaxed});
    result.wait_ns = time_in({operation::wait_notifications, operation::wait_notifications_from,
                              operation::wait_notifications_for, operation::wait_any, operation::wait_some});
    result.flush_ns = time_in({operation::flush});
    result.barrier_ns = time_in({operation::barrier, operation::init, operation::finish});
    result.window_ns = time_in({operation::create_window, operation::free_window});
    result.ring_full_ns = ns(counters.ring_full_ticks);
    result.mailbox_full_ns = ns(counters.mailbox_full_ticks);
    result.mailbox_messages = counters.mailbox_messages;
    result.mailbox_packets = counters.mailbox_packets;
    return result;
}

json in_json(const rank_statistics& from) {
    json result;
    if (from.rank >= 0) result["rank"] = from.rank;
    for (const auto& [path, member] : path_names)
        for (const auto& [name, figure] : figure_names) result[path][name] = (from.*member).*figure;
    for (const auto& [name, member] : sums) result[name] = from.*member;
    for (const auto& [name, member] : marks) result[name] = from.*member;
    return result;
}

} // namespace

rank_statistics statistics::total() const {
    rank_statistics sum;
    sum.rank = -1;
    for (const rank_statistics& rank : ranks) add(sum, rank);
    return sum;
}

// ---- before and after all runs --------------------------------------------------------------------------------------

profiler::profiler(bootstrap::control& control, const settings& chosen, bool several_hosts)
    : control_(control), trace_path_(chosen.trace), statistics_path_(chosen.statistics),
      wanted_events_(chosen.trace_events), clocks_(static_cast<std::size_t>(control.count())), host_(host_events) {
    const wishes own{chosen.count || !chosen.trace.empty(), !chosen.trace.empty()};
    std::string problem;
    if (control_.index() == 0) {
        try {
            origin_ns_ = clock_ns();
            if (own.traces) trace_ = std::make_unique<trace_file>(trace_path_, origin_ns_, clocks_);
            if (statistics_path_ == "-")
                statistics_file_ = stderr;
            else if (!statistics_path_.empty())
                statistics_file_ = open_output(statistics_path_, "statistics", "DCUDA_STATS");
        } catch (const error& thrown) {
            problem = thrown.what();
        }
    }
    support::wire_writer message;
    message.put(own);
    message.put(origin_ns_);
    message.put(std::string_view(problem));
    const auto all = control_.allgather(message.bytes(), "agreeing on what is profiled");
    for (int process = 0; process < control_.count(); ++process) {
        support::wire_reader reader(all[static_cast<std::size_t>(process)]);
        const auto theirs = reader.get<wishes>();
        const auto origin_ns = reader.get<std::uint64_t>();
        if (const std::string text = reader.get_text(); !text.empty()) throw error(error_code::invalid_argument, text);
        if (process == 0) origin_ns_ = origin_ns;
        support::require(
            theirs.traces == own.traces && theirs.counts == own.counts, error_code::invalid_argument,
            "processes {} and {} disagree on what is profiled: DCUDA_TRACE is {} / {}, counting (DCUDA_STATS) "
            "{} / {}; give all processes the same variables",
            control_.index(), process, own.traces ? "set" : "not set", theirs.traces ? "set" : "not set",
            own.counts ? "on" : "off", theirs.counts ? "on" : "off");
    }
    counts_ = own.counts;
    traces_ = own.traces;
    if (traces_ && several_hosts) align_hosts();
    // With the clocks, which are known now.
    if (trace_ && several_hosts) trace_ = std::make_unique<trace_file>(trace_path_, origin_ns_, clocks_);
}

// Processes of one host have one clock. Those of several leave a barrier at about the same time: the median over a few
// barriers of when each has left it. As exact as messages of the control plane take equally long to all.
void profiler::align_hosts() {
    std::vector<std::uint64_t> left;
    for (unsigned i = 0; i < clock_rounds; ++i) {
        control_.barrier("comparing clocks");
        left.push_back(clock_ns());
    }
    support::wire_writer message;
    message.put(left);
    const auto all = control_.allgather(message.bytes(), "comparing clocks");
    const auto first = support::wire_reader(all.front()).get_vector<std::uint64_t>();
    for (std::size_t process = 1; process < all.size(); ++process) {
        const auto theirs = support::wire_reader(all[process]).get_vector<std::uint64_t>();
        std::vector<std::int64_t> difference;
        for (unsigned i = 0; i < clock_rounds; ++i)
            difference.push_back(static_cast<std::int64_t>(first.at(i) - theirs.at(i)));
        std::nth_element(difference.begin(), difference.begin() + clock_rounds / 2, difference.end());
        clocks_[process] = difference[clock_rounds / 2];
    }
}

profiler::~profiler() {
    if (trace_ && trace_->dropped() != 0)
        support::tell(fmt::format("{} lacks {} events, which later ones of the same rank have overwritten; "
                                  "DCUDA_TRACE_EVENTS={} would keep twice as many of each rank",
                                  trace_path_, trace_->dropped(), 2 * capacity_));
    write_statistics();
    if (statistics_file_ != nullptr && statistics_file_ != stderr) std::fclose(statistics_file_);
}

// ---- a run ----------------------------------------------------------------------------------------------------------

profiler_view profiler::prepare(int ranks, bool profiled) {
    const auto count = static_cast<std::size_t>(ranks);
    host_.turn(traces_ && profiled);
    if (!counts_ || !profiled) return {};
    if (allocated_ranks_ != ranks) {
        counters_ = cuda::allocate<rank_counters>(count, "memory for statistics");
        capacity_ = wanted_events_;
        if (capacity_ == 0)
            capacity_ = std::clamp(
                static_cast<std::uint32_t>(std::bit_floor(default_event_bytes / sizeof(trace_event) / count)),
                fewest_default_events, most_default_events);
        if (traces_)
            events_ = cuda::allocate<trace_event>(count * capacity_, "memory for the timeline (DCUDA_TRACE_EVENTS)");
        allocated_ranks_ = ranks;
    }
    cuda::check(cudaMemset(counters_.get(), 0, count * sizeof(rank_counters)), "clearing device memory");
    return {traces_ ? 1u : 0u, capacity_, events_.get(), counters_.get()};
}

void profiler::begin_run() {
    running_ = true;
    ++run_;
    begin_ns_ = clock_ns();
    clock_samples_.clear();
    ring_commands_ = 0;
    arrived_.clear();
    lost_process_ = -1;
}

void profiler::note_energy(const run_energy& joules, const std::vector<power_sample>& power) {
    energy_ = joules;
    power_ = power;
}

void profiler::note_device_clock(std::uint64_t device_ns) { clock_samples_.push_back({clock_ns(), device_ns}); }

void profiler::end_run(const device_state& state, device_access& link, double kernel_ms, const std::string& why) {
    finish([&] {
        process_profile own = read(state, link, kernel_ms, why);
        count(own);
        if (control_.index() == 0) return write(gather(std::move(own)));
        support::wire_writer message;
        message.put(message_kind_of_profile::part);
        message.put(std::string_view(own.encode()));
        control_.post_last(0, message.bytes());
        if (!await_messages([&] { return confirmed_ == run_; }, !why.empty())) write_alone(own);
    });
}

void profiler::save_alone(const device_state& state, device_access& link, const std::string& why) {
    finish([&] {
        const process_profile own = read(state, link, 0, why);
        count(own);
        if (control_.index() == 0)
            write({own});
        else
            write_alone(own);
        write_statistics();
    });
}

// Once a run. What was profiled may be lost; the run is not.
void profiler::finish(const std::function<void()>& save) {
    if (!std::exchange(running_, false)) return;
    try {
        save();
    } catch (const std::exception& problem) {
        support::report_loss(
            fmt::format("process {}: what was profiled of run {} is lost: {}", control_.index(), run_, problem.what()));
    }
}

process_profile profiler::read(const device_state& state, device_access& link, double kernel_ms,
                               const std::string& why) {
    process_profile part;
    part.about = {control_.index(),
                  run_,
                  state.first_rank(),
                  state.ranks(),
                  begin_ns_,
                  clock_ns(),
                  kernel_ms,
                  ring_commands_,
                  0,
                  {}};
    part.failure = why;
    part.host_events = host_.take(part.about.host_drops);
    part.energy = energy_;
    if (traces_) part.power = power_;
    try {
        read_device(part, state, link);
    } catch (const error& problem) {
        part.missing = problem.what();
        part.counters.clear();
        part.events.clear();
        support::tell(fmt::format("process {}: what its ranks did in run {} cannot be read: {}", control_.index(), run_,
                                  problem.what()));
    }
    part.about.clocks = relate_clocks(part);
    return part;
}

void profiler::read_device(process_profile& part, const device_state& state, device_access& link) {
    const auto ranks = static_cast<std::size_t>(part.about.ranks);
    const auto read = [&](auto& records, const auto* from) {
        link.read_words(reinterpret_cast<std::uint32_t*>(records.data()), reinterpret_cast<const std::uint32_t*>(from),
                        records.size() * sizeof records[0] / sizeof(std::uint32_t));
    };
    part.counters.resize(ranks);
    read(part.counters, counters_.get());
    if (!part.failure.empty()) {
        part.waits.resize(ranks);
        read(part.waits, state.fields().waits);
        for (wait_record& wait : part.waits) name_source(wait, state.fields().tags);
    }
    if (!traces_) return;
    part.events.resize(ranks);
    std::set<std::pair<std::uint64_t, std::uint32_t>> names;
    for (std::size_t rank = 0; rank < ranks; ++rank) {
        const std::uint64_t written = part.counters[rank].events;
        std::vector<trace_event>& events = part.events[rank];
        events.resize(std::min<std::uint64_t>(written, capacity_));
        read(events, events_.get() + rank * capacity_);
        if (written > capacity_)
            std::rotate(events.begin(), events.begin() + static_cast<std::ptrdiff_t>(written % capacity_),
                        events.end());
        for (const trace_event& event : events)
            if ((event.kind & 0xff) == static_cast<std::uint32_t>(marker::range_begin))
                names.insert({event.tag | static_cast<std::uint64_t>(event.bytes) << 32, event.window & 0xff});
    }
    for (const auto& [address, bytes] : names) {
        std::string text(bytes, '\0');
        try {
            link.read(text.data(), reinterpret_cast<const void*>(static_cast<std::uintptr_t>(address)), bytes);
            part.names[address] = text;
        } catch (const error&) {
            cudaGetLastError(); // no literal: the range has no name
        }
    }
}

clock_relation profiler::relate_clocks(const process_profile& part) const {
    if (DCUDA_BACKEND_CPU) return {}; // one clock
    std::uint64_t first_ns = UINT64_MAX, last_ns = 0;
    for (const rank_counters& rank : part.counters) {
        if (rank.first.ns != 0) first_ns = std::min(first_ns, rank.first.ns);
        last_ns = std::max(last_ns, rank.last.ns);
    }
    if (last_ns == 0) return {};
    clock_relation result{first_ns, last_ns, static_cast<std::int64_t>(part.about.begin_ns - first_ns), 0};
    result.end_offset = result.begin_offset;
    // A command takes its time to the host, and the host may be late to look: the quickest tells most.
    const auto half = clock_samples_.begin() + static_cast<std::ptrdiff_t>((clock_samples_.size() + 1) / 2);
    const auto quickest = [](auto begin, auto end) {
        return *std::min_element(begin, end, [](const clock_sample& a, const clock_sample& b) {
            return static_cast<std::int64_t>(a.host_ns - a.device_ns) <
                   static_cast<std::int64_t>(b.host_ns - b.device_ns);
        });
    };
    if (clock_samples_.empty()) return result;
    const clock_sample early = quickest(clock_samples_.begin(), half);
    const clock_sample late = half == clock_samples_.end() ? early : quickest(half, clock_samples_.end());
    result.begin_ns = early.device_ns;
    result.end_ns = late.device_ns;
    result.begin_offset = static_cast<std::int64_t>(early.host_ns - early.device_ns);
    result.end_offset = static_cast<std::int64_t>(late.host_ns - late.device_ns);
    return result;
}

// ---- between processes ----------------------------------------------------------------------------------------------

bool profiler::receive(int from, const std::string& message) {
    support::wire_reader reader(message);
    const auto kind = reader.get<message_kind_of_profile>();
    if (kind == message_kind_of_profile::part)
        arrived_[from] = reader.get_text();
    else if (kind == message_kind_of_profile::confirmed)
        confirmed_ = reader.get<int>();
    else
        return false;
    return true;
}

// Takes messages until ready(). False: in a job that has failed nothing has come for long, or the job fails now.
template <class Ready>
bool profiler::await_messages(const Ready& ready, bool failed) {
    auto deadline = steady::now() + last_words;
    while (!ready()) {
        if (const auto event = control_.poll()) {
            using kind = bootstrap::event::kind;
            if (event->type == kind::message && receive(event->process, event->message))
                deadline = steady::now() + last_words;
            if (event->type == kind::lost || event->type == kind::aborted) {
                failed = true;
                deadline = steady::now() + last_words;
                if (event->type == kind::lost) lost_process_ = event->process;
            }
            continue;
        }
        if (failed && (steady::now() > deadline || (lost_process_ == 0 && control_.index() != 0))) return false;
        std::this_thread::sleep_for(std::chrono::microseconds(100));
    }
    return true;
}

// Process 0: the parts of all processes, as far as they come.
std::vector<process_profile> profiler::gather(process_profile own) {
    const bool failed = !own.failure.empty();
    std::vector<process_profile> parts;
    parts.push_back(std::move(own));
    const auto missing = [&](int process) { return process != lost_process_ && arrived_.count(process) == 0; };
    const auto complete = [&] {
        for (int process = 1; process < control_.count(); ++process)
            if (missing(process)) return false;
        return true;
    };
    await_messages(complete, failed);
    support::wire_writer answer;
    answer.put(message_kind_of_profile::confirmed);
    answer.put(run_);
    for (int process = 1; process < control_.count(); ++process) {
        const auto found = arrived_.find(process);
        if (found == arrived_.end()) {
            support::tell(
                fmt::format("nothing that process {} has profiled of run {} has come to process 0", process, run_));
            continue;
        }
        control_.post_last(process, answer.bytes());
        parts.push_back(process_profile::decode(found->second));
        if (parts.back().about.process == process) count(parts.back());
    }
    arrived_.clear();
    return parts;
}

// ---- results --------------------------------------------------------------------------------------------------------

void profiler::count(const process_profile& part) {
    struct statistics& sum = statistics_[part.about.process];
    add_energy(joules_[part.about.process], part.energy, sum.runs == 0);
    ++sum.runs;
    sum.kernel_ms += part.about.kernel_ms;
    sum.ring_commands = std::max(sum.ring_commands, part.about.ring_commands);
    if (sum.ranks.size() < part.counters.size()) sum.ranks.resize(part.counters.size());
    for (std::size_t rank = 0; rank < part.counters.size(); ++rank) {
        const int number = part.about.first_rank + static_cast<int>(rank);
        add(sum.ranks[rank], statistics_of(part.counters[rank], number));
        sum.ranks[rank].rank = number;
    }
}

struct statistics profiler::statistics() const {
    support::require(counts_, error_code::invalid_argument,
                     "runtime::statistics: nothing is counted; set DCUDA_STATS=1 or options::count");
    const auto own = statistics_.find(control_.index());
    return own != statistics_.end() ? own->second : dcuda::statistics{};
}

void profiler::write(const std::vector<process_profile>& parts) {
    if (!trace_) return;
    try {
        trace_->append(parts);
    } catch (const error& problem) {
        support::report_loss(fmt::format("{}; it ends before run {}", problem.what(), run_));
        trace_.reset();
    }
}

// Where process 0 does not answer.
void profiler::write_alone(const process_profile& part) {
    if (!traces_) return;
    const std::string path = fmt::format("{}.process{}", trace_path_, control_.index());
    trace_file(path, origin_ns_, clocks_).append({part});
    support::tell(fmt::format("process 0 does not answer: process {} has written its part of the timeline to {}",
                              control_.index(), path));
}

void profiler::write_statistics() {
    if (statistics_file_ == nullptr) return;
    json result;
    result["dcuda"] = DCUDA_VERSION_STRING;
    result["backend"] = DCUDA_BACKEND_CUDA ? "cuda" : "cpu";
    result["runs"] = run_;
    rank_statistics total;
    total.rank = -1;
    json by_process = json::array();
    for (const auto& [process, sum] : statistics_) {
        add(total, sum.total());
        json ranks = json::array();
        for (const rank_statistics& rank : sum.ranks) ranks.push_back(in_json(rank));
        by_process.push_back({{"process", process},
                              {"runs", sum.runs},
                              {"kernel_ms", sum.kernel_ms},
                              {"ring_commands", sum.ring_commands},
                              {"joules", energy_in_json(joules_.at(process))},
                              {"ranks", std::move(ranks)}});
    }
    result["total"] = in_json(total);
    result["processes"] = std::move(by_process);
    const std::string text = result.dump(1) + "\n";
    const support::file_limit_as_error instead_of_signal;
    if (statistics_file_ != stderr) std::rewind(statistics_file_);
    const bool written = std::fwrite(text.data(), 1, text.size(), statistics_file_) == text.size();
    if (std::fflush(statistics_file_) == 0 && written) return;
    support::report_loss(
        fmt::format("the statistics {} cannot be written: {}", statistics_path_, std::strerror(errno)));
    if (statistics_file_ == stderr) return;
    // Rather nothing than a part of them.
    __fpurge(statistics_file_);
    [[maybe_unused]] const int cut = ftruncate(fileno(statistics_file_), 0);
}

} // namespace dcuda
