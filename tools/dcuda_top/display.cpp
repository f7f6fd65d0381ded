// SPDX-License-Identifier: BSD-3-Clause
#include "display.hpp"

#include "runtime/hang_report.hpp"

#include <fmt/format.h>
#include <map>
#include <nlohmann/json.hpp>
#include <sstream>

namespace top {

namespace {

using dcuda::hang_report;
using dcuda::snapshot;
using json = nlohmann::ordered_json;

// A wait that is shorter may be over when the next process is asked: it makes no cycle.
constexpr std::uint32_t long_wait_ms = 1000;
constexpr std::size_t most_awaited = 16; // named for each rank in JSON

// What a path carries in a second.
struct rate {
    const char* path;
    double messages, bytes;
};

// Since the poll before, or since the run began.
std::vector<rate> rates_of(const process& shown) {
    std::vector<rate> rates;
    const snapshot& now = *shown.seen;
    if (!now.sent) return rates;
    const bool has_before = shown.before && shown.before->sent;
    const dcuda::sent_messages before = has_before ? *shown.before->sent : dcuda::sent_messages{};
    const double seconds = now.run_seconds - (has_before ? shown.before->run_seconds : 0);
    const auto add = [&](const char* name, const dcuda::path_statistics& current,
                         const dcuda::path_statistics& previous) {
        const auto messages = [](const dcuda::path_statistics& path) {
            return path.puts + path.notified_puts + path.notifications;
        };
        if (messages(current) == 0 || seconds <= 0) return;
        rates.push_back({name, static_cast<double>(messages(current) - messages(previous)) / seconds,
                         static_cast<double>(current.bytes - previous.bytes) / seconds});
    };
    add("local", now.sent->local, before.local);
    add("peer", now.sent->peer, before.peer);
    add("network", now.sent->network, before.network);
    return rates;
}

// "12.3 k"
std::string with_prefix(double value) {
    const char* const prefixes[] = {"", "k", "M", "G", "T"};
    std::size_t i = 0;
    for (; value >= 999.5 && i + 1 < std::size(prefixes); ++i) value /= 1000;
    return fmt::format("{:.3g} {}", value, prefixes[i]);
}

std::string describe_rates(const process& shown) {
    std::string text;
    for (const rate& each : rates_of(shown))
        text += fmt::format("{}{} {} messages/s, {}B/s", text.empty() ? "    " : "; ", each.path,
                            with_prefix(each.messages), with_prefix(each.bytes));
    return text.empty() ? text : text + '\n';
}

// The processes of one job that have answered, by their index.
struct job {
    std::map<int, const snapshot*> processes;
    std::map<int, const process*> asked; // the same
    const snapshot& any() const { return *processes.begin()->second; }
    hang_report table() const {
        std::vector<hang_report::part> known;
        for (const auto& [index, each] : processes)
            known.emplace_back(static_cast<std::uint32_t>(index) * each->ranks_per_device, each->waits);
        return {any().ranks_per_device * static_cast<std::uint32_t>(any().processes),
                {any().ranks_per_device, any().ranks_per_block},
                known};
    }
};

std::map<std::string, job> by_job(const std::vector<process>& processes) {
    std::map<std::string, job> jobs;
    for (const process& each : processes)
        if (each.seen) {
            job& entry = jobs[each.seen->job];
            auto& members = entry.processes;
            // The processes of a job agree on its size.
            const snapshot& other = members.empty() ? *each.seen : *members.begin()->second;
            if (each.seen->processes == other.processes && each.seen->ranks_per_device == other.ranks_per_device &&
                each.seen->ranks_per_block == other.ranks_per_block)
                if (members.emplace(each.seen->process, &*each.seen).second)
                    entry.asked.emplace(each.seen->process, &each);
        }
    return jobs;
}

// How many of the process's ranks are in a state.
std::size_t count(const hang_report& table, const snapshot& shown, hang_report::state state) {
    std::size_t result = 0;
    const std::uint32_t first = static_cast<std::uint32_t>(shown.process) * shown.ranks_per_device;
    for (std::uint32_t rank = first; rank < first + shown.ranks_per_device; ++rank)
        result += table.state_of(rank) == state;
    return result;
}

std::string describe_process(const hang_report& table, const snapshot& shown) {
    const std::uint32_t first = static_cast<std::uint32_t>(shown.process) * shown.ranks_per_device;
    return fmt::format("  process {} (pid {}, {}), ranks {}-{}: {} running, {} waiting, {} done; run {} for {:.1f} s\n",
                       shown.process, shown.pid, shown.device, first, first + shown.ranks_per_device - 1,
                       count(table, shown, hang_report::state::running),
                       count(table, shown, hang_report::state::waiting), count(table, shown, hang_report::state::done),
                       shown.run, shown.run_seconds);
}

std::string describe_ranks(const hang_report& table, const job& shown) {
    std::string text;
    for (const auto& [index, each] : shown.processes)
        for (std::uint32_t number = 0; number < each->ranks_per_device; ++number) {
            const std::uint32_t rank = static_cast<std::uint32_t>(index) * each->ranks_per_device + number;
            text += fmt::format("\n  {} {}", dcuda::name_rank(rank, {each->ranks_per_device, each->ranks_per_block}),
                                table.describe(rank));
            if (const auto age = table.wait_of(rank).age_ms; age != 0) text += fmt::format(" ({:.1f} s)", 1e-3 * age);
        }
    return text;
}

const char* name(hang_report::state state) {
    switch (state) {
    case hang_report::state::running:
        return "running";
    case hang_report::state::waiting:
        return "waiting";
    case hang_report::state::done:
        return "done";
    case hang_report::state::unknown:
        break;
    }
    return "unknown";
}

json rank_as_json(const hang_report& table, const snapshot& shown, std::uint32_t number) {
    const std::uint32_t rank = static_cast<std::uint32_t>(shown.process) * shown.ranks_per_device + number;
    const auto& wait = table.wait_of(rank);
    json result = {{"rank", rank},
                   {"process", shown.process},
                   {"block", number / shown.ranks_per_block},
                   {"part", number % shown.ranks_per_block},
                   {"state", name(table.state_of(rank))}};
    if (table.state_of(rank) != hang_report::state::waiting) return result;
    result["seconds"] = 1e-3 * wait.age_ms;
    result["waits"] = table.describe(rank);
    if (wait.kind == dcuda::detail::waiting::notifications) {
        result["tag"] = wait.detail;
        result["count"] = wait.expected;
        result["arrived"] = wait.seen;
    }
    const auto& others = table.awaited_by(rank);
    result["for"] = std::vector(others.begin(),
                                others.begin() + static_cast<std::ptrdiff_t>(std::min(others.size(), most_awaited)));
    result["for_count"] = others.size();
    return result;
}

std::vector<std::string> lines_of(const std::string& text) {
    std::vector<std::string> lines;
    std::istringstream stream(text);
    for (std::string line; std::getline(stream, line);)
        if (!line.empty()) lines.push_back(line);
    return lines;
}

} // namespace

std::string as_text(const std::vector<process>& processes, detail level) {
    std::string text;
    for (const auto& [id, job] : by_job(processes)) {
        const hang_report table = job.table();
        const snapshot& any = job.any();
        if (!text.empty()) text += '\n';
        text += fmt::format("job {}: {} on {}, {} of {} process{}\n", id, any.program, any.host, job.processes.size(),
                            any.processes, any.processes == 1 ? "" : "es");
        for (const auto& [index, each] : job.processes)
            text += describe_process(table, *each) + describe_rates(*job.asked.at(index));
        if (!any.sent) text += "  rates of messages: start the program with DCUDA_STATS=1 to see them\n";
        if (const int elsewhere = any.processes - any.processes_here; elsewhere > 0)
            text += fmt::format("  {} of its processes run on other hosts: dcuda-top there shows them\n", elsewhere);
        text += "ranks" + (level == detail::ranks ? describe_ranks(table, job) : table.lines()) +
                table.conclusion(long_wait_ms) + '\n';
    }
    for (const process& each : processes)
        if (!each.seen) text += fmt::format("pid {} ({}): {}\n", each.pid, each.program, each.problem);
    return text;
}

std::string as_json(const std::vector<process>& processes) {
    json jobs = json::array(), silent = json::array();
    for (const auto& [id, job] : by_job(processes)) {
        const hang_report table = job.table();
        json members = json::array(), ranks = json::array();
        for (const auto& [index, each] : job.processes) {
            json rates;
            for (const rate& path : rates_of(*job.asked.at(index)))
                rates[path.path] = {{"messages_per_second", path.messages}, {"bytes_per_second", path.bytes}};
            members.push_back({{"process", index},
                               {"pid", each->pid},
                               {"device", each->device},
                               {"run", each->run},
                               {"run_seconds", each->run_seconds},
                               {"rates", each->sent ? rates : json("not counted")}});
            for (std::uint32_t number = 0; number < each->ranks_per_device; ++number)
                ranks.push_back(rank_as_json(table, *each, number));
        }
        const snapshot& any = job.any();
        jobs.push_back({{"job", id},
                        {"program", any.program},
                        {"host", any.host},
                        {"backend", any.backend},
                        {"version", any.version},
                        {"processes", any.processes},
                        {"processes_on_this_host", any.processes_here},
                        {"ranks_per_device", any.ranks_per_device},
                        {"seen", members},
                        {"ranks", ranks},
                        {"conclusion", lines_of(table.conclusion(long_wait_ms))}});
    }
    for (const process& each : processes)
        if (!each.seen) silent.push_back({{"pid", each.pid}, {"program", each.program}, {"problem", each.problem}});
    return json{{"jobs", jobs}, {"silent", silent}}.dump(-1, ' ', false, json::error_handler_t::replace) + "\n";
}

} // namespace top
