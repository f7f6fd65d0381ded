// SPDX-License-Identifier: BSD-3-Clause
#include "stream/arrival_check.hpp"

#include "dcuda/detail/protocol/box.hpp"
#include "stream/send_queue.hpp"

#include <cstring>
#include <fmt/format.h>

namespace dcuda {

using namespace detail;

std::string find_port_fault(const port_expectation& expected,
                            const std::function<bool(std::uint64_t place, std::uint64_t bytes)>& holds,
                            const message_header& head, const std::byte* payload) {
    switch (head.kind) {
    case message_kind::answer:
        return head.bytes == 0 ? "" : fmt::format("a question for credit with {} B", head.bytes);
    case message_kind::get: {
        get_payload asked{};
        if (head.bytes != sizeof asked || head.tag != no_tag) return fmt::format("a get with {} B", head.bytes);
        std::memcpy(&asked, payload, sizeof asked);
        if (asked.bytes != 0 && holds(head.place, asked.bytes)) return {};
        return fmt::format("a get of {} B from address {:#x}, where the host has no window", asked.bytes, head.place);
    }
    case message_kind::put:
        if (head.tag != no_tag && head.tag >= expected.tags)
            return fmt::format("a notification with tag {} of {} tags", head.tag, expected.tags);
        if (head.bytes != 0 && !holds(head.place, head.bytes))
            return fmt::format(
                "a put of {} B to address {:#x}, where the host has no window (it may be freed when what "
                "is put there has been waited for)",
                head.bytes, head.place);
        return {};
    case message_kind::rows: {
        const std::uint32_t width = head.tag, rows = width == 0 ? 0 : head.bytes / width;
        if (rows == 0 || head.bytes % width != 0 || (rows > 1 && (head.distance < width || head.distance > INT32_MAX)))
            return fmt::format("rows of {} B, {} B apart, {} B in all", width, head.distance, head.bytes);
        if (!holds(head.place, span_of({width, rows}, {head.distance})))
            return fmt::format("{} rows of {} B, {} B apart, from address {:#x} on, where the host has no window", rows,
                               width, head.distance, head.place);
        return {};
    }
    case message_kind::got: {
        const auto fault = [&] {
            return fmt::format("{} B of get {}, which nobody waits for", head.bytes, head.target);
        };
        if (expected.oldest_get == nullptr || expected.oldest_get->piece != head.target) return fault();
        const auto& [piece, destination, bytes] = *expected.oldest_get;
        const bool fits = head.place >= destination && head.place - destination <= bytes &&
                          head.bytes <= bytes - (head.place - destination);
        return fits && (head.tag == no_tag || head.tag == 0) ? "" : fault();
    }
    case message_kind::piece:
        if (head.bytes > queue_memory::slot_bytes || head.bytes > head.place ||
            expected.next_arrival - expected.told_received >= queue_memory::slots)
            return fmt::format("a piece of {} B of a send of {} B, behind {} that are not received", head.bytes,
                               head.place, expected.next_arrival - expected.told_received);
        return {};
    case message_kind::taken:
        if (head.bytes != 0 || head.tag - expected.received_there > expected.next_send - expected.received_there)
            return fmt::format("that {} pieces are received, of {} that were sent", head.tag, expected.next_send);
        return {};
    default:
        return fmt::format("a message of kind {} for a stream port", static_cast<std::uint32_t>(head.kind));
    }
}

} // namespace dcuda
