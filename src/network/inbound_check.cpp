// SPDX-License-Identifier: BSD-3-Clause
#include "network/inbound_check.hpp"

#include "dcuda/detail/protocol/box.hpp"

#include <fmt/format.h>

#include <cstring>
#include <utility>

namespace dcuda {

using namespace detail;

foreign_arrival::foreign_arrival(const std::string& network, const std::string& finding)
    : error(error_code::process_lost,
            fmt::format(
                "what has come over {} is of no process of this job: {}. Either somebody else has got the key of "
                "this memory (docs/guide/transports.md says who can), or a process has written over what it sends",
                network, finding)) {}

namespace {

// Whether so many elements lie there, one after the other.
template <class Element>
bool has_elements(std::span<const Element> memory, std::uint64_t place, std::size_t count) {
    const auto base = static_cast<std::uint64_t>(reinterpret_cast<std::uintptr_t>(memory.data()));
    if (place < base || (place - base) % sizeof(Element) != 0) return false;
    const std::uint64_t before = (place - base) / sizeof(Element);
    return before <= memory.size() && count <= memory.size() - before;
}

} // namespace

bool lies_in(const window_entry& window, std::uint64_t place, std::uint64_t bytes) {
    const auto base = static_cast<std::uint64_t>(reinterpret_cast<std::uintptr_t>(window.base));
    return place >= base && place - base <= window.bytes() && bytes <= window.bytes() - (place - base);
}

void inbound_check::begin_run(std::uint32_t ranks, std::uint32_t tags, std::uint32_t barrier_rounds,
                              std::span<const packet> slots, std::span<const split_entry> entries) {
    ranks_ = ranks;
    tags_ = tags;
    rounds_ = barrier_rounds;
    slots_ = slots;
    entries_ = entries;
    windows_.clear();
    awaited_.assign(ranks, {0, no_answer});
    gets_.clear();
}

void inbound_check::open_window(std::uint32_t slot, std::vector<window_entry> exports) {
    if (windows_.size() <= slot) windows_.resize(slot + std::size_t{1});
    windows_[slot] = std::move(exports);
}

bool inbound_check::is_in_window(std::uint32_t rank, std::uint64_t place, std::uint64_t bytes) const {
    const auto holds = [&](std::size_t slot) {
        return rank < windows_[slot].size() && lies_in(windows_[slot][rank], place, bytes);
    };
    // PERF: most puts go where the one before went.
    if (last_ < windows_.size() && holds(last_)) return true;
    for (std::size_t slot = 0; slot < windows_.size(); ++slot)
        if (holds(slot)) {
            last_ = slot;
            return true;
        }
    return false;
}

std::string inbound_check::find_fault(int from, const message_header& message, const std::byte* payload) const {
    switch (message.kind) {
    case message_kind::put:
        if (message.target >= ranks_)
            return fmt::format("a put to rank {} of a device with {} ranks", message.target, ranks_);
        if (message.tag != no_tag && message.tag >= tags_)
            return fmt::format("a notification with tag {} of {} tags", message.tag, tags_);
        if (message.bytes == sizeof(split_entry) && message.tag == no_tag && has_elements(entries_, message.place, 1))
            return {};
        if (message.bytes != 0 && !is_in_window(message.target, message.place, message.bytes))
            return fmt::format("a put of {} B to address {:#x}, where rank {} of the device has no window",
                               message.bytes, message.place, message.target);
        return {};
    case message_kind::barrier:
        if (message.target >= collective::barriers || message.tag >= rounds_ || message.bytes != 0)
            return fmt::format("round {} of barrier {} with {} B", message.tag, message.target, message.bytes);
        return {};
    case message_kind::answer:
        return message.bytes == 0 ? "" : fmt::format("a question for credit with {} B", message.bytes);
    case message_kind::get: {
        get_payload asked{};
        if (message.target >= ranks_ || message.bytes != sizeof asked || message.tag != no_tag)
            return fmt::format("a get from rank {} of a device with {} ranks, with {} B", message.target, ranks_,
                               message.bytes);
        std::memcpy(&asked, payload, sizeof asked);
        if (asked.bytes == 0 || !is_in_window(message.target, message.place, asked.bytes))
            return fmt::format("a get of {} B from address {:#x}, where rank {} of the device has no window",
                               asked.bytes, message.place, message.target);
        return {};
    }
    case message_kind::got: {
        const auto asked = gets_.find(message.target);
        if (asked == gets_.end() || asked->second.process != from || (message.tag != no_tag && message.tag != 0))
            return fmt::format("{} B of get {}, which nobody waits for", message.bytes, message.target);
        const auto& [process, destination, bytes] = asked->second;
        if (message.place < destination || message.place - destination > bytes ||
            message.bytes > bytes - (message.place - destination))
            return fmt::format("{} B of get {} for address {:#x}, which it does not ask for", message.bytes,
                               message.target, message.place);
        return {};
    }
    case message_kind::update: {
        const atomic_update update = update_of(message.tag, 0, 0);
        if (message.target >= ranks_)
            return fmt::format("an atomic operation for rank {} of a device with {} ranks", message.target, ranks_);
        if (!has_action(update.type, update.action) || message.bytes != sizeof(update_payload))
            return fmt::format("an atomic operation with code {:#x} and {} B", message.tag, message.bytes);
        const std::uint32_t bytes = size_of_element(update.type);
        if (message.place % bytes != 0 || !is_in_window(message.target, message.place, bytes))
            return fmt::format(
                "an atomic operation on {} B at address {:#x}, where rank {} of the device has no element", bytes,
                message.place, message.target);
        return {};
    }
    case message_kind::result:
        if (message.target >= ranks_ || message.bytes != sizeof(std::uint64_t) || message.tag == no_answer ||
            awaited_[message.target].number != message.tag || awaited_[message.target].process != from)
            return fmt::format("a result of {} B with number {} for rank {}, which does not wait for it", message.bytes,
                               message.tag, message.target);
        return {};
    case message_kind::rows: {
        const std::uint32_t width = message.tag, rows = width == 0 ? 0 : message.bytes / width;
        if (message.target >= ranks_ || rows == 0 || message.bytes % width != 0)
            return fmt::format("rows of {} B for rank {} of a device with {} ranks, {} B in all", width, message.target,
                               ranks_, message.bytes);
        const std::uint64_t span = span_of({width, rows}, {message.distance});
        if (!is_in_window(message.target, message.place, span))
            return fmt::format(
                "{} rows of {} B, {} B apart, from address {:#x} on, where rank {} of the device has no window", rows,
                width, message.distance, message.place, message.target);
        return {};
    }
    case message_kind::sums: {
        const atomic_update update = update_of(message.tag, 0, 0);
        if (message.target >= ranks_ || !has_action(update.type, update.action))
            return fmt::format("elements with code {:#x} for rank {} of a device with {} ranks", message.tag,
                               message.target, ranks_);
        const std::uint32_t element = size_of_element(update.type);
        if (message.bytes == 0 || message.bytes % element != 0 || message.place % element != 0 ||
            !is_in_window(message.target, message.place, message.bytes))
            return fmt::format("elements of {} B, {} B in all, for address {:#x}, where rank {} of the device has none",
                               element, message.bytes, message.place, message.target);
        return {};
    }
    case message_kind::packets:
        if (message.target >= ranks_)
            return fmt::format("packets for rank {} of a device with {} ranks", message.target, ranks_);
        if (message.bytes != unit_bytes || !has_elements(slots_, message.place, unit_packets))
            return fmt::format("packets of {} B for address {:#x}, where no exchange has a place for them",
                               message.bytes, message.place);
        return {};
    case message_kind::piece:
    case message_kind::taken:
        break; // for stream ports
    }
    return fmt::format("a message of kind {}", static_cast<std::uint32_t>(message.kind));
}

} // namespace dcuda
