// SPDX-License-Identifier: BSD-3-Clause
// The fast path of notifications and small notified puts: a message that can leave at once. put.hpp has what goes on
// where it is not so.
#pragma once

#include "dcuda/detail/ops/targets.hpp"

namespace dcuda::detail {

#if DCUDA_WARPS

// The words of a packet of payload that lie at `source`: `rest` bytes of the payload, or none, are left from there on.
DCUDA_DEVICE void load_rest(chunk& words, const std::byte* source, std::int32_t rest) {
    const auto* const from = reinterpret_cast<const std::uint32_t*>(source);
    exec::load_if(words.words[0], from, rest > 0);
    exec::load_if(words.words[1], from + 1, rest > 4);
    exec::load_if(words.words[2], from + 2, rest > 8);
}

// What is left of the payload of a message when each thread behind the leader has stored a packet.
// PERF: two packets of a thread are under way at a time, and all threads go the same way. One function for each that
// calls it: one for both would be called by the ABI, and 1 KiB take 0.07 us more.
template <bool IsFar>
DCUDA_COLD void send_rest(full_warp warp, shared_state shared, const void* source, std::uint32_t bytes,
                          unsigned place) {
    rank_state& state = shared.get();
    const rank_connection& path = state.own.of(warp).connections[place];
    const queue_shape rings = state.device.queues;
    const auto* const begin = static_cast<const std::byte*>(source);
    const std::uint32_t position = path.sent.packets;
    const auto store = [&](std::uint32_t number, const chunk& part, std::int32_t rest) {
        if (rest > 0)
            store_packet<order_tag::message_publish>(path.queue + rings.packet(position + number), part.words[0],
                                                     part.words[1], part.words[2], position + number + 1);
    };
    const std::uint32_t packets = packets_for(bytes);
    DCUDA_NO_UNROLL
    for (std::uint32_t first = warp.count - 1; first < packets; first += 2 * warp.count) {
        const std::uint32_t number = first + warp.index, other = number + warp.count;
        const auto rest = static_cast<std::int32_t>(bytes - number * packet_payload_bytes);
        const auto other_rest = static_cast<std::int32_t>(bytes - other * packet_payload_bytes);
        chunk part{}, other_part{};
        load_rest(part, begin + number * packet_payload_bytes, rest);
        load_rest(other_part, begin + other * packet_payload_bytes, other_rest);
        store(number, part, rest);
        store(other, other_part, other_rest);
    }
}

// A notification, or a small put with one, to a target that was used lately: a message, if it can leave at once, and
// its tag is not matched by source. PERF: all that need not wait for the other threads comes before the block's
// barrier. Header and payload leave in one instruction. Branches are few, and on answers of any() and all(): one that
// threads might take on different ways costs 30 to 40 cycles, an instruction 1 to 5, a load from shared memory 22
// (H100, 2026-11-24).
// `IsFar`: for send_to_far_target().
template <bool HasPayload, bool IsFar = false>
class fast_message {
public:
    // Whether the message can leave. Nothing has happened yet.
    DCUDA_DEVICE bool prepare(const full_warp& warp, rank_state& state, const send_request& request) {
        if (prepare_near(warp, state, request)) return true;
        if (any(warp, !fits_) || !load_credit(warp, state, connection_, packets())) return false;
        make(warp, state, request);
        return true;
    }
    // The same where the target has just been brought near.
    DCUDA_DEVICE bool prepare_near(const full_warp& warp, rank_state& state, const send_request& request) {
        make(warp, state, request);
        return all(warp, fits_ & has_room_);
    }

    // Header and payload leave; after the block's barrier.
    DCUDA_DEVICE void send(const full_warp& warp, rank_state& state, const send_request& request) const {
        endpoint& own = state.own.of(warp);
        rank_connection& connection = own.connections[connection_];
        std::uint32_t& sent = own.sent[static_cast<unsigned>(reach_)];
        const std::uint32_t sent_before = sent, packets_before = HasPayload ? connection.sent.packets : 0;
        // The leader stores the header, those behind it a packet of payload each.
        chunk words = words_;
        if constexpr (HasPayload)
            load_rest(words, static_cast<const std::byte*>(request.source) + (warp.index - 1) * packet_payload_bytes,
                      rest_);
        if (any(warp, releases_)) release_before_message<IsFar>(warp, state, connection_);
        if (warp.leads() || (HasPayload && rest_ > 0)) store_words(slot_, words, sequence_);
        if (HasPayload && any(warp, packets() >= warp.count))
            send_rest<IsFar>(warp, state, request.source, static_cast<std::uint32_t>(request.bytes), connection_);
        const bool is_asked = requests_ != own.requests_seen;
        sync(warp); // PERF: the compiler moves no store of a packet behind it
        // PERF: nothing is loaded that an instruction would wait for.
        if (any(warp, is_special_) && warp.leads()) {
            const mailbox_header header{{words_.words[0], words_.words[1], words_.words[2]}};
            if (HasPayload && connection.keeps_range != 0) extend_range(connection, header.address(), header.bytes());
            if (connection.is_far != 0) announce_message(connection);
        }
        if (HasPayload)
            exec::store_near_if(&connection.sent.messages, sequence_, packets_before + packets(), warp.leads());
        else
            exec::store_near_if(&connection.sent.messages, sequence_, warp.leads());
        exec::store_near_if(&sent, sent_before + 1, warp.leads());
        if (DCUDA_BACKEND_CPU && warp.leads()) ring_doorbell(&connection.status->doorbell);
        if (any(warp, is_asked)) answer_new_requests<IsFar>(warp, state);
    }

private:
    DCUDA_DEVICE void make(const full_warp& warp, rank_state& state, const send_request& request) {
        endpoint& own = state.own.of(warp);
        // PERF: what is needed later is loaded first; a load that waits for a branch, or for another load, costs 30
        // cycles.
        const std::uint64_t key = target_key(request.window, request.rank);
        const std::uint32_t hint = own.target_hints.at[own.target_hints.slot(hash_of(key))];
        const std::uint32_t tags = exec::load_now(state.device.tags.plain), flushes = exec::load_now(own.flushes);
        const queue_shape rings{exec::load_now(state.device.queues.headers),
                                exec::load_now(state.device.queues.packets)};
        requests_ = load_requests(state); // PERF: the trip to the L2 cache ends before it is needed
        const target_entry entry = own.targets[hint & hint_entry];
        connection_ = hint >> 8;
        const rank_connection path = own.connections[connection_];
        fits_ = (entry.key == key) & (entry.small != 0) & (request.tag < tags);
        words_ = {{0, 0, request.tag << 16}};
        if constexpr (HasPayload) {
            const auto bytes = static_cast<std::uint32_t>(request.bytes);
            const auto* const source = static_cast<const std::byte*>(request.source);
            // What is in place is not sent.
            fits_ &= (request.bytes < entry.small) & (request.offset <= entry.bytes - request.bytes) &
                     !is_unaligned(source, bytes) & (source != entry.base + request.offset);
            const auto home = static_cast<std::uint64_t>(reinterpret_cast<std::uintptr_t>(entry.home + request.offset));
            words_ = {
                {static_cast<std::uint32_t>(home), static_cast<std::uint32_t>(home >> 32), request.tag << 16 | bytes}};
            packets_ = packets_for(bytes);
            rest_ = warp.leads() ? 0 : static_cast<std::int32_t>(bytes - (warp.index - 1) * packet_payload_bytes);
        }
        has_room_ = queue_has_room(rings, path, packets());
        releases_ = path.flushes != flushes;
        if constexpr (!HasPayload) releases_ &= request.kind != operation::notify_relaxed;
        if (releases_) words_.words[1] |= message_releases;
        reach_ = path.reach;
        is_special_ = (path.is_far | path.keeps_range) != 0;
        std::uint32_t slot = rings.header(path.sent.messages), position = path.sent.messages;
        if (HasPayload && !warp.leads()) {
            position = path.sent.packets + warp.index - 1;
            slot = rings.packet(position);
        }
        slot_ = path.queue + slot;
        sequence_ = position + 1;
        if (is_profiled(state) && warp.leads()) own.doing.target = hint & hint_entry;
    }

    DCUDA_DEVICE std::uint32_t packets() const { return HasPayload ? packets_ : 0; }
    DCUDA_DEVICE static void store_words(packet* slot, const chunk& part, std::uint32_t sequence) {
        store_packet<order_tag::message_publish>(slot, part.words[0], part.words[1], part.words[2], sequence);
    }

    packet* slot_ = nullptr; // of this thread's packet: the leader's is the header
    std::uint32_t sequence_ = 0;
    chunk words_{};             // of the header
    std::uint32_t packets_ = 0; // of payload
    std::int32_t rest_ = 0;     // bytes of payload from this thread's packet on
    std::uint32_t connection_ = 0;
    scope reach_ = scope::device;
    std::uint32_t requests_ = 0; // as load_requests() has found them
    bool fits_ = false;          // the request: a message to a target that is near
    bool has_room_ = false;      // the queue
    bool releases_ = false;      // the header, as in make_header
    bool is_special_ = false;    // the connection: more is to be done than to count the message
};

#endif

} // namespace dcuda::detail
