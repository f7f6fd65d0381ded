// SPDX-License-Identifier: BSD-3-Clause
#include "runtime/report.hpp"

#include "support/wire.hpp"

#include <fmt/format.h>

namespace dcuda {

using namespace detail;

namespace {

// Sizes that were negative numbers in the program read better as such.
std::int64_t as_signed(std::uint64_t value) { return static_cast<std::int64_t>(value); }

std::string name_window(std::uint32_t id) {
    return id == 0 ? std::string("the window none") : fmt::format("window {}", slot_of_window(id));
}

// What is wrong with a rank that is a part of a block.
std::string describe_part(const fault_fields& at) {
    const auto threads = [&] { return fmt::format("threads {} to {}", at.offset, at.offset + at.bytes - 1); };
    const std::string part = fmt::format(" of part {} of its block", at.window);
    switch (static_cast<part_problem>(at.target)) {
    case part_problem::kernel:
        return fmt::format(
            ": there shall be {} ranks of each block (launch_config::ranks_per_block), but the kernel was "
            "compiled without them: compile it with -DDCUDA_PARTS=1",
            at.limit);
    case part_problem::checked:
        return fmt::format("{}: the protocol checker (DCUDA_CHECK) follows ranks that are whole blocks only", part);
    case part_problem::whole:
        return fmt::format(": the rank is its whole block, but there shall be {} ranks of each "
                           "(launch_config::ranks_per_block): give the constructor a dcuda::part",
                           at.limit);
    case part_problem::index:
        return fmt::format("{}: there are parts 0 to {} (launch_config::ranks_per_block = {})", part, at.limit - 1,
                           at.limit);
    case part_problem::warps:
        return fmt::format(
            "{} with {} threads from thread {} on: a part is whole warps, so both must be multiples of 32, "
            "and not no threads",
            part, at.bytes, at.offset);
    case part_problem::block:
        return fmt::format("{}, {}: the block has {} threads", part, threads(), at.limit);
    case part_problem::thread:
        return fmt::format("{}, {}, called by thread {}: all threads of the part call it, and no others", part,
                           threads(), at.limit);
    case part_problem::barrier:
        return fmt::format(
            "{}, {}, at hardware barrier {}: there are barriers 1 to {}; with more parts than that, each "
            "must be one warp, which needs none",
            part, threads(), at.limit, hardware_barriers - 1);
    case part_problem::taken:
        return fmt::format("{}, {}, at hardware barrier {}: another part of the block meets there", part, threads(),
                           at.limit);
    case part_problem::overlap:
        return fmt::format("{}, {}: a warp of them belongs to part {}, too", part, threads(), at.limit);
    case part_problem::shape:
        return fmt::format("{}, {}: other threads say the same index, and another part", part, threads());
    case part_problem::state:
        return fmt::format("{}, {}: its dcuda::state is that of part {}, too; each rank needs one of its own", part,
                           threads(), at.limit);
    case part_problem::none:
        break;
    }
    return part;
}

// What has not come: of a wait for notifications `seen` of `expected` with this tag.
std::string describe_timeout(const std::string& who, operation where, waiting kind, std::uint32_t detail,
                             std::uint64_t seen, std::uint64_t expected, const tag_numbers& tags) {
    switch (kind) {
    case waiting::notifications:
        if (tags.has_source(detail))
            return fmt::format("{}_from(rank {}, tag {}, count {}): {} arrived", who, tags.source_of(detail),
                               tags.tag_of(detail), expected, seen);
        if (takes_any_tag(where)) return fmt::format("{} from tag {} on: none arrived", who, detail);
        return fmt::format("{}(tag {}, count {}): {} arrived", who, detail, expected, seen);
    case waiting::collective:
    case waiting::other_devices:
        return fmt::format("{}: not all ranks came to {}", who,
                           name_of(collective{where, static_cast<communicator>(detail)}));
    case waiting::member:
        if (expected == UINT32_MAX)
            return fmt::format("{} on {}: not all that members sent came", who, name_of_communicator(detail));
        return fmt::format("{} on {}: rank {} did not come", who, name_of_communicator(detail), expected);
    case waiting::delivery:
        return fmt::format("{}: rank {} did not take what this rank has put there", who, detail);
    case waiting::flush:
        return fmt::format("{}: not all puts arrived over the network", who);
    case waiting::answer:
        return fmt::format("{}: no result came over the network from the process of rank {}", who, detail);
    case waiting::host_reply:
        return fmt::format("{}: the processes did not open the window", who);
    default:
        return fmt::format("{}: what it waits for did not come", who);
    }
}

} // namespace

error describe_fault(const command& fault_command, std::uint32_t first_rank, rank_counts ranks,
                     const tag_numbers& tags) {
    const auto at = fields_of<fault_fields>(fault_command);
    const std::string who = name_rank(first_rank + fault_command.rank, ranks) + ": " + traits_of(at.where).name;
    const auto device_fault = [&](const std::string& text) { return error(error_code::device_fault, who + text); };

    switch (at.kind) {
    case fault::bounds:
        return device_fault(fmt::format(" of {} B at offset {} exceeds {} of rank {} ({} B)", as_signed(at.bytes),
                                        as_signed(at.offset), name_window(at.window), at.target, at.limit));
    case fault::alignment:
        return device_fault(
            fmt::format(" of {} B at offset {} of {} of rank {}: the element's address is no multiple of "
                        "its size",
                        at.bytes, as_signed(at.offset), name_window(at.window), at.target));
    case fault::pitch:
        return device_fault(fmt::format(" of a box on {} whose {} of {} B begin {} B apart: they overlap",
                                        name_window(at.window), at.limit != 0 ? "slices" : "rows", at.bytes,
                                        at.offset));
    case fault::rank:
        return device_fault(fmt::format(
            " {} rank {}: there are ranks 0 to {} in {}",
            at.where == operation::wait_notifications_from ? "with source" : "to", static_cast<std::int32_t>(at.target),
            at.limit - 1, at.window == 0 ? "this communicator" : name_window(at.window) + "'s communicator"));
    case fault::tag:
        return device_fault(fmt::format(" with tag {}: there are tags 0 to {} (DCUDA_TAGS={})",
                                        static_cast<std::int32_t>(at.offset), at.limit - 1, at.limit));
    case fault::matched_tag:
        return device_fault(
            fmt::format(" with tag {}: tags {} to {} are matched by source (DCUDA_MATCH_SOURCES={}), and "
                        "only wait_notifications_from waits for them",
                        at.offset, tags.plain, tags.count - 1, tags.count - tags.plain));
    case fault::plain_tag:
        if (tags.plain == tags.count)
            return device_fault(
                fmt::format(" with tag {}: no tags are matched by source; set options::match_sources or "
                            "DCUDA_MATCH_SOURCES, and use the last tags",
                            at.offset));
        return device_fault(
            fmt::format(" with tag {}: only tags {} to {} are matched by source (DCUDA_MATCH_SOURCES={})", at.offset,
                        tags.plain, tags.count - 1, tags.count - tags.plain));
    case fault::tag_range:
        return device_fault(fmt::format(" over {} tags from tag {} on: expected 1 to {}, as there are tags 0 to {} "
                                        "(DCUDA_TAGS={})",
                                        static_cast<std::int32_t>(at.offset), at.target, at.limit - at.target,
                                        at.limit - 1, at.limit));
    case fault::window:
        if (at.window == 0)
            return device_fault(" on a window that is none: it was never created, or create_window failed");
        return device_fault(
            fmt::format(" on {}, which does not exist (any more): it was freed, or belongs to another run",
                        name_window(at.window)));
    case fault::host_window:
        return device_fault(
            fmt::format(" on {}, which the host has made: only runtime::free_window frees it", name_window(at.window)));
    case fault::count:
        return device_fault(fmt::format(" for tag {} with count {}: expected 0 or more", at.target,
                                        static_cast<std::int32_t>(at.offset)));
    case fault::communicator:
        return device_fault(fmt::format(" on {}: the rank is in no such communicator (any more): it was freed, is "
                                        "another rank's, or belongs to another run",
                                        name_of_communicator(at.target)));
    case fault::window_member:
        return device_fault(fmt::format(" on {}: the rank is not in the window's communicator ({})",
                                        name_window(at.window), name_of_communicator(at.target)));
    case fault::windows_left:
        return device_fault(fmt::format(" on {}: {} of its windows are open; call free_window on them before",
                                        name_of_communicator(at.target), at.offset));
    case fault::fixed_communicator:
        return device_fault(
            fmt::format(" on {}: it is always there; free those that split has made", name_of_communicator(at.target)));
    case fault::communicators:
        if (at.bytes == 0) // no split
            return device_fault(fmt::format(" on {} of {} ranks: the rank has no room for the list of those that it "
                                            "sends to, as few ranks of its device are in it, or it is in many "
                                            "communicators; free those that are not needed",
                                            name_of_communicator(at.target), at.offset));
        return device_fault(fmt::format(" of {} into a communicator of {} ranks: there is no room for another one of "
                                        "that kind beside the {} that the rank is in; free those that are not needed "
                                        "(a rank may be in {})",
                                        name_of_communicator(at.target), at.offset, at.bytes, at.limit));
    case fault::root:
        return device_fault(fmt::format(" with root {}: the communicator has ranks 0 to {}",
                                        static_cast<std::int32_t>(at.target), at.offset - 1));
    case fault::too_many_members:
        if (at.limit == most_by_number)
            return device_fault(
                fmt::format(" with by_rank on a communicator of {} ranks: it serves at most {}; without "
                            "it results depend on the number of devices",
                            at.offset, at.limit));
        return device_fault(fmt::format(" on a communicator of {} ranks: with so many ranks on a device it serves at "
                                        "most {}; split the communicator",
                                        at.offset, at.limit));
    case fault::other_count:
        return device_fault(fmt::format(" on {}: rank {} of it brings {} elements, where {} are expected from it",
                                        name_of_communicator(at.window), static_cast<std::int32_t>(at.target),
                                        as_signed(at.offset), as_signed(at.limit)));
    case fault::started:
        if (at.where == operation::finish)
            return device_fault(fmt::format(" while an allreduce on {} is started and not finished (finish_allreduce)",
                                            name_of_communicator(at.target)));
        return device_fault(
            fmt::format(" on {}: a collective operation has been started there (start_allreduce), which "
                        "must be finished before another one",
                        name_of_communicator(at.target)));
    case fault::not_started:
        return device_fault(
            fmt::format(" on {}: none has been started there, or it is finished", name_of_communicator(at.target)));
    case fault::other_collective: {
        const operation theirs = operation_of_digest(static_cast<std::uint32_t>(at.bytes));
        return device_fault(fmt::format(
            " on {} meets {} of rank {}: all members must make the same collective calls, with the same type, "
            "operator, root and number of values",
            name_of_communicator(at.window), theirs == at.where ? "a different one" : traits_of(theirs).name,
            at.target));
    }
    case fault::late_process:
        return device_fault(fmt::format(" on a communicator with rank {}: collective operations, but for barriers and "
                                        "windows of world, serve ranks of the first {} processes only",
                                        at.target, at.limit));
    case fault::overlap:
        return device_fault(fmt::format(" of {} B into memory at {:#x}, which overlaps its input: both must be the "
                                        "same, or apart",
                                        at.bytes, at.offset));
    case fault::memory:
        if (at.offset == 0)
            return device_fault(
                fmt::format(" over {} B at a null pointer: give it memory from cudaMalloc (did that fail?), "
                            "or 0 bytes for a rank that receives nothing",
                            at.bytes));
        return device_fault(
            fmt::format(" over {} B at {:#x}, which is shared or local memory of the block: other ranks "
                        "can reach global memory only",
                        at.bytes, at.offset));
    case fault::local_memory:
        return device_fault(
            fmt::format(" into memory at {:#x}, which is one thread's own: all threads of the rank read "
                        "the result there, so it must be shared or global memory",
                        at.offset));
    case fault::destination:
        return device_fault(
            fmt::format(" from rank {} into memory at {:#x}, which is shared memory of a block: what comes "
                        "over a network needs global memory",
                        at.target, at.offset));
    case fault::part:
        return device_fault(describe_part(at));
    case fault::timeout:
        return error(error_code::wait_timeout,
                     fmt::format("{} within {:.3g} s (wait timeout)",
                                 describe_timeout(who, at.where, static_cast<waiting>(at.window), at.target, at.offset,
                                                  at.bytes, tags),
                                 static_cast<double>(at.limit) * 1e-9));
    case fault::protocol: // the checker has the words
    case fault::none:
        break;
    }
    return device_fault(" broke its contract");
}

std::string describe_waits(const std::vector<wait_record>& by_rank, rank_counts ranks, std::uint32_t first_rank,
                           std::uint32_t world_size) {
    const hang_report table(world_size, ranks, {{first_rank, by_rank}});
    return table.lines() + table.conclusion();
}

std::string describe_who_waits_for(int process, const std::vector<std::string>& waits_by_process) {
    constexpr std::size_t most_parts = 8;
    std::vector<hang_report::part> known;
    std::size_t ranks = 0;
    for (const std::string& each : waits_by_process) {
        if (each.empty()) continue;
        const auto index = static_cast<std::size_t>(&each - waits_by_process.data());
        std::vector<wait_record> waits = support::wire_reader(each).get_vector<wait_record>();
        ranks = waits.size();
        known.emplace_back(static_cast<std::uint32_t>(index * ranks), std::move(waits));
    }
    if (known.empty()) return "";
    const hang_report table(static_cast<std::uint32_t>(waits_by_process.size() * ranks),
                            static_cast<std::uint32_t>(ranks), known);
    const auto found = table.find_dependants(static_cast<std::uint32_t>(static_cast<std::size_t>(process) * ranks),
                                             static_cast<std::uint32_t>(ranks));
    std::string text;
    const auto add = [&](const std::vector<std::uint32_t>& list, const char* purpose) {
        if (list.size() == 1) text += fmt::format(" Rank {} waits {}.", list[0], purpose);
        if (list.size() > 1) text += fmt::format(" Ranks {} wait {}.", list_ranks(list, most_parts), purpose);
    };
    add(found.certain, "for its ranks");
    add(found.possible, "for messages that may come from it");
    add(found.further, "for these");
    return text;
}

} // namespace dcuda
