// SPDX-License-Identifier: BSD-3-Clause
#include "runtime/agreement.hpp"

#include "device/occupancy.hpp"
#include "support/check.hpp"
#include "support/wire.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <string>

namespace dcuda {

namespace {

// What each process brings to the agreement on a run.
struct proposal {
    int limit;
    int requested, ranks_per_block;
    unsigned threads[3];
    std::size_t shared_bytes;
    int tags, match_sources;
    int max_windows;
    int mailbox_packets, mailbox_queues;
    int small_put_bytes, bounce_bytes, leader_members;
    std::int64_t wait_timeout_ns;
    int profiled;
};

} // namespace

int agree_on_ranks(bootstrap::control& control, const settings& chosen, bool with_network, const void* kernel,
                   const launch_config& config) {
    const int requested = config.ranks_per_device != 0 ? config.ranks_per_device : chosen.ranks_per_device;
    rank_limit limit{0, ""};
    std::string failure;
    const std::size_t threads = std::size_t(config.threads.x) * config.threads.y * config.threads.z;
    const int parts = config.ranks_per_block;
    if (config.ranks_per_device < 0 || config.threads.x == 0 || config.threads.y == 0 || config.threads.z == 0)
        failure = "launch_config: ranks_per_device must not be negative, threads must be at least 1 in each dimension";
    else if (parts < 1 || (parts > 1 && static_cast<std::size_t>(parts) > threads / 32))
        failure = fmt::format("launch_config: {} ranks of a block of {} threads: there can be 1 to {}, each of whole "
                              "warps of 32 threads",
                              parts, threads, std::max<std::size_t>(threads / 32, 1));
    else if (requested % parts != 0)
        failure = fmt::format("launch_config: {} ranks of a device, {} of each block: the first must be a multiple of "
                              "the second",
                              requested, parts);
    else
        try {
            limit = find_rank_limit(kernel, with_network, config);
        } catch (const error& problem) {
            failure = problem.what();
        }
    support::wire_writer message;
    message.put(proposal{limit.ranks,
                         requested,
                         parts,
                         {config.threads.x, config.threads.y, config.threads.z},
                         config.shared_bytes,
                         chosen.tags,
                         chosen.match_sources,
                         chosen.max_windows,
                         chosen.mailbox_packets,
                         chosen.mailbox_queues,
                         chosen.small_put_bytes,
                         chosen.bounce_bytes,
                         chosen.leader_members,
                         chosen.wait_timeout.count(),
                         config.profiled ? 1 : 0});
    message.put(std::string_view(limit.reason));
    message.put(std::string_view(failure));
    const auto proposals = control.allgather(message.bytes(), "agreeing on the number of ranks");

    int ranks = 0;
    proposal first{};
    for (int process = 0; process < control.count(); ++process) {
        support::wire_reader reader(proposals[static_cast<std::size_t>(process)]);
        const auto theirs = reader.get<proposal>();
        const std::string reason = reader.get_text(), problem = reader.get_text();
        if (!problem.empty())
            throw error(error_code::invalid_argument, fmt::format("process {}: {}", process, problem));
        if (process == 0) first = theirs;
        const bool same =
            theirs.requested == first.requested && theirs.ranks_per_block == first.ranks_per_block &&
            std::equal(theirs.threads, theirs.threads + 3, first.threads) && theirs.tags == first.tags &&
            theirs.match_sources == first.match_sources && theirs.max_windows == first.max_windows &&
            theirs.mailbox_packets == first.mailbox_packets && theirs.mailbox_queues == first.mailbox_queues &&
            theirs.small_put_bytes == first.small_put_bytes && theirs.bounce_bytes == first.bounce_bytes &&
            theirs.leader_members == first.leader_members && theirs.wait_timeout_ns == first.wait_timeout_ns &&
            theirs.shared_bytes == first.shared_bytes && theirs.profiled == first.profiled;
        support::require(
            same, error_code::invalid_argument,
            "processes 0 and {} disagree on the launch: ranks per device {} / {}, per block {} / {}, threads {}x{}x{} "
            "/ "
            "{}x{}x{}, shared bytes {} / {}, tags {} / {}, matched by source {} / {}, windows {} / {}, packets of a "
            "queue {} / {}, queues of a "
            "device {} / {} (-1: by its memory), small puts up to {} / {} B, large arrays from {} / {} B, leaders "
            "from {} / {} members of a device, wait timeout "
            "{} / {} ns, profiled {} / {}",
            process, first.requested, theirs.requested, first.ranks_per_block, theirs.ranks_per_block, first.threads[0],
            first.threads[1], first.threads[2], theirs.threads[0], theirs.threads[1], theirs.threads[2],
            first.shared_bytes, theirs.shared_bytes, first.tags, theirs.tags, first.match_sources, theirs.match_sources,
            first.max_windows, theirs.max_windows, first.mailbox_packets, theirs.mailbox_packets, first.mailbox_queues,
            theirs.mailbox_queues, first.small_put_bytes, theirs.small_put_bytes, first.bounce_bytes,
            theirs.bounce_bytes, first.leader_members, theirs.leader_members, first.wait_timeout_ns,
            theirs.wait_timeout_ns, first.profiled, theirs.profiled);
        support::require(theirs.limit > 0, error_code::out_of_resources,
                         "not even one block of {} threads fits on process {}'s device: {}",
                         theirs.threads[0] * theirs.threads[1] * theirs.threads[2], process, reason);
        support::require(theirs.limit >= theirs.requested, error_code::out_of_resources,
                         "{} ranks{} of {} threads were asked for, but at most {} are co-resident on process {}'s "
                         "device: {}",
                         theirs.requested, parts == 1 ? "" : fmt::format(", {} to a block", parts),
                         theirs.threads[0] * theirs.threads[1] * theirs.threads[2], theirs.limit, process, reason);
        const int fit = theirs.requested != 0 ? theirs.requested : default_ranks({theirs.limit, reason}, parts);
        ranks = process == 0 ? fit : std::min(ranks, fit);
    }
    return ranks;
}

} // namespace dcuda
