// SPDX-License-Identifier: BSD-3-Clause
// Sending messages (mailbox.hpp has the receiving side): connections to targets, what is under way to them, and how a
// message leaves.
//
// The functions of this file are called by the lead warp unless they say otherwise.
#pragma once

#include "dcuda/detail/ops/mailbox.hpp"

namespace dcuda::detail {

// --- Connections ---------------------------------------------------------------------------------------------------

// Learns from a credit what the target has taken. The source knows the rest of the numbers: it has sent less than 2^16
// more. One thread.
DCUDA_DEVICE void use_credit(rank_connection& connection, std::uint32_t credit) {
    connection.freed = {connection.sent.messages - ((connection.sent.messages - credit) & 0xffff),
                        connection.sent.packets - ((connection.sent.packets - (credit >> 16)) & 0xffff)};
    // A barrier may know more.
    if (static_cast<std::int32_t>(connection.freed.packets - connection.placed) > 0)
        connection.placed = connection.freed.packets;
}

// The same from the word that the target writes. ORDER queue-free -> queue-reuse: whoever learns that packets are free
// may overwrite them, and what their payload was put over.
DCUDA_DEVICE void read_credit(const lead_warp& warp, rank_connection& connection) {
    sync(warp);
    if (warp.leads()) use_credit(connection, load_acquire<order_tag::queue_reuse>(scope::system, connection.credit));
    sync(warp);
}

// In the queue of a connection that has one.
DCUDA_DEVICE bool queue_has_room(const queue_shape& rings, const rank_connection& connection, std::uint32_t packets) {
    return (connection.sent.messages - connection.freed.messages < rings.headers) &
           (connection.sent.packets + packets - connection.freed.packets <= rings.packets);
}

DCUDA_DEVICE bool has_room(const rank_state& state, const rank_connection& connection, std::uint32_t packets) {
    return (connection.queue != nullptr) & queue_has_room(state.device.queues, connection, packets);
}

// The same after another load of the credit, if that is needed.
DCUDA_DEVICE bool find_room(const lead_warp& warp, const rank_state& state, rank_connection& connection,
                            std::uint32_t packets) {
    if (connection.queue == nullptr || has_room(state, connection, packets)) return connection.queue != nullptr;
    read_credit(warp, connection);
    return has_room(state, connection, packets);
}

// The same for a fast path, which has found no room: not inlined.
DCUDA_COLD bool load_credit(lead_warp warp, shared_state shared, unsigned place, std::uint32_t packets) {
    rank_state& state = shared.get();
    rank_connection& connection = state.own.of(warp).connections[place];
    return find_room(warp, state, connection, packets);
}

DCUDA_DEVICE bool is_remote(const rank_connection& connection) { return connection.counters == nullptr; }

// Whether payload of messages may be under way on a connection.
DCUDA_DEVICE bool has_undelivered(const rank_connection& path) {
    return path.queue != nullptr && path.sent.packets != path.placed;
}

// Whether some of it may come over these bytes, as the target addresses them. is_under_way() knows it exactly.
DCUDA_DEVICE bool may_be_under_way(const rank_connection& path, std::uint64_t home, std::uint64_t bytes) {
    return has_undelivered(path) & ((path.keeps_range == 0) | ((home < path.end) & (path.begin < home + bytes)));
}

// Payload for these bytes leaves, after what was sent before. The leader.
DCUDA_DEVICE void extend_range(rank_connection& connection, std::uint64_t home, std::uint32_t bytes) {
    const bool is_first = connection.sent.packets == connection.placed;
    if (is_first || home < connection.begin) connection.begin = home;
    if (is_first || home + bytes > connection.end) connection.end = home + bytes;
}

// Claims one of the queues of a target's device for its mailbox, and tells the target. Without a queue if none is left
// there, or if the target has as many as it can have. One thread.
DCUDA_DEVICE void claim_queue(const device_context& device, const peer_view& peer, std::uint32_t rank,
                              rank_connection& claims) {
    if (device.queues.packets == 0) return;
    // Relaxed: the queue's words are nobody else's, and nothing was written there.
    const std::uint32_t place = fetch_add_relaxed_system(peer.claimed, 1);
    if (place >= device.queue_count) return;
    const std::uint32_t number = fetch_add_relaxed_system(&peer.status[rank].queues_claimed, 1);
    if (number >= device.partner_limit) return;
    store_relaxed(peer.places + std::size_t(rank) * device.partner_limit + number, place + 1);
    claims.queue = peer.queues + std::size_t(place) * device.queues.size();
    claims.is_far = number < near_queues ? 0 : 1;
}

DCUDA_DEVICE rank_connection* connections_of(const rank_state& state) {
    return state.device.connections + std::size_t(state.device_rank) * state.device.partner_limit;
}

// Copies a record. All threads of the group.
template <class Group, class Record>
DCUDA_DEVICE void copy_record(const Group& group, Record& target, const Record& source) {
    for (unsigned word = group.index; word < sizeof(Record) / 4; word += group.count)
        memcpy(reinterpret_cast<std::byte*>(&target) + 4 * word, reinterpret_cast<const std::byte*>(&source) + 4 * word,
               4);
}

// Gives up a connection for another.
template <class Warp>
DCUDA_DEVICE void forget_connection(const Warp& warp, rank_state& state, unsigned place) {
    endpoint& own = state.own.of(warp);
    for (unsigned target = warp.index; target < cached_targets; target += warp.count)
        if (own.targets[target].connection == place) own.targets[target].key = no_target;
    const rank_connection& before = own.connections[place];
    if (own.connection_keys[place] == no_rank || before.record == no_record) return;
    copy_record(warp, connections_of(state)[before.record], before);
    if (warp.leads() && has_undelivered(before)) own.undelivered = 1;
}

// Where a rank's index is looked at for the connection to another: what each thread sees there.
struct index_probe {
    std::uint32_t world_rank;
    std::uint32_t first; // the place of the first thread, behind the index's end perhaps
    connection_slot found;
};
DCUDA_DEVICE connection_slot& index_slot(const rank_state& state, std::uint32_t place) {
    const std::uint32_t slots = state.device.index_slots;
    return state.device.connection_index[std::size_t(state.device_rank) * slots + (place & (slots - 1))];
}
template <class Warp>
DCUDA_DEVICE index_probe probe_index(const Warp& warp, const rank_state& state, std::uint32_t world_rank) {
    const std::uint32_t first = hash_of(world_rank);
    return {world_rank, first, index_slot(state, first + warp.index)};
}

// The record of the connection to a rank, or no_record; then the index has none at `probe`, or at an empty place, which
// `probe.first` becomes.
template <class Warp>
DCUDA_DEVICE std::uint32_t find_record(const Warp& warp, const rank_state& state, index_probe& probe) {
    for (;;) {
        const unsigned hits = vote(warp, probe.found.rank == probe.world_rank + 1),
                       empty = vote(warp, probe.found.rank == 0);
        if (hits != 0) return broadcast(warp, probe.found.record, lowest(hits));
        if (empty != 0) {
            probe.first += lowest(empty);
            return no_record;
        }
        probe.first += warp.count;
        probe.found = index_slot(state, probe.first + warp.index);
    }
}

// A message in a queue that is not near its target is announced: see is_announced(). One thread.
DCUDA_DEVICE void announce_message(const rank_connection& path) {
    add_after_fence<order_tag::none>(&path.status->far_messages, 1u);
}

// connection::flushes where the next message releases in any case.
DCUDA_DEVICE std::uint32_t never_flushed(const endpoint& own) { return own.flushes - 1; }

// A new connection to a rank. `slot`: where the index has room for it. One thread.
DCUDA_COLD void open_connection(rank_state& state, endpoint& own, std::uint32_t world_rank, std::uint32_t slot,
                                rank_connection& found) {
    const device_context& device = state.device;
    const auto [process, rank] = locate(state, world_rank);
    const peer_view& peer = device.peers[process];
    found = {};
    found.world_rank = world_rank;
    found.record = no_record;
    found.reach = process == device.process_index ? scope::device : scope::system;
    if (peer.counters == nullptr) return; // reached over the network
    found.counters = peer.counters + std::size_t(rank) * device.tags.wire_count();
    found.status = peer.status + rank;
    found.flushes = never_flushed(own);
    if (own.connection_count == device.partner_limit) return;
    found.record = own.connection_count++;
    index_slot(state, slot) = {world_rank + 1, found.record};
    claim_queue(device, peer, rank, found);
    if (found.queue == nullptr) return;
    const std::uint32_t start = device.counter_start;
    found.credit = state.inbox.credits + std::size_t(state.device_rank) * device.partner_limit + found.record;
    found.sent = found.freed = {start, start};
    found.placed = start;
    store_packet<order_tag::message_publish>(found.queue + device.queues.header(start), found.record, message_connects,
                                             state.world_rank, start + 1);
    ++found.sent.messages;
    ++own.sent[static_cast<unsigned>(found.reach)];
    if (found.is_far != 0) announce_message(found);
    if (DCUDA_BACKEND_CPU) ring_doorbell(&found.status->doorbell);
}

// Brings the connection to a rank near, in place of another: from the rank's table, or a new one. Its place.
template <class Warp>
DCUDA_COLD unsigned load_connection(Warp warp, shared_state shared, index_probe probe) {
    rank_state& state = shared.get();
    const std::uint32_t world_rank = probe.world_rank;
    endpoint& own = state.own.of(warp);
    const unsigned place =
        own.near_connections < cached_connections ? own.near_connections : entry_by_chance<cached_connections>(own);
    sync(warp); // nobody still reads what the entry holds now
    forget_connection(warp, state, place);
    const std::uint32_t record = find_record(warp, state, probe);
    sync(warp);
    rank_connection& path = own.connections[place];
    if (record != no_record) copy_record(warp, path, connections_of(state)[record]);
    if (warp.leads()) {
        if (record == no_record) open_connection(state, own, world_rank, probe.first, path);
        own.connection_keys[place] = world_rank;
        change_chance(own);
        if (place == own.near_connections) own.near_connections = place + 1;
    }
    sync(warp);
    // What the table says may be old, but is never anything else.
    if (record == no_record && path.record != no_record) copy_record(warp, connections_of(state)[path.record], path);
    return place;
}

// The place of the connection to a rank among those that are near, or cached_connections.
template <class Warp>
DCUDA_DEVICE unsigned find_near_connection(const Warp& warp, rank_state& state, std::uint32_t world_rank) {
    const auto key_of = [&](unsigned entry) { return state.own.of(warp).connection_keys[entry]; };
    return find_key<cached_connections>(warp, world_rank, key_of);
}

// Its place, brought near if it is not.
DCUDA_DEVICE unsigned find_connection(const lead_warp& warp, rank_state& state, std::uint32_t world_rank) {
    const unsigned place = find_near_connection(warp, state, world_rank);
    return place != cached_connections ? place : load_connection(warp, state, probe_index(warp, state, world_rank));
}

// --- Messages ------------------------------------------------------------------------------------------------------

// What a message says: `bytes` bytes at `source` go to `home` in the target's memory, which is `target` here.
struct message_content {
    std::byte* target;
    std::byte* home;
    const std::byte* source;
    std::uint32_t bytes;
    std::uint32_t tag;
    std::uint32_t flags; // of the header
    // The source lies where it goes: nothing has to be copied.
    DCUDA_DEVICE bool is_in_place() const { return (target == source) & (bytes != 0); }
    // Payload that travels.
    DCUDA_DEVICE std::uint32_t payload_bytes() const { return is_in_place() ? 0 : bytes; }
};

// Bits of endpoint::unreleased, shifted by a scope. Puts: the connections say at which targets.
inline constexpr std::uint32_t unreleased_puts = 1, unreleased_stores = 4;
static_assert(static_cast<unsigned>(scope::device) == 0 && static_cast<unsigned>(scope::system) == 1);

// What was stored into memory that ranks of this reach read has been released. The leader.
DCUDA_DEVICE void count_as_released(endpoint& own, scope reach) {
    own.unreleased &= reach == scope::system ? 0 : ~(unreleased_puts | unreleased_stores);
}

// Orders what was stored into the memory of targets of this reach before the messages that follow. The leader, after
// the block's barrier.
DCUDA_DEVICE void release_stores(rank_state& state, endpoint& own, scope reach) {
    exec::complete_copies(state.staging);
    fence_release<order_tag::message_publish>(reach);
    count_as_released(own, reach);
}

// Whether anything was stored at a target that nothing has released, or without a put.
DCUDA_DEVICE bool has_unreleased(const endpoint& own, const rank_connection& connection) {
    const std::uint32_t of_target = unreleased_stores | (connection.unreleased != 0 ? unreleased_puts : 0);
    return (own.unreleased >> static_cast<unsigned>(connection.reach) & of_target) != 0;
}
// Whether anything was stored at any target of this reach that nothing has released.
DCUDA_DEVICE bool has_unreleased(const endpoint& own, scope reach) {
    return (own.unreleased >> static_cast<unsigned>(reach) & (unreleased_puts | unreleased_stores)) != 0;
}

// Makes the header of the next message on a connection. One thread, or all of the lead warp for themselves.
DCUDA_DEVICE outgoing_header make_header(const rank_state& state, const endpoint& own,
                                         const rank_connection& connection, const message_content& content) {
    const bool in_place = content.is_in_place();
    const bool releases = (connection.flushes != own.flushes) | in_place;
    const auto home = static_cast<std::uint64_t>(reinterpret_cast<std::uintptr_t>(content.home));
    const mailbox_header header{
        {static_cast<std::uint32_t>(home),
         static_cast<std::uint32_t>(home >> 32) | content.flags | (releases ? message_releases : 0),
         content.tag << 16 | content.payload_bytes()}};
    const bool must_release = has_unreleased(own, connection) | in_place;
    return {connection.queue + state.device.queues.header(connection.sent.messages), header,
            connection.sent.messages + 1, must_release ? 1u : 0u};
}

// A header leaves, after what it releases.
// ORDER message-publish -> message-observe: a packet's number and payload are stored at once. What was stored into the
// target's memory, or is in place, is released before the header leaves: fence, then the header's strong store, of one
// thread; whoever sees the header acquires. The leader; after the block's barrier if the header releases.
DCUDA_DEVICE void store_header(rank_state& state, endpoint& own, const rank_connection& connection,
                               const outgoing_header& message) {
    if (message.must_release != 0) release_stores(state, own, connection.reach);
    store_packet<order_tag::message_publish>(message.slot, message.header.words[0], message.header.words[1],
                                             message.header.words[2], message.sequence);
}

// An atomic operation has changed an element, whose value it has brought back: the next message there releases that.
// The leader.
DCUDA_DEVICE void count_update(endpoint& own, rank_connection& connection) {
    connection.unreleased = 1;
    connection.flushes = never_flushed(own);
    own.unreleased |= bit_of(connection.reach);
}
// Something was stored at a target directly: likewise. The leader.
DCUDA_DEVICE void count_direct_store(endpoint& own, rank_connection& connection) {
    count_update(own, connection);
    own.has_stored = 1;
}

// Before a put is stored there by `way`.
// ORDER bulk-then-words: what the engine has stored before comes before what the block's threads will store after its
// next barrier. The leader, before that barrier.
DCUDA_DEVICE void complete_before_words(rank_state& state, exec::copy_way way, const std::byte* target,
                                        std::size_t bytes) {
    if (way == exec::copy_way::threads || exec::has_edges(target, bytes)) exec::complete_copies(state.staging);
}

// Completes what the block's threads and the copy engine have stored at any target. The leader, after the block's
// barrier.
DCUDA_DEVICE void complete_stores(rank_state& state, endpoint& own) {
    exec::complete_copies(state.staging);
    complete_writes(state.job_scope);
    own.unreleased = own.has_stored = 0;
    ++own.flushes;
}

// The rank's threads have stored something without a put: the next message to each target releases it. The leader.
// ORDER message-publish: the barrier with which the next operation begins orders the other threads' stores before the
// fence of whoever stores that message.
DCUDA_DEVICE void count_own_stores(const rank_state& state, endpoint& own) {
    own.unreleased |= unreleased_stores << static_cast<unsigned>(scope::device);
    if (state.device.process_count > 1) own.unreleased |= unreleased_stores << static_cast<unsigned>(scope::system);
    ++own.flushes;
}

// A message has left that releases what was stored at its target before. The leader.
DCUDA_DEVICE void count_release(const endpoint& own, rank_connection& connection) {
    connection.unreleased = 0;
    connection.flushes = own.flushes;
}

// What was stored at a target is released, before a message leaves that says so. The lead warp. `IsFar`: for
// send_to_far_target().
template <bool IsFar = false>
DCUDA_COLD void release_before_message(lead_warp warp, shared_state shared, unsigned place) {
    if (!warp.leads()) return;
    rank_state& state = shared.get();
    endpoint& own = state.own.of(warp);
    rank_connection& connection = own.connections[place];
    if (has_unreleased(own, connection)) release_stores(state, own, connection.reach);
    count_release(own, connection);
}

// Counts a message that has left, with so many packets of payload. The leader.
DCUDA_DEVICE void count_sent(endpoint& own, rank_connection& connection, std::uint32_t packets, bool releases) {
    connection.sent = {connection.sent.messages + 1, connection.sent.packets + packets};
    ++own.sent[static_cast<unsigned>(connection.reach)];
    if (releases) count_release(own, connection);
    if (connection.is_far != 0) announce_message(connection);
    if (DCUDA_BACKEND_CPU) ring_doorbell(&connection.status->doorbell);
}

// A message whose payload, if it has any, leaves by itself. There is room for it.
DCUDA_DEVICE void send_header(const lead_warp& warp, rank_state& state, unsigned place,
                              const message_content& content) {
    endpoint& own = state.own.of(warp);
    sync(warp);
    if (warp.leads()) {
        rank_connection& connection = own.connections[place];
        const outgoing_header message = make_header(state, own, connection, content);
        store_header(state, own, connection, message);
        if (content.payload_bytes() != 0 && connection.keeps_range != 0)
            extend_range(connection, message.header.address(), content.payload_bytes());
        count_sent(own, connection, packets_for(content.payload_bytes()), message.header.releases());
    }
    sync(warp);
}

// The payload of a message: every `threads`-th packet from `first` on. Any threads of the block.
DCUDA_DEVICE void store_payload(const rank_state& state, packet* queue, std::uint32_t position, const void* source,
                                std::uint32_t bytes, std::uint32_t first, std::uint32_t threads) {
    const auto* const from = static_cast<const std::byte*>(source);
    for (std::uint32_t number = first; number < packets_for(bytes); number += threads) {
        const chunk part = load_chunk(from + number * packet_payload_bytes, chunk_bytes(bytes, number));
        store_packet<order_tag::message_publish>(queue + state.device.queues.packet(position + number), part.words[0],
                                                 part.words[1], part.words[2], position + number + 1);
    }
}

// --- What is under way ---------------------------------------------------------------------------------------------

// The smallest of the values that the threads of a group have.
template <class Group>
DCUDA_DEVICE std::uint64_t smallest(const Group& group, std::uint64_t value) {
    std::uint64_t result = value;
    for (unsigned from = 0; from < group.count; ++from) {
        const std::uint32_t low = broadcast(group, static_cast<std::uint32_t>(value), from);
        const std::uint32_t high = broadcast(group, static_cast<std::uint32_t>(value >> 32), from);
        const std::uint64_t other = low | static_cast<std::uint64_t>(high) << 32;
        if (other < result) result = other;
    }
    return result;
}

// Whether payload that is under way to a target may come over these bytes, as the target addresses them. The headers
// say so, which lie where this rank has written them. Where that must be looked up, and it is not so, the connection
// keeps from now on the range of all that is under way.
DCUDA_COLD bool is_under_way(lead_warp warp, shared_state shared, unsigned place, const std::byte* home,
                             std::size_t bytes) {
    rank_state& state = shared.get();
    rank_connection& connection = state.own.of(warp).connections[place];
    const auto begin = static_cast<std::uint64_t>(reinterpret_cast<std::uintptr_t>(home)), end = begin + bytes;
    if (bytes == 0 || !may_be_under_way(connection, begin, bytes)) return false;
    read_credit(warp, connection);
    if (!has_undelivered(connection)) {
        if (warp.leads()) connection.keeps_range = 1;
        return false;
    }
    std::uint64_t lowest_begin = UINT64_MAX, lowest_beyond = UINT64_MAX; // of payload; the latter is ~end
    for (std::uint32_t first = connection.freed.messages; first != connection.sent.messages;) {
        const std::uint32_t position = first + warp.index;
        const bool was_sent = connection.sent.messages - position - 1 < connection.sent.messages - first;
        bool hit = false;
        if (was_sent) {
            const packet head = load_packet<order_tag::message_observe>(
                connection.queue + state.device.queues.header(position), position + 1);
            const mailbox_header header{{head.payload[0], head.payload[1], head.payload[2]}};
            const std::uint64_t from = header.address(), beyond = from + header.bytes();
            hit = head.sequence != position + 1 || // never: it is this rank's own
                  (from != beyond && from < end && begin < beyond);
            if (from != beyond && from < lowest_begin) lowest_begin = from;
            if (from != beyond && ~beyond < lowest_beyond) lowest_beyond = ~beyond;
        }
        if (any(warp, hit)) return true;
        const std::uint32_t rest = connection.sent.messages - first;
        first += rest < warp.count ? rest : warp.count;
    }
    lowest_begin = smallest(warp, lowest_begin);
    lowest_beyond = smallest(warp, lowest_beyond);
    sync(warp); // all have read what now changes
    if (warp.leads()) {
        connection.begin = lowest_begin;
        connection.end = ~lowest_beyond;
        connection.keeps_range = 1;
    }
    sync(warp);
    return false;
}

// Asks a target to take what is under way to it: by a message, behind the others, if there is room; and by a word that
// it looks at in every operation.
DCUDA_DEVICE void request_credit(const lead_warp& warp, rank_state& state, unsigned place, bool again) {
    rank_connection& connection = state.own.of(warp).connections[place];
    if (!again && has_room(state, connection, 0))
        send_header(warp, state, place, {nullptr, nullptr, nullptr, 0, 0, message_is_quiet | message_requests});
    if (!warp.leads()) return;
    add_after_fence<order_tag::none>(&connection.status->requests, 1u);
    if (DCUDA_BACKEND_CPU) ring_doorbell(&connection.status->doorbell);
}

// Waits until all payload that is under way to a target is in its window, and takes this rank's own messages meanwhile:
// they may come from that target, which then waits for us. `asked`: the target knows that this rank waits. False if the
// run ended.
DCUDA_COLD bool await_delivery(lead_warp warp, shared_state shared, unsigned place, operation where,
                               bool asked = false) {
    rank_state& state = shared.get();
    endpoint& own = state.own.of(warp);
    rank_connection& connection = own.connections[place];
    if (connection.queue == nullptr || connection.sent.packets == connection.placed) return true;
    read_credit(warp, connection);
    if (connection.sent.packets == connection.placed) return true;
    if (!asked) request_credit(warp, state, place, false);
    if (warp.leads()) {
        begin_wait(exec::lead_access::alone(), state, waiting::delivery, where, connection.world_rank);
        if (is_profiled(state)) begin_blocked(exec::lead_access::alone(), state);
    }
    const bool there = poll_until<wake_by::store>(
        [&](unsigned polls) {
            if (polls % 4 == 0 && answer_sources(warp, state) && warp.leads())
                count_as_new_wait(exec::lead_access::alone(), state);
            read_credit(warp, connection);
            return connection.sent.packets == connection.placed ? poll_result::all : poll_result::nothing;
        },
        [&] {
            // The word may have come before the last messages did.
            request_credit(warp, state, place, true);
            return any(warp,
                       warp.leads() && keep_waiting(exec::lead_access::alone(), state, credit_of(connection.freed)));
        },
        connection.credit);
    if (warp.leads()) {
        if (is_profiled(state)) end_blocked(exec::lead_access::alone(), state, waiting::delivery);
        end_wait(exec::lead_access::alone(), state);
    }
    return there;
}

// Whether payload may be under way to any target.
DCUDA_DEVICE bool find_undelivered(const lead_warp& warp, endpoint& own) {
    bool found = own.undelivered != 0;
    for (unsigned place = warp.index; place < own.near_connections; place += warp.count)
        found = found || has_undelivered(own.connections[place]);
    return any(warp, found);
}

// visit(place) for each connection to a target that payload may be under way to, until it returns false. Connections
// that are not near are brought near.
template <class Visit>
DCUDA_DEVICE bool visit_undelivered(const lead_warp& warp, rank_state& state, const Visit& visit) {
    endpoint& own = state.own.of(warp);
    for (unsigned place = 0; place < own.near_connections; ++place)
        if (has_undelivered(own.connections[place]) && !visit(place)) return false;
    if (own.undelivered == 0) return true;
    const rank_connection* const table = connections_of(state);
    const std::uint32_t count = own.connection_count;
    for (std::uint32_t first = 0; first < count; first += warp.count) {
        const std::uint32_t record = first + warp.index;
        for (unsigned hits = vote(warp, record < count && has_undelivered(table[record])); hits != 0;
             hits &= hits - 1) {
            // What the table says of a connection that is near may be old.
            const unsigned place = find_connection(warp, state, table[first + lowest(hits)].world_rank);
            if (has_undelivered(own.connections[place]) && !visit(place)) return false;
        }
    }
    return true;
}

// Asks all targets that payload may be under way to. PERF: before any of them is waited for.
DCUDA_COLD void request_all_credit(lead_warp warp, shared_state shared) {
    rank_state& state = shared.get();
    visit_undelivered(warp, state, [&](unsigned place) {
        request_credit(warp, state, place, false);
        return true;
    });
}

// Waits for them. False if the run ended.
DCUDA_COLD bool await_all_deliveries(lead_warp warp, shared_state shared, operation where) {
    rank_state& state = shared.get();
    const bool going =
        visit_undelivered(warp, state, [&](unsigned place) { return await_delivery(warp, state, place, where, true); });
    sync(warp);
    if (going && warp.leads()) state.own.of(warp).undelivered = state.own.of(warp).has_sent_quietly = 0;
    sync(warp);
    return going;
}

// Puts without a notification that have left as messages are in their places. False if the run ended. The lead warp.
DCUDA_COLD bool complete_quiet_puts(lead_warp warp, shared_state shared, operation where) {
    rank_state& state = shared.get();
    if (state.own.of(warp).has_sent_quietly == 0) return true;
    request_all_credit(warp, state);
    return await_all_deliveries(warp, state, where);
}

} // namespace dcuda::detail
