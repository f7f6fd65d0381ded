#include "runtime/report.hpp"

#include <fmt/format.h>

#include <map>

namespace dcuda {

using namespace detail;

namespace {

std::uint64_t wide(const std::uint32_t* words) { return words[0] | static_cast<std::uint64_t>(words[1]) << 32; }

// Sizes that were negative numbers in the program read better as such.
std::int64_t as_signed(std::uint64_t value) { return static_cast<std::int64_t>(value); }

const char* name(operation where) {
    switch (where) {
    case operation::put:
        return "put";
    case operation::put_notify:
        return "put_notify";
    case operation::notify:
        return "notify";
    case operation::wait_notifications:
        return "wait_notifications";
    case operation::test_notifications:
        return "test_notifications";
    case operation::flush:
        return "flush";
    case operation::create_window:
        return "create_window";
    case operation::free_window:
        return "free_window";
    case operation::collective:
        return "barrier";
    case operation::none:
        break;
    }
    return "operation";
}

const char* name(collective where) {
    switch (where) {
    case collective::init:
        return "the start of the kernel (init)";
    case collective::finish:
        return "the end of the kernel (finish)";
    case collective::barrier_world:
        return "barrier(world)";
    case collective::barrier_device:
        return "barrier(device)";
    case collective::create_window:
        return "create_window";
    case collective::free_window:
        return "free_window";
    case collective::start_timer:
        return "start_timer";
    case collective::stop_timer:
        return "stop_timer";
    case collective::count:
        break;
    }
    return "a collective operation";
}

std::string name_window(std::uint32_t id) {
    return id == 0 ? std::string("the window none") : fmt::format("window {}", (id & 0xffff) - 1);
}

std::string describe_wait(const wait_record& wait) {
    switch (static_cast<waiting>(wait.what)) {
    case waiting::notifications:
        return fmt::format("wait_notifications(tag {}, count {}): {} arrived", wait.detail, wait.expected, wait.seen);
    case waiting::collective:
        return fmt::format("{}, for other ranks of its device", name(static_cast<collective>(wait.detail)));
    case waiting::other_devices:
        return fmt::format("{}, for the ranks of other processes", name(static_cast<collective>(wait.detail)));
    case waiting::host_reply:
        return "create_window, for its host and the ranks of other processes";
    case waiting::flush:
        return "flush, for puts over the network to arrive";
    case waiting::mailbox:
        return fmt::format("put_notify or notify to rank {}, whose mailbox is full of what this rank has sent: rank {} "
                           "takes its mail when it waits",
                           wait.detail, wait.detail);
    case waiting::ring_space:
        return "space in the command ring, for its host";
    case waiting::done:
        return "nothing: it has finished";
    case waiting::no:
        break;
    }
    return "nothing: it runs";
}

} // namespace

std::string name_rank(std::uint32_t world_rank, std::uint32_t ranks_per_device) {
    return fmt::format("rank {} (process {}, block {})", world_rank, world_rank / ranks_per_device,
                       world_rank % ranks_per_device);
}

error describe_fault(const command& fault_command, std::uint32_t first_rank, std::uint32_t ranks_per_device) {
    const std::uint32_t* words = fault_command.words;
    const auto kind = static_cast<fault>(words[2]);
    const auto where = static_cast<operation>(words[3]);
    const std::uint32_t window_id = words[4], target = words[5];
    const std::uint64_t offset = wide(words + 6), bytes = wide(words + 8), limit = wide(words + 10);
    const std::string who = name_rank(first_rank + words[1], ranks_per_device) + ": " + name(where);
    const auto device_fault = [&](const std::string& what) { return error(error_code::device_fault, who + what); };

    switch (kind) {
    case fault::bounds:
        return device_fault(fmt::format(" of {} B at offset {} exceeds {} of rank {} ({} B)", as_signed(bytes),
                                        as_signed(offset), name_window(window_id), target, limit));
    case fault::rank:
        return device_fault(
            fmt::format(" to rank {}: there are ranks 0 to {} in {}", static_cast<std::int32_t>(target), limit - 1,
                        window_id == 0 ? "this communicator" : name_window(window_id) + "'s communicator"));
    case fault::tag:
        return device_fault(fmt::format(" with tag {}: there are tags 0 to {} (DCUDA_TAGS={})",
                                        static_cast<std::int32_t>(offset), limit - 1, limit));
    case fault::window:
        if (window_id == 0)
            return device_fault(" on a window that is none: it was never created, or create_window failed");
        return device_fault(
            fmt::format(" on {}, which does not exist (any more): it was freed, or belongs to another run",
                        name_window(window_id)));
    case fault::count:
        return device_fault(
            fmt::format(" for tag {} with count {}: expected 0 or more", target, static_cast<std::int32_t>(offset)));
    case fault::communicator:
        return device_fault(
            fmt::format(" on communicator {}: expected world (0) or device (1)", static_cast<std::int32_t>(target)));
    case fault::memory:
        return device_fault(
            fmt::format(" over {} B at {:#x}, which is shared or local memory of the block: other ranks "
                        "can reach global memory only",
                        bytes, offset));
    case fault::timeout:
        return error(error_code::wait_timeout,
                     fmt::format("{}(tag {}, count {}): {} arrived within {:.3g} s (wait timeout)", who, target, bytes,
                                 offset, static_cast<double>(limit) * 1e-9));
    case fault::protocol: // the checker has the words
    case fault::none:
        break;
    }
    return device_fault(" broke its contract");
}

std::string describe_waits(const std::vector<wait_record>& by_rank, std::uint32_t ranks_per_device,
                           std::uint32_t first_rank) {
    constexpr std::size_t ranks_in_a_line = 12;
    std::map<std::string, std::vector<std::uint32_t>> ranks_by_wait;
    for (std::uint32_t rank = 0; rank < by_rank.size(); ++rank)
        ranks_by_wait[describe_wait(by_rank[rank])].push_back(first_rank + rank);
    std::string text;
    for (const auto& [wait, ranks] : ranks_by_wait) {
        text += "\n  ";
        if (ranks.size() == 1) {
            text += name_rank(ranks[0], ranks_per_device);
        } else {
            text += fmt::format("{} ranks (", ranks.size());
            std::size_t shown = 0;
            for (std::size_t i = 0; i < ranks.size(); ++shown) {
                std::size_t last = i;
                while (last + 1 < ranks.size() && ranks[last + 1] == ranks[last] + 1) ++last;
                if (shown == ranks_in_a_line) {
                    text += ", ...";
                    break;
                }
                if (i != 0) text += ", ";
                text += last == i ? fmt::format("{}", ranks[i]) : fmt::format("{}-{}", ranks[i], ranks[last]);
                i = last + 1;
            }
            text += ")";
        }
        text += " in " + wait;
    }
    return text;
}

} // namespace dcuda
