// SPDX-License-Identifier: BSD-3-Clause
#include "trace/timeline.hpp"

#include <algorithm>
#include <map>
#include <unordered_map>
#include <unordered_set>

namespace dcuda {

using namespace detail;

namespace {

bool is(const trace_event& event, marker kind) { return (event.kind & 0xff) == static_cast<std::uint32_t>(kind); }

bool is(const trace_event& event, operation kind) { return (event.kind & 0xff) == static_cast<std::uint32_t>(kind); }

// A rank's ticks as times of the device: between samples of both clocks, linear.
class tick_clock {
public:
    tick_clock(const rank_counters& counters, const std::vector<trace_event>& events) {
        add(counters.first);
        for (const trace_event& event : events)
            if (is(event, marker::clock)) add({event.begin, event.tag | static_cast<std::uint64_t>(event.peer) << 32});
        add(counters.last);
        rate_ = ns_per_tick(counters);
    }

    std::uint64_t device_ns(std::uint64_t ticks) const {
        const auto after =
            std::upper_bound(samples_.begin(), samples_.end(), ticks,
                             [](std::uint64_t at, const clock_pair& sample) { return at < sample.ticks; });
        const clock_pair& from = after == samples_.begin() ? samples_.front() : *(after - 1);
        double rate = rate_;
        if (after != samples_.begin() && after != samples_.end())
            rate = static_cast<double>(after->ns - from.ns) / static_cast<double>(after->ticks - from.ticks);
        return from.ns + static_cast<std::uint64_t>(static_cast<std::int64_t>(
                             rate * static_cast<double>(static_cast<std::int64_t>(ticks - from.ticks))));
    }

private:
    void add(const clock_pair& sample) {
        if (samples_.empty() || sample.ticks > samples_.back().ticks) samples_.push_back(sample);
    }
    std::vector<clock_pair> samples_;
    double rate_;
};

std::vector<slice> make_slices(const process_profile& part, std::size_t rank, std::int64_t host_clock) {
    const rank_counters& counters = part.counters[rank];
    const std::vector<trace_event>& events = part.events[rank];
    const tick_clock ticks(counters, events);
    const auto time = [&](std::uint64_t at) { return part.about.clocks.host_time(ticks.device_ns(at)) + host_clock; };
    const std::int64_t run_end = static_cast<std::int64_t>(part.about.end_ns) + host_clock;
    const bool has_finished = std::any_of(events.begin(), events.end(),
                                          [](const trace_event& event) { return is(event, operation::finish); });
    const std::int64_t begin = time(counters.first.ticks);
    const std::int64_t end = has_finished ? time(counters.last.ticks) : std::max(begin, run_end);

    std::vector<slice> slices{
        {begin, end, operation::none, false, event_path::none, false, !has_finished, 0, 0, 0, 0, {}}};
    std::vector<std::size_t> open; // ranges
    std::uint64_t last_ticks = 0;
    for (const trace_event& event : events) {
        if (is(event, marker::clock)) continue;
        const std::uint64_t duration = event.ticks | static_cast<std::uint64_t>(event.kind >> 16) << 32;
        last_ticks = std::max(last_ticks, event.begin + duration);
        slice now{time(event.begin),
                  time(event.begin + duration),
                  is(event, marker::range_begin) ? operation::none : static_cast<operation>(event.kind & 0xff),
                  is(event, marker::range_begin),
                  static_cast<event_path>(event.kind >> 8 & 0x7f),
                  (event.kind & event_through_mailbox) != 0,
                  false,
                  event.tag,
                  event.peer,
                  event.window & 0xffff,
                  event.bytes | static_cast<std::uint64_t>(event.window >> 16) << 32,
                  {}};
        if (is(event, marker::range_end)) {
            if (open.empty()) continue; // its begin was overwritten
            slices[open.back()].end_ns = now.begin_ns;
            slices[open.back()].unfinished = false;
            open.pop_back();
            continue;
        }
        if (now.is_range) {
            const std::uint64_t address = event.tag | static_cast<std::uint64_t>(event.bytes) << 32;
            const auto name = part.names.find(address);
            now.name = name != part.names.end() ? name->second.substr(0, event.window & 0xff) : "range";
            if ((event.window & range_numbered) != 0)
                now.name += ' ' + std::to_string(static_cast<std::int32_t>(event.peer));
            now.end_ns = end;
            now.unfinished = true;
            open.push_back(slices.size());
        }
        slices.push_back(std::move(now));
    }
    if (rank < part.waits.size()) {
        const wait_record& wait = part.waits[rank];
        const std::uint64_t since = wait.since[0] | static_cast<std::uint64_t>(wait.since[1]) << 32;
        const std::uint32_t operands = traits_of(wait.where).operands;
        if (wait.kind != waiting::no && wait.kind != waiting::done && since >= last_ticks)
            slices.push_back({time(since),
                              end,
                              wait.where,
                              false,
                              event_path::none,
                              false,
                              true,
                              (operands & (operand::tag | operand::communicator)) != 0 ? wait.detail : 0,
                              (operands & operand::count) != 0 ? wait.expected : 0,
                              0,
                              (operands & operand::source) != 0 ? wait.source - 1 : 0,
                              {}});
    }
    std::stable_sort(slices.begin() + 1, slices.end(), [](const slice& a, const slice& b) {
        return a.begin_ns != b.begin_ns ? a.begin_ns < b.begin_ns : a.end_ns > b.end_ns;
    });
    return slices;
}

// What notifications of one tag to one rank, and of one source where its waits name one, were issued and consumed.
struct ledger {
    struct entry {
        std::int64_t time_ns;
        std::size_t rank, slice;
    };
    std::vector<entry> issued, consumed;
};

} // namespace

double ns_per_tick(const rank_counters& counters) {
    const auto [first, last] = std::pair(counters.first, counters.last);
    if (last.ticks <= first.ticks) return 1;
    return static_cast<double>(last.ns - first.ns) / static_cast<double>(last.ticks - first.ticks);
}

std::vector<rank_timeline> make_timelines(const process_profile& part, std::int64_t clock) {
    std::vector<rank_timeline> result;
    for (std::size_t rank = 0; rank < part.events.size(); ++rank) {
        if (part.counters[rank].first.ticks == 0) continue; // it has not begun
        result.push_back({part.about.first_rank + static_cast<int>(rank), part.about.process,
                          part.counters[rank].events - part.events[rank].size(), make_slices(part, rank, clock)});
    }
    return result;
}

std::vector<arrow> match_notifications(const std::vector<rank_timeline>& ranks) {
    constexpr std::uint64_t any_source = UINT64_MAX;
    const auto key_of = [](std::uint64_t target, std::uint32_t tag) { return target << 32 | tag; };
    const auto names_source = [](const slice& at) { return (traits_of(at.kind).operands & operand::source) != 0; };
    std::unordered_set<std::uint64_t> matched; // by source
    for (const rank_timeline& rank : ranks)
        for (const slice& at : rank.slices)
            if (names_source(at)) matched.insert(key_of(static_cast<std::uint32_t>(rank.rank), at.tag));
    std::unordered_map<std::uint64_t, std::map<std::uint64_t, ledger>> ledgers; // by that, and source
    bool complete = true;
    for (std::size_t r = 0; r < ranks.size(); ++r) {
        complete = complete && ranks[r].dropped == 0;
        for (std::size_t i = 0; i < ranks[r].slices.size(); ++i) {
            const slice& at = ranks[r].slices[i];
            if (at.unfinished) continue;
            const auto own = static_cast<std::uint32_t>(ranks[r].rank);
            if (notifies(at.kind)) {
                const std::uint64_t key = key_of(at.peer, at.tag);
                ledgers[key][matched.count(key) != 0 ? own : any_source].issued.push_back({at.begin_ns, r, i});
            } else if (traits_of(at.kind).kind == activity::waiting) {
                ledgers[key_of(own, at.tag)][names_source(at) ? at.bytes : any_source].consumed.push_back(
                    {at.begin_ns, r, i});
            }
        }
    }
    std::vector<arrow> arrows;
    const auto match = [&](ledger& book) {
        const auto earlier = [](const ledger::entry& a, const ledger::entry& b) { return a.time_ns < b.time_ns; };
        std::stable_sort(book.issued.begin(), book.issued.end(), earlier);
        std::uint64_t wanted = 0;
        for (const ledger::entry& wait : book.consumed) wanted += ranks[wait.rank].slices[wait.slice].peer;
        // With something missing, the last notification belongs to the last wait.
        std::int64_t next =
            complete ? 0 : static_cast<std::int64_t>(book.issued.size()) - static_cast<std::int64_t>(wanted);
        for (const ledger::entry& wait : book.consumed) {
            const std::int64_t behind = next + ranks[wait.rank].slices[wait.slice].peer;
            const auto last = std::min(behind, static_cast<std::int64_t>(book.issued.size()));
            for (std::int64_t number = std::max<std::int64_t>(next, 0); number < last; ++number) {
                const ledger::entry& from = book.issued[static_cast<std::size_t>(number)];
                arrows.push_back({from.rank, from.slice, wait.rank, wait.slice});
            }
            next = behind;
        }
    };
    for (auto& [key, by_source] : ledgers)
        for (auto& [source, book] : by_source) match(book);
    std::sort(arrows.begin(), arrows.end(), [&](const arrow& a, const arrow& b) {
        return std::pair(a.target, a.target_slice) != std::pair(b.target, b.target_slice)
                   ? std::pair(a.target, a.target_slice) < std::pair(b.target, b.target_slice)
                   : std::pair(a.source, a.source_slice) < std::pair(b.source, b.source_slice);
    });
    return arrows;
}

} // namespace dcuda
