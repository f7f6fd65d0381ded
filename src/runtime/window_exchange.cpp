// SPDX-License-Identifier: BSD-3-Clause
#include "runtime/window_exchange.hpp"

#include "runtime/report.hpp"
#include "support/wire.hpp"

#include <cstdio>
#include <map>

namespace dcuda {

using detail::window_entry;

namespace {

// What a rank exports, as other processes need it.
struct shared_export {
    std::uint32_t allocation; // index in the process's list; none for an empty window
    std::size_t offset;       // in the allocation, bytes
    std::uint64_t size;       // as in window_entry
    std::byte* home;          // the rank's own address
};
constexpr std::uint32_t no_allocation = UINT32_MAX;

struct process_exports {
    std::string no_slot; // why this process has none, and so there is no window; empty if it has
    std::string failure; // why this process cannot offer; empty if it can
    std::vector<transport::exported_allocation> allocations;
    std::vector<shared_export> ranks;
};

process_exports make_exports(const std::vector<window_entry>& entries, const device_state& state) {
    process_exports offer;
    if (!state.is_mapped()) { // over a network any memory will do
        for (const window_entry& entry : entries) offer.ranks.push_back({no_allocation, 0, entry.size, entry.base});
        return offer;
    }
    std::map<std::uint64_t, std::uint32_t> known; // allocation id -> index
    for (std::size_t rank = 0; rank < entries.size(); ++rank) {
        const window_entry& entry = entries[rank];
        if (entry.bytes() == 0) {
            offer.ranks.push_back({no_allocation, 0, 0, nullptr});
            continue;
        }
        const std::string who = name_rank(
            static_cast<std::uint32_t>(state.first_rank()) + static_cast<std::uint32_t>(rank), counts_of(state));
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
        offer.ranks.push_back({position->second, offset, entry.size, entry.base});
    }
    return offer;
}

std::string encode(const process_exports& offer) {
    support::wire_writer message;
    message.put(std::string_view(offer.no_slot));
    message.put(std::string_view(offer.failure));
    message.put(offer.allocations);
    message.put(offer.ranks);
    return message.bytes();
}

process_exports decode(const bootstrap::blob& bytes) {
    support::wire_reader message(bytes);
    process_exports offer;
    offer.no_slot = message.get_text();
    offer.failure = message.get_text();
    offer.allocations = message.get_vector<transport::exported_allocation>();
    offer.ranks = message.get_vector<shared_export>();
    return offer;
}

} // namespace

void window_exchange::begin(std::uint32_t slot, std::uint32_t rank) {
    const detail::device_context& fields = state_.fields();
    slot_ = slot;
    process_exports offer;
    std::vector<window_entry> entries(static_cast<std::size_t>(state_.ranks()));
    link_.read(entries.data(), fields.exports, entries.size() * sizeof(window_entry));
    if (slot == fields.max_windows) {
        offer.no_slot = describe_full(rank, entries.at(rank).bytes());
    } else {
        offer = make_exports(entries, state_);
        if (network_ != nullptr) network_->open_window(slot, std::move(entries));
    }
    control_.start_gather(windows_++, encode(offer));
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
    std::fprintf(stderr, "dcuda: %s\n", sentence.c_str());
}

void window_exchange::complete(const std::vector<bootstrap::blob>& exports) {
    // Every process sees the same exports, so all come to the same result, but for mappings that fail here.
    // The first process without a slot speaks for all.
    std::vector<window_entry> entries;
    for (int process = 0; process < control_.count(); ++process) {
        const process_exports offer = decode(exports[static_cast<std::size_t>(process)]);
        if (!offer.no_slot.empty()) {
            if (process == control_.index() || !may_fail_) report_full(offer.no_slot);
            return reply(0);
        }
        if (!offer.failure.empty()) throw error(error_code::no_path, offer.failure);
        for (const shared_export& rank : offer.ranks) {
            window_entry entry{nullptr, rank.size, rank.home};
            if (rank.allocation != no_allocation && process != control_.index() && !state_.is_remote(process))
                entry.base = mappings_.open(process, offer.allocations.at(rank.allocation)) + rank.offset;
            entries.push_back(entry);
        }
    }
    // Our own ranks' windows stay at their own addresses.
    link_.read(entries.data() + state_.first_rank(), state_.fields().exports,
               static_cast<std::size_t>(state_.ranks()) * sizeof(window_entry));
    link_.write(state_.window_entries(slot_), entries.data(), entries.size() * sizeof(window_entry));
    reply(1);
}

void window_exchange::reply(std::uint32_t success) {
    reply_ = (reply_ & ~std::uint32_t(1)) + 2 + success;
    link_.publish_reply(state_.fields().reply, reply_);
}

} // namespace dcuda
