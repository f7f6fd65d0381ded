// SPDX-License-Identifier: BSD-3-Clause
#include "runtime/host_windows.hpp"

#include "network/inbound_check.hpp"
#include "support/check.hpp"
#include "support/wire.hpp"

#include <algorithm>

namespace dcuda {

using detail::window_entry;

namespace {

// What a process offers, as the others need it.
struct offered_memory {
    std::string failure; // why there is none, from "create_window over N B " on; empty: there is
    transport::exported_allocation allocation{};
    std::uint64_t offset = 0; // in the allocation, bytes
    window_entry entry{};     // as the process itself has it
};

std::string encode_offer(const offered_memory& offer) {
    support::wire_writer message;
    message.put(std::string_view(offer.failure));
    message.put(offer.allocation);
    message.put(offer.offset);
    message.put(offer.entry);
    return message.bytes();
}

offered_memory decode_offer(const bootstrap::blob& bytes) {
    support::wire_reader message(bytes);
    offered_memory offer;
    offer.failure = message.get_text();
    offer.allocation = message.get<transport::exported_allocation>();
    offer.offset = message.get<std::uint64_t>();
    offer.entry = message.get<window_entry>();
    return offer;
}

// `is_mapped`: another process will map the memory.
offered_memory offer_memory(void* memory, std::size_t bytes, window_kind kind, bool is_mapped) {
    offered_memory offer;
    auto* const base = static_cast<std::byte*>(memory);
    offer.entry = {base, bytes | (kind == window_kind::direct ? detail::window_is_direct : 0), base};
    if (bytes == 0) return offer;
    if (memory == nullptr) {
        offer.failure = "at a null pointer: give it memory from cudaMalloc (did that fail?)";
        return offer;
    }
    const auto found = transport::find_window_memory(base, bytes, offer.failure);
    if (!found) return offer;
    offer.offset = static_cast<std::uint64_t>(base - found->base);
    try {
        if (is_mapped) offer.allocation = transport::export_allocation(*found);
    } catch (const error& problem) {
        offer.failure = fmt::format("of {}", problem.what());
    }
    return offer;
}

} // namespace

window host_windows::create(void* memory, std::size_t bytes, window_kind kind) {
    const std::uint32_t slot = find_slot(bytes); // the same on all processes, and so is an error
    const bool is_mapped = std::count(is_remote_.begin(), is_remote_.end(), false) > 1; // by us, and others
    const offered_memory own = offer_memory(memory, bytes, kind, is_mapped);
    expose(own.entry);
    try {
        return open(slot, control_.allgather(encode_offer(own), "runtime::create_window"));
    } catch (...) {
        hide(own.entry);
        throw;
    }
}

window host_windows::open(std::uint32_t slot, const std::vector<bootstrap::blob>& messages) {
    std::vector<offered_memory> offers;
    for (const bootstrap::blob& each : messages) offers.push_back(decode_offer(each));
    for (std::size_t process = 0; process < offers.size(); ++process)
        support::require(offers[process].failure.empty(), error_code::no_path,
                         "process {}: runtime::create_window over {} B {}", process, offers[process].entry.bytes(),
                         offers[process].failure);

    open_window made;
    made.seen.id = detail::window_id(slot, ++made_) | detail::window_is_of_host;
    made.mappings = std::make_unique<transport::peer_mappings>();
    for (std::size_t process = 0; process < offers.size(); ++process) {
        const offered_memory& offer = offers[process];
        window_entry entry = offer.entry;
        if (static_cast<int>(process) != control_.index()) {
            const bool has_memory = !is_remote_[process] && entry.bytes() != 0;
            entry.base =
                has_memory ? made.mappings->open(static_cast<int>(process), offer.allocation) + offer.offset : nullptr;
        }
        made.seen.entries.push_back(entry);
    }
    open_.push_back(std::move(made));
    return window{open_.back().seen.id};
}

void host_windows::free(window win) {
    const auto found = position_of(win);
    support::require(found != open_.end(), error_code::invalid_argument,
                     "runtime::free_window on a window that the host has not made, or has freed already");
    control_.barrier(fmt::format("runtime::free_window of window {}", found->seen.slot()));
    hide(found->seen.entries[static_cast<std::size_t>(control_.index())]);
    open_.erase(found);
    control_.barrier("unmapping a window"); // its memory may be freed when nobody maps it
}

void host_windows::expose(const window_entry& own) {
    const std::lock_guard lock(exposed_mutex_);
    exposed_.push_back(own);
}

void host_windows::hide(const window_entry& own) {
    const std::lock_guard lock(exposed_mutex_);
    const auto same = [&](const window_entry& each) { return each.base == own.base && each.size == own.size; };
    exposed_.erase(std::find_if(exposed_.begin(), exposed_.end(), same));
}

bool host_windows::holds(std::uint64_t place, std::uint64_t bytes) const {
    const std::lock_guard lock(exposed_mutex_);
    return std::any_of(exposed_.begin(), exposed_.end(),
                       [&](const window_entry& each) { return lies_in(each, place, bytes); });
}

std::vector<host_windows::open_window>::const_iterator host_windows::position_of(window win) const {
    return std::find_if(open_.begin(), open_.end(), [&](const open_window& each) { return each.seen.id == win.id; });
}

const host_window* host_windows::find(window win) const {
    const auto found = position_of(win);
    return found == open_.end() ? nullptr : &found->seen;
}

std::vector<host_window> host_windows::all() const {
    std::vector<host_window> windows;
    for (const open_window& each : open_) windows.push_back(each.seen);
    return windows;
}

std::uint32_t host_windows::find_slot(std::size_t bytes) const {
    const auto is_taken = [&](std::uint32_t slot) {
        return std::any_of(open_.begin(), open_.end(),
                           [&](const open_window& each) { return each.seen.slot() == slot; });
    };
    for (std::uint32_t slot = most_; slot-- > 0;)
        if (!is_taken(slot)) return slot;
    support::fail(error_code::out_of_resources,
                  "runtime::create_window over {} B: {} windows of the host exist already, and there may be no more; "
                  "free those that are not used any more (runtime::free_window), or raise DCUDA_MAX_WINDOWS={}",
                  bytes, most_, most_);
}

} // namespace dcuda
