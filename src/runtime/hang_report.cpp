// SPDX-License-Identifier: BSD-3-Clause
#include "runtime/hang_report.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <deque>
#include <tuple>

namespace dcuda {

using namespace detail;

namespace {

constexpr std::size_t ranks_in_a_line = 12, ranks_missing = 4; // parts of a list
constexpr std::size_t lines_with_partners = 24, most_lines = 40;
constexpr std::size_t most_steps = 8, most_origins = 4;
constexpr std::uint32_t nobody = UINT32_MAX;

// A window is created by the device's ranks, and for the world by the hosts then.
bool is_of_world(const collective& where) { return where.comm == world && where.kind != operation::create_window; }

// What it is to the rank that waits. The communicator of create_window is not told: ranks meet on their device.
collective collective_of(const wait_record& wait) {
    const bool has_communicator = wait.where != operation::create_window;
    return {wait.where, has_communicator ? static_cast<communicator>(wait.detail) : device};
}

// "tag 3", "tags 3 to 10"
std::string name_tags(const wait_record& wait) {
    return wait.tags <= 1 ? fmt::format("tag {}", wait.detail)
                          : fmt::format("tags {} to {}", wait.detail, wait.detail + wait.tags - 1);
}

std::string name_ranks(const std::vector<std::uint32_t>& ranks, std::size_t most_parts) {
    if (ranks.size() == 1) return fmt::format("rank {}", ranks[0]);
    return fmt::format("{} ranks ({})", ranks.size(), list_ranks(ranks, most_parts));
}

} // namespace

std::string name_rank(std::uint32_t world_rank, rank_counts ranks) {
    const std::uint32_t number = world_rank % ranks.of_device, block = number / ranks.of_block;
    const std::string place = ranks.of_block == 1 ? fmt::format("block {}", block)
                                                  : fmt::format("part {} of block {}", number % ranks.of_block, block);
    return fmt::format("rank {} (process {}, {})", world_rank, world_rank / ranks.of_device, place);
}

std::string list_ranks(const std::vector<std::uint32_t>& ranks, std::size_t most_parts) {
    std::string text;
    std::size_t shown = 0;
    for (std::size_t i = 0; i < ranks.size(); ++shown) {
        std::size_t last = i;
        while (last + 1 < ranks.size() && ranks[last + 1] == ranks[last] + 1) ++last;
        if (shown == most_parts) return text + ", ...";
        if (i != 0) text += ", ";
        text += last == i ? fmt::format("{}", ranks[i]) : fmt::format("{}-{}", ranks[i], ranks[last]);
        i = last + 1;
    }
    return text;
}

hang_report::hang_report(std::uint32_t world_size, rank_counts counts, const std::vector<part>& known)
    : counts_(counts), waits_(world_size), known_(world_size), partners_(world_size) {
    for (const auto& [first, waits] : known)
        for (std::uint32_t i = 0; i < waits.size() && first + i < world_size; ++i) {
            waits_[first + i] = waits[i];
            known_[first + i] = true;
        }
    for (std::uint32_t rank = 0; rank < world_size; ++rank) {
        const wait_record& wait = waits_[rank];
        std::uint32_t partner = nobody;
        if (wait_kind(rank) == waiting::delivery) partner = wait.detail;
        if (wait_kind(rank) == waiting::answer) partner = wait.detail;
        if (wait_kind(rank) == waiting::member) partner = wait.expected;
        if (wait_kind(rank) == waiting::notifications && wait.source != unknown_source) partner = wait.source - 1;
        if (partner < world_size) partners_[rank].push_back(partner);
        if (!meets(rank)) continue;
        if (const auto [place, is_new] = missing_.try_emplace(meeting_of(rank)); is_new)
            place->second = find_missing(place->first);
    }
}

hang_report::state hang_report::state_of(std::uint32_t rank) const {
    if (!known_[rank]) return state::unknown;
    if (wait_kind(rank) == waiting::no) return state::running;
    return wait_kind(rank) == waiting::done ? state::done : state::waiting;
}

const hang_report::ranks& hang_report::awaited_by(std::uint32_t rank) const {
    return meets(rank) ? missing_.at(meeting_of(rank)) : partners_[rank];
}

// The last rank of a device in create_window waits for its host, which waits for the other devices: all of that is
// create_window. For another communicator the host waits for other hosts alone: its members have met.
bool hang_report::asks_for_world(std::uint32_t rank) const {
    return wait_kind(rank) == waiting::host_reply && waits_[rank].detail == static_cast<std::uint32_t>(world);
}

bool hang_report::has_arrived(std::uint32_t rank, const collective& where) const {
    const waiting now = wait_kind(rank);
    if (now == waiting::host_reply) return where.kind == operation::create_window && asks_for_world(rank);
    if (now == waiting::done) return where.kind == operation::finish;
    return (now == waiting::collective || now == waiting::other_devices) && collective_of(waits_[rank]) == where;
}

// It sends nothing any more.
bool hang_report::is_at_end(std::uint32_t rank) const {
    return known_[rank] && has_arrived(rank, {operation::finish, world});
}

bool hang_report::meets(std::uint32_t rank) const {
    const waiting now = wait_kind(rank);
    return known_[rank] && (now == waiting::collective || now == waiting::other_devices || asks_for_world(rank));
}

hang_report::meeting hang_report::meeting_of(std::uint32_t rank) const {
    if (asks_for_world(rank)) return {{operation::create_window, device}, whole_world};
    const collective where = collective_of(waits_[rank]);
    return {where, is_of_world(where) ? whole_world : rank / counts_.of_device};
}

hang_report::ranks hang_report::find_missing(const meeting& at) const {
    const auto& [where, group] = at;
    ranks missing, replies;
    const auto world_size = static_cast<std::uint32_t>(waits_.size());
    const std::uint32_t begin = group == whole_world ? 0 : group * counts_.of_device;
    const std::uint32_t end = group == whole_world ? world_size : std::min(world_size, begin + counts_.of_device);
    for (std::uint32_t rank = begin; rank < end; ++rank) {
        if (!known_[rank]) continue;
        if (!has_arrived(rank, where)) missing.push_back(rank);
        if (asks_for_world(rank)) replies.push_back(rank);
    }
    // All of a device are there: then they wait for the one that asks the host.
    return missing.empty() && group != whole_world ? replies : missing;
}

// For whom the collective operation waits that the rank is in.
std::string hang_report::name_missing(std::uint32_t rank) const {
    const ranks& missing = awaited_by(rank);
    if (!missing.empty()) return ", for " + name_ranks(missing, ranks_missing);
    return std::find(known_.begin(), known_.end(), false) != known_.end() ? ", for ranks that are not seen here" : "";
}

std::string hang_report::describe(std::uint32_t rank, bool with_partner) const {
    const wait_record& wait = waits_[rank];
    switch (wait_kind(rank)) {
    case waiting::notifications: {
        std::string from = ", never notified with this tag before";
        if (wait.source == unknown_source)
            from = ", senders not known";
        else if (wait.source != no_source)
            from =
                with_partner ? fmt::format(", last sent by rank {}", wait.source - 1) : ", last sent by various ranks";
        if (wait.where == operation::wait_notifications_from)
            return fmt::format("in wait_notifications_from({}, tag {}, count {}): {} arrived",
                               with_partner ? fmt::format("rank {}", wait.source - 1) : std::string("a rank"),
                               wait.detail, wait.expected, wait.seen);
        if (takes_any_tag(wait.where))
            return fmt::format("in {}({}): none arrived{}", traits_of(wait.where).name, name_tags(wait), from);
        return fmt::format("in wait_notifications(tag {}, count {}): {} arrived{}", wait.detail, wait.expected,
                           wait.seen, from);
    }
    case waiting::collective:
    case waiting::other_devices:
        return fmt::format("in {}{}", name_of(collective_of(wait)),
                           with_partner ? name_missing(rank) : ", for other ranks");
    case waiting::member:
        return fmt::format("in {} on {}, for {}", traits_of(wait.where).name, name_of_communicator(wait.detail),
                           with_partner && wait.expected != nobody ? fmt::format("rank {}", wait.expected)
                                                                   : std::string("other members"));
    case waiting::threads:
        return fmt::format("in the constructor of dcuda::rank: {} of its {} threads have called it", wait.seen,
                           wait.expected);
    case waiting::host_reply:
        return "in create_window, for its host and the ranks of other processes";
    case waiting::flush:
        return "in flush, for puts over the network to arrive";
    case waiting::answer:
        return fmt::format("in {}, for the result from the process of {}", traits_of(wait.where).name,
                           with_partner ? fmt::format("rank {}", wait.detail) : std::string("other ranks"));
    case waiting::delivery:
        return fmt::format("in {}, for what it has put to {} to be taken", traits_of(wait.where).name,
                           with_partner ? fmt::format("rank {}", wait.detail) : std::string("other ranks"));
    case waiting::ring_space:
        return "in an operation that needs space in the command ring, for its host";
    case waiting::done:
        return "done";
    case waiting::no:
        break;
    }
    return "running";
}

std::string hang_report::lines() const {
    struct group {
        ranks members;
        std::uint32_t least_ms = UINT32_MAX, most_ms = 0;
    };
    std::map<std::string, group> groups;
    for (const bool with_partner : {true, false}) {
        if (!with_partner && groups.size() <= lines_with_partners) break;
        groups.clear();
        for (std::uint32_t rank = 0; rank < waits_.size(); ++rank) {
            if (!known_[rank]) continue;
            group& own = groups[describe(rank, with_partner)];
            own.members.push_back(rank);
            own.least_ms = std::min(own.least_ms, waits_[rank].age_ms);
            own.most_ms = std::max(own.most_ms, waits_[rank].age_ms);
        }
    }
    // First what few ranks wait for, whoever their partners are.
    std::map<std::string, std::size_t> alike;
    for (std::uint32_t rank = 0; rank < waits_.size(); ++rank)
        if (known_[rank]) ++alike[describe(rank, false)];
    using place = std::map<std::string, group>::const_iterator;
    std::vector<std::pair<std::tuple<std::size_t, std::size_t, std::uint32_t>, place>> order;
    for (auto each = groups.cbegin(); each != groups.cend(); ++each) {
        const ranks& members = each->second.members;
        order.push_back({{alike.at(describe(members[0], false)), members.size(), members[0]}, each});
    }
    std::sort(order.begin(), order.end(), [](const auto& a, const auto& b) { return a.first < b.first; });
    std::string text;
    for (std::size_t i = 0; i < order.size(); ++i) {
        const auto& [wait, same] = *order[i].second;
        if (i == most_lines) {
            text += fmt::format("\n  ... and {} more lines", order.size() - i);
            break;
        }
        const std::string who =
            same.members.size() == 1 ? name_rank(same.members[0], counts_) : name_ranks(same.members, ranks_in_a_line);
        text += fmt::format("\n  {} {}", who, wait);
        const double least = 1e-3 * same.least_ms, most = 1e-3 * same.most_ms;
        if (same.most_ms >= same.least_ms + 100)
            text += fmt::format(" ({:.1f} to {:.1f} s)", least, most);
        else if (same.most_ms != 0)
            text += fmt::format(" ({:.1f} s)", most);
    }
    return text;
}

std::string hang_report::conclusion(std::uint32_t least_age_ms) const {
    const ranks cycle = find_cycle(least_age_ms);
    if (cycle.empty()) return describe_origins(least_age_ms);
    const bool is_guess = std::any_of(cycle.begin(), cycle.end(), [&](std::uint32_t rank) {
        return wait_kind(rank) == waiting::notifications && waits_[rank].where != operation::wait_notifications_from;
    });
    if (!is_guess) return describe_cycle(cycle);
    return describe_cycle(cycle) +
           "\n  (taking who sent the last notification with a tag for who should send the next)" +
           describe_origins(least_age_ms);
}

hang_report::dependants hang_report::find_dependants(std::uint32_t first, std::uint32_t count) const {
    dependants result;
    std::vector<bool> depends(waits_.size());
    const auto add = [&](ranks& list, std::uint32_t rank) {
        list.push_back(rank);
        depends[rank] = true;
    };
    const auto is_among = [&](std::uint32_t rank) { return rank >= first && rank - first < count; };
    for (std::uint32_t rank = 0; rank < waits_.size(); ++rank) {
        if (!waits(rank)) continue;
        const ranks& awaited = awaited_by(rank);
        if (meets(rank) ? awaited.empty() && meeting_of(rank).group == whole_world
                        : std::any_of(awaited.begin(), awaited.end(), is_among))
            add(result.certain, rank);
        else if (awaited.empty() && (wait_kind(rank) == waiting::notifications || wait_kind(rank) == waiting::flush ||
                                     wait_kind(rank) == waiting::host_reply))
            add(result.possible, rank);
    }
    for (bool any = true; any;) {
        any = false;
        for (std::uint32_t rank = 0; rank < waits_.size(); ++rank) {
            if (!waits(rank) || depends[rank]) continue;
            const ranks& awaited = awaited_by(rank);
            if (std::none_of(awaited.begin(), awaited.end(), [&](std::uint32_t each) { return depends[each]; }))
                continue;
            add(result.further, rank);
            any = true;
        }
    }
    std::sort(result.further.begin(), result.further.end());
    return result;
}

template <class Predicate>
hang_report::graph hang_report::build_graph(const Predicate& has_next) const {
    const auto world_size = static_cast<std::uint32_t>(waits_.size());
    std::map<meeting, std::uint32_t> vertices;
    for (const auto& each : missing_)
        vertices.emplace(each.first, world_size + static_cast<std::uint32_t>(vertices.size()));
    graph result{std::vector<ranks>(world_size + vertices.size()), std::vector<ranks>(world_size + vertices.size())};
    for (std::uint32_t rank = 0; rank < world_size; ++rank)
        if (waits(rank) && has_next(rank))
            result.next[rank] = meets(rank) ? ranks{vertices.at(meeting_of(rank))} : partners_[rank];
    for (const auto& [key, vertex] : vertices) result.next[vertex] = missing_.at(key);
    for (std::uint32_t vertex = 0; vertex < result.next.size(); ++vertex)
        for (const std::uint32_t target : result.next[vertex]) result.before[target].push_back(vertex);
    return result;
}

hang_report::ranks hang_report::find_cycle(std::uint32_t least_age_ms) const {
    const auto world_size = static_cast<std::uint32_t>(waits_.size());
    // Who is at the end of the kernel waits for all others, but will do nothing any more: no link of a chain.
    const graph links =
        build_graph([&](std::uint32_t rank) { return !is_at_end(rank) && waits_[rank].age_ms >= least_age_ms; });
    const auto& next = links.next; // clang 14 lets no lambda refer to a structured binding
    const auto& before = links.before;

    // Takes away all from which no cycle can be reached.
    std::vector<std::size_t> left(next.size());
    std::deque<std::uint32_t> ends;
    for (std::uint32_t vertex = 0; vertex < next.size(); ++vertex)
        if ((left[vertex] = next[vertex].size()) == 0) ends.push_back(vertex);
    for (; !ends.empty(); ends.pop_front())
        for (const std::uint32_t vertex : before[ends.front()])
            if (--left[vertex] == 0) ends.push_back(vertex);
    const auto is_left = [&](std::uint32_t vertex) { return left[vertex] != 0; };

    // The shortest cycle through a vertex from which there is one.
    const auto shortest_through = [&](std::uint32_t start) {
        std::vector<std::uint32_t> from(next.size(), nobody);
        std::deque<std::uint32_t> reached{start};
        while (from[start] == nobody) {
            for (const std::uint32_t vertex : next[reached.front()])
                if (is_left(vertex) && from[vertex] == nobody) {
                    from[vertex] = reached.front();
                    reached.push_back(vertex);
                }
            reached.pop_front();
        }
        ranks cycle;
        std::uint32_t vertex = start;
        do {
            if (vertex < world_size) cycle.push_back(vertex);
            vertex = from[vertex];
        } while (vertex != start);
        std::reverse(cycle.begin(), cycle.end());
        return cycle;
    };

    // From any of the others a walk comes into a cycle; there may be shorter ones through its ranks.
    std::uint32_t at = 0;
    while (at < world_size && !is_left(at)) ++at;
    if (at == world_size) return {};
    std::vector<bool> visited(next.size());
    while (!visited[at] || at >= world_size) {
        visited[at] = true;
        at = *std::find_if(next[at].begin(), next[at].end(), is_left);
    }
    ranks cycle = shortest_through(at);
    const ranks first = cycle;
    for (std::size_t i = 0; i < first.size() && i < most_steps; ++i)
        if (const ranks other = shortest_through(first[i]); other.size() < cycle.size()) cycle = other;
    std::rotate(cycle.begin(), std::min_element(cycle.begin(), cycle.end()), cycle.end());
    return cycle;
}

// "waits in barrier(world) for rank 3"
std::string hang_report::describe_step(std::uint32_t from, std::uint32_t waited_for) const {
    const wait_record& wait = waits_[from];
    if (wait.where == operation::wait_notifications_from)
        return fmt::format("waits for notifications with tag {} from rank {}", wait.detail, waited_for);
    if (wait_kind(from) == waiting::notifications)
        return fmt::format("waits for notifications with {}, last sent by rank {}", name_tags(wait), waited_for);
    if (wait_kind(from) == waiting::member)
        return fmt::format("waits in {} on {} for rank {}", traits_of(wait.where).name,
                           name_of_communicator(wait.detail), waited_for);
    if (wait_kind(from) == waiting::delivery)
        return fmt::format("waits in {} for rank {} to take what it has put there", traits_of(wait.where).name,
                           waited_for);
    if (wait_kind(from) == waiting::answer)
        return fmt::format("waits in {} for the process of rank {}", traits_of(wait.where).name, waited_for);
    const collective where = asks_for_world(from) ? collective{operation::create_window, device} : collective_of(wait);
    return fmt::format("waits in {} for rank {}", name_of(where), waited_for);
}

std::string hang_report::describe_cycle(const ranks& cycle) const {
    std::string text = fmt::format("\ncycle: rank {} ", cycle[0]);
    for (std::size_t i = 0; i < cycle.size(); ++i) {
        if (i >= most_steps && i + 1 < cycle.size()) continue; // the last one closes it
        if (i != 0) text += i > most_steps ? fmt::format(", and so on to rank {}, which ", cycle[i]) : ", which ";
        text += describe_step(cycle[i], cycle[(i + 1) % cycle.size()]);
    }
    return text;
}

// Ranks that wait, directly or through others, for one of these.
std::size_t hang_report::count_dependants(const ranks& on) const {
    const graph all = build_graph([](std::uint32_t) { return true; });
    std::vector<bool> reached(all.next.size());
    std::vector<std::uint32_t> open = on;
    for (const std::uint32_t rank : on) reached[rank] = true;
    std::size_t count = 0;
    while (!open.empty()) {
        const std::uint32_t at = open.back();
        open.pop_back();
        for (const std::uint32_t vertex : all.before[at]) {
            if (reached[vertex]) continue;
            reached[vertex] = true;
            open.push_back(vertex);
            if (vertex < waits_.size()) ++count;
        }
    }
    return count;
}

std::string hang_report::describe_origins(std::uint32_t least_age_ms) const {
    std::map<std::string, ranks> by_reason;
    for (std::uint32_t rank = 0; rank < waits_.size(); ++rank) {
        const wait_record& wait = waits_[rank];
        if (!waits(rank) || is_at_end(rank) || wait.age_ms < least_age_ms) continue;
        if (wait_kind(rank) == waiting::notifications && wait.source == no_source)
            by_reason[fmt::format("for notifications with {}; nobody has sent one before", name_tags(wait))].push_back(
                rank);
        else if (wait_kind(rank) == waiting::notifications && wait.source == unknown_source)
            by_reason[fmt::format("for notifications with {}; who sends them is not known", name_tags(wait))].push_back(
                rank);
        const ranks& others = awaited_by(rank);
        const auto idle = std::find_if(others.begin(), others.end(), [&](std::uint32_t other) {
            return is_at_end(other) || state_of(other) == state::running;
        });
        if (idle == others.end()) continue;
        const std::string step = describe_step(rank, *idle).substr(std::string_view("waits ").size());
        by_reason[fmt::format("{}, which {}", step,
                              !is_at_end(*idle) ? "runs, or hangs in a call that only some of its threads have made"
                              : state_of(*idle) == state::done ? "has finished"
                                                               : "has reached the end of the kernel")]
            .push_back(rank);
    }
    std::string text;
    std::size_t shown = 0;
    for (const auto& [reason, members] : by_reason) {
        if (shown++ == most_origins) return text + fmt::format("\n  ... and {} more", by_reason.size() - most_origins);
        const std::size_t others = count_dependants(members);
        text += fmt::format("\norigin: {} wait{} {}", name_ranks(members, ranks_missing),
                            members.size() == 1 ? "s" : "", reason);
        if (others != 0)
            text += fmt::format("; {} other rank{} for {}", others, others == 1 ? " waits" : "s wait",
                                members.size() == 1 ? "it" : "them");
    }
    return text;
}

} // namespace dcuda
