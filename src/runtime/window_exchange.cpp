// SPDX-License-Identifier: BSD-3-Clause
#include "runtime/window_exchange.hpp"

#include "runtime/report.hpp"
#include "support/check.hpp"
#include "support/losses.hpp"
#include "support/wire.hpp"

#include <algorithm>
#include <bit>

namespace dcuda {

using namespace detail;

// What a rank exports, as other processes need it.
struct window_exchange::rank_export {
    std::uint32_t number;     // of the rank in the communicator
    std::uint32_t allocation; // index in the process's list; none for an empty window
    std::size_t offset;       // in the allocation, bytes
    std::uint64_t size;       // as in window_entry
    std::byte* home;          // the rank's own address
};

struct window_exchange::process_exports {
    std::string no_slot; // why this process has none, and so there is no window; empty if it has
    std::string failure; // why this process cannot offer; empty if it can
    std::vector<transport::exported_allocation> allocations{};
    std::vector<rank_export> ranks{};
};

// The members of a communicator, as far as a process must know them.
struct window_exchange::group_members {
    struct member {
        std::uint32_t rank, number; // on this device; in the communicator
    };
    std::uint32_t size, first_rank; // the world rank of its first member
    std::uint64_t processes;        // bit by process: it has members
    std::vector<member> here{};     // on this device
};

namespace {

constexpr std::uint32_t no_allocation = UINT32_MAX;

// What processes post about a window begins with this; other messages begin otherwise (profiler.cpp,
// network_path.cpp).
constexpr std::uint32_t window_message = 0x0b5e0003;

} // namespace

// ---- what this process offers --------------------------------------------------------------------------------------

window_exchange::group_members window_exchange::read_members(std::uint32_t rank, communicator comm) {
    const std::uint32_t ranks = state_.fields().ranks_per_device, number = static_cast<std::uint32_t>(comm);
    communicator_record record;
    link_.read(&record, &state_.fields().communicator_tables[rank].records[slot_of_communicator(number)],
               sizeof record);
    std::vector<std::uint32_t> lists[3];
    const std::uint32_t** const fields[] = {&record.members, &record.by_process, &record.numbers};
    for (std::size_t i = 0; i < 3; ++i) {
        if (*fields[i] == nullptr) continue;
        lists[i].resize(record.size);
        link_.read(lists[i].data(), *fields[i], record.size * sizeof(std::uint32_t));
        *fields[i] = lists[i].data();
    }
    group_members members{record.size, record.world_rank_of(0), 0};
    for (std::uint32_t process = 0; process < state_.fields().process_count; ++process) {
        const std::uint32_t begin = record.members_before(process, ranks);
        const std::uint32_t end = record.members_before(process + 1, ranks);
        if (begin != end && process < exchange_processes) members.processes |= std::uint64_t{1} << process;
        if (process != state_.fields().process_index) continue;
        for (std::uint32_t place = begin; place < end; ++place)
            members.here.push_back(
                {record.world_rank_by_process(place) - process * ranks, record.number_by_process(place)});
    }
    return members;
}

window_exchange::process_exports window_exchange::make_exports(const group_members& members,
                                                               const std::vector<window_entry>& entries) const {
    process_exports offer;
    std::map<std::uint64_t, std::uint32_t> known; // allocation id -> index
    for (const auto& [rank, number] : members.here) {
        const window_entry& entry = entries[rank];
        if (!state_.is_mapped()) { // over a network any memory will do
            offer.ranks.push_back({number, no_allocation, 0, entry.size, entry.base});
            continue;
        }
        if (entry.bytes() == 0) {
            offer.ranks.push_back({number, no_allocation, 0, 0, nullptr});
            continue;
        }
        const std::string who = name_rank(static_cast<std::uint32_t>(state_.first_rank()) + rank, counts_of(state_));
        std::string problem;
        const auto memory = transport::find_window_memory(entry.base, entry.bytes(), problem);
        if (!memory) {
            offer.failure = fmt::format("{}: create_window over {} B {}", who, entry.bytes(), problem);
            return offer;
        }
        const auto offset = static_cast<std::size_t>(entry.base - memory->base);
        const auto [position, is_new] = known.emplace(memory->id, static_cast<std::uint32_t>(offer.allocations.size()));
        if (is_new) {
            try {
                offer.allocations.push_back(transport::export_allocation(*memory));
            } catch (const error& refusal) {
                offer.failure = fmt::format("{}: create_window over {}", who, refusal.what());
                return offer;
            }
        }
        offer.ranks.push_back({number, position->second, offset, entry.size, entry.base});
    }
    return offer;
}

// By rank of this device; other ranks may be writing theirs, and have none here.
std::vector<window_entry> window_exchange::read_exports(const group_members& members) {
    std::vector<std::uint32_t> ranks;
    for (const auto& [rank, number] : members.here) ranks.push_back(rank);
    std::sort(ranks.begin(), ranks.end());
    std::vector<window_entry> entries(static_cast<std::size_t>(state_.ranks()));
    for (std::size_t begin = 0, end = 0; begin < ranks.size(); begin = end) { // ranks that follow each other
        for (end = begin + 1; end < ranks.size() && ranks[end] == ranks[end - 1] + 1;) ++end;
        link_.read(&entries[ranks[begin]], state_.fields().exports + ranks[begin],
                   (end - begin) * sizeof(window_entry));
    }
    return entries;
}

void window_exchange::begin(std::uint32_t slot, std::uint32_t rank, communicator comm) {
    const std::uint64_t begin_ns = clock_ns();
    const group_members members = read_members(rank, comm);
    const std::vector<window_entry> entries = read_exports(members);
    process_exports offer;
    if (slot == state_.fields().max_windows) {
        offer.no_slot = describe_full(rank, entries.at(rank).bytes());
    } else {
        offer = make_exports(members, entries);
        if (network_ != nullptr) network_->open_window(slot, entries);
    }
    support::wire_writer message;
    message.put(std::string_view(offer.no_slot));
    message.put(std::string_view(offer.failure));
    message.put(offer.allocations);
    message.put(offer.ranks);

    const group name{static_cast<std::uint32_t>(comm), members.first_rank};
    opening& window = comm == world ? of_world_ : of_groups_[name];
    window.size = members.size;
    window.processes = members.processes;
    window.slot = slot;
    window.rank = rank;
    window.begin_ns = begin_ns;
    if (comm == world) return control_.start_gather(windows_++, message.bytes());
    post_exports(name, window, message.bytes());
    window.exports[control_.index()] = message.bytes();
    open_if_complete(name);
}

void window_exchange::post_exports(const group& name, const opening& window, const bootstrap::blob& exports) {
    support::wire_writer message;
    message.put(window_message);
    message.put(name);
    message.put(std::string_view(exports));
    for (std::uint64_t left = window.processes; left != 0; left &= left - 1)
        if (const int process = std::countr_zero(left); process != control_.index())
            control_.post(process, message.bytes());
}

std::string window_exchange::describe_full(std::uint32_t rank, std::uint64_t bytes) const {
    const std::uint32_t windows = state_.fields().max_windows;
    return fmt::format(
        "{}: create_window over {} B: {} windows exist already, and there may be no more; free those that "
        "are not used any more (free_window), or raise DCUDA_MAX_WINDOWS={}",
        name_rank(static_cast<std::uint32_t>(state_.first_rank()) + rank, counts_of(state_)), bytes, windows, windows);
}

void window_exchange::report_full(const std::string& sentence) const {
    if (!may_fail_)
        throw error(error_code::out_of_resources,
                    sentence + "; with DCUDA_WINDOWS_MAY_FAIL=1 (options::windows_may_fail) this is no error, but a "
                               "window that is false");
    support::tell(sentence);
}

// ---- what others offer ---------------------------------------------------------------------------------------------

void window_exchange::complete(const std::vector<bootstrap::blob>& exports) {
    of_world_.exports.clear();
    for (const bootstrap::blob& each : exports)
        of_world_.exports.emplace(static_cast<int>(of_world_.exports.size()), each);
    open(of_world_);
}

// A process posts the next window of a communicator only when this one has opened the one before.
bool window_exchange::receive(int process, const std::string& bytes) {
    support::wire_reader message(bytes);
    if (message.get<std::uint32_t>() != window_message) return false;
    const group name = message.get<group>();
    const bool is_first = of_groups_[name].exports.emplace(process, message.get_text()).second;
    support::require(is_first, error_code::bootstrap_failure, "process {} has opened a window twice", process);
    open_if_complete(name);
    return true;
}

void window_exchange::open_if_complete(const group& name) {
    const auto place = of_groups_.find(name);
    const auto processes = static_cast<std::size_t>(std::popcount(place->second.processes));
    if (processes == 0 || place->second.exports.size() != processes) return;
    const opening window = std::move(place->second);
    of_groups_.erase(place);
    open(window);
}

void window_exchange::open(const opening& window) {
    // Every process sees the same exports, so all come to the same result, but for mappings that fail here.
    // The first process without a slot speaks for all.
    std::vector<window_entry> entries(window.size);
    for (const auto& [process, bytes] : window.exports) {
        support::wire_reader message(bytes);
        process_exports offer{message.get_text(), message.get_text()};
        offer.allocations = message.get_vector<transport::exported_allocation>();
        offer.ranks = message.get_vector<rank_export>();
        if (!offer.no_slot.empty()) {
            if (process == control_.index() || !may_fail_) report_full(offer.no_slot);
            return reply(window, 0);
        }
        if (!offer.failure.empty()) throw error(error_code::no_path, offer.failure);
        const bool is_own = process == control_.index();
        for (const rank_export& rank : offer.ranks) {
            window_entry& entry = entries.at(rank.number);
            // Our own ranks' windows stay at their own addresses.
            entry = {is_own ? rank.home : nullptr, rank.size, rank.home};
            if (rank.allocation != no_allocation && !is_own && !state_.is_remote(process))
                entry.base = mappings_.open(process, offer.allocations.at(rank.allocation)) + rank.offset;
        }
    }
    link_.write(state_.window_entries(window.slot), entries.data(), entries.size() * sizeof(window_entry));
    reply(window, 1);
}

void window_exchange::reply(const opening& window, std::uint32_t success) {
    std::uint32_t& last = replies_[window.rank];
    last = (last & ~std::uint32_t(1)) + 2 + success;
    link_.publish_reply(state_.fields().replies + window.rank, last);
    if (success != 0 && profiler_.host().is_on())
        profiler_.host().record(window.begin_ns, host_event_kind::window, 0, 0, window.slot, 0);
}

} // namespace dcuda
