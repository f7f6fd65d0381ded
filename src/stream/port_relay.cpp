// SPDX-License-Identifier: BSD-3-Clause
#include "stream/port_relay.hpp"

#include "dcuda/detail/protocol/box.hpp"
#include "dcuda/detail/protocol/memory.hpp"

#include <algorithm>
#include <cstring>

namespace dcuda {

using namespace detail;

namespace {

constexpr std::uint32_t the_port = 0; // in place of a rank

std::byte* address_of(std::uint64_t place) { return reinterpret_cast<std::byte*>(static_cast<std::uintptr_t>(place)); }

// Before the network is opened.
const port_access& require_threads(const port_access& owner) {
    support::require(!uses_mpi(owner.chosen, owner.paths.is_remote, owner.paths.is_near), error_code::no_path,
                     "stream_port: MPI is used by one thread at a time, for ranks; set DCUDA_TRANSPORT to ofi or verbs "
                     "for streams");
    return owner;
}

} // namespace

std::uint64_t copies_in_order::start_copy(std::uint64_t place, const std::byte* payload, std::size_t bytes) {
    if (copies_.is_full()) return 0;
    return copies_.start(address_of(place), payload, bytes, "placing a put from a network");
}

bool copies_in_order::start_rows(std::uint64_t place, std::uint64_t distance, const std::byte* payload,
                                 std::size_t width, std::size_t rows) {
    if (copies_.is_full()) return false;
    // CUDA wants a distance that is not below the width, also for a single row, where it means nothing.
    copies_.start_rows(address_of(place), rows > 1 ? distance : width, payload, width, rows,
                       "placing rows from a network");
    return true;
}

port_relay::port_relay(bootstrap::control& control, const port_access& owner, port_memory& memory, int tags)
    : windows_(require_threads(owner).windows), memory_(memory), tags_(static_cast<std::uint32_t>(tags)),
      place_of_(owner.paths.is_remote.size()),
      connections_(control, link_, static_cast<message_handler&>(*this), owner.chosen, owner.paths.is_remote,
                   owner.paths.is_near, control.local_address()) {
    for (std::size_t process = 0; process < place_of_.size(); ++process) {
        const int index = static_cast<int>(process);
        if (memory.relay(index) == nullptr) continue;
        place_of_[process] = remotes_.size();
        remotes_.push_back({index, *memory.relay(index), put_queue_reader(memory.relay(index)->puts)});
        remotes_.back().notifications.resize(tags_);
    }
    connections_.begin(copies_);
}

bool port_relay::progress() {
    bool any = connections_.progress();
    for (remote_process& there : remotes_) {
        any = take_puts(there) || any;
        any = take_sends(there) || any;
        any = tell_of_receives(there) || any;
    }
    return any;
}

bool port_relay::is_drained() const {
    return connections_.is_quiet() && std::none_of(remotes_.begin(), remotes_.end(),
                                                   [](const remote_process& there) { return there.puts.has_piece(); });
}

// ---- what the streams give ------------------------------------------------------------------------------------------

// As many as the queue has slots: then the connection is to send them, and it is the others' turn.
bool port_relay::take_puts(remote_process& there) {
    bool any = false;
    for (std::uint32_t i = 0; i < put_queue::slots && there.puts.has_piece(); ++i, any = true) {
        if (!connections_.connect(there.index).has_room() || !read_payload(there)) return any;
        send(there, there.puts.command(), there.puts.slot_data());
        // Who gets later waits for a number that is near, whatever was put before.
        if (there.gets.empty()) there.puts.end_gets(there.puts.number());
        there.puts.free_slot(); // the connection has a copy
    }
    return any;
}

// Whether the payload of the next piece lies in its slot. If the kernel has left it where it was, the copy engine
// brings it: the driver says when it has.
bool port_relay::read_payload(remote_process& there) {
    const put_command& command = there.puts.command();
    if (command.source == nullptr) return true;
    if (there.reading == 0) {
        if (reads_.is_full()) return false;
        there.reading = reads_.start(there.puts.slot_data(), command.source, command.bytes, "reading a put's source");
    }
    if (!reads_.is_done(there.reading)) return false;
    there.reading = 0;
    return true;
}

void port_relay::send(remote_process& there, const put_command& command, const std::byte* payload) {
    connection& way = connections_.connect(there.index);
    const auto bytes = static_cast<std::uint32_t>(command.bytes);
    switch (command.type) {
    case put_command::kind::put:
        return way.send({command.place, bytes, message_kind::put, 0, command.tag}, payload, the_port);
    case put_command::kind::rows:
        way.send({command.place, bytes, message_kind::rows, 0, command.width, command.distance}, payload, the_port);
        if (command.tag != no_tag) way.send({0, 0, message_kind::put, 0, command.tag}, nullptr, the_port);
        return;
    case put_command::kind::get: {
        there.gets.push_back({there.puts.number(), command.distance, command.bytes});
        const get_payload asked{command.bytes, command.distance, there.puts.number()};
        return way.send({command.place, sizeof asked, message_kind::get, 0, no_tag},
                        reinterpret_cast<const std::byte*>(&asked), the_port);
    }
    }
}

// As many pieces are on their way, or wait to be received there, as a queue has slots: so they have room there, and a
// send that is not received keeps back no put.
//
// ORDER notify-observe, queue-free: as the kernel that receives from a peer.
bool port_relay::take_sends(remote_process& there) {
    queue_memory &from = there.memory.far, &back = there.memory.own;
    bool any = false;
    for (; there.next_send - there.received_there < queue_memory::slots; any = true, ++there.next_send) {
        const std::uint32_t slot = there.next_send % queue_memory::slots, number = there.next_send + 1;
        if (load_acquire<order_tag::notify_observe>(scope::system, &from.arrived[slot]) != number) return any;
        const std::uint64_t whole = from.send_bytes[slot],
                            before = std::uint64_t{there.send_piece} * queue_memory::slot_bytes;
        const std::uint64_t bytes = std::min<std::uint64_t>(whole - before, queue_memory::slot_bytes);
        connections_.connect(there.index)
            .send({whole, static_cast<std::uint32_t>(bytes), message_kind::piece, 0, 0}, from.data[slot], the_port);
        there.send_piece = before + bytes == whole ? 0 : there.send_piece + 1;
        store_release<order_tag::queue_free>(scope::system, &back.credits[slot], number);
    }
    return any;
}

// ORDER queue-reuse: as the kernel that sends to a peer.
bool port_relay::tell_of_receives(remote_process& there) {
    std::uint32_t received = there.told_received;
    const auto is_received = [&] {
        return load_acquire<order_tag::queue_reuse>(
                   scope::system, &there.memory.far.credits[received % queue_memory::slots]) == received + 1;
    };
    while (received != there.next_arrival && is_received()) ++received;
    if (received == there.told_received) return false;
    there.told_received = received;
    connections_.connect(there.index).send({0, 0, message_kind::taken, 0, received}, nullptr, the_port);
    return true;
}

// ---- what comes -----------------------------------------------------------------------------------------------------

bool port_relay::take(int process, const message_header& head, const std::byte* payload) {
    remote_process& from = remote(process);
    switch (head.kind) {
    case message_kind::put: // its bytes have been copied
        return head.tag == no_tag || take_notification(from, head.tag);
    case message_kind::rows:
        if (!copies_.start_rows(head.place, head.distance, payload, head.tag, head.bytes / head.tag)) return false;
        from.last_rows = copies_.issued();
        return true;
    case message_kind::get: {
        get_payload asked;
        std::memcpy(&asked, payload, sizeof asked);
        connections_.connect(process).send_from_device({asked.destination, 0, message_kind::got, asked.number, 0},
                                                       asked.bytes, address_of(head.place), connection::answers);
        return true;
    }
    case message_kind::got: // its bytes have been copied
        if (head.tag != no_tag) end_get(from);
        return true;
    case message_kind::piece:
        take_piece(from, head, payload);
        return true;
    case message_kind::taken:
        from.received_there = head.tag;
        return true;
    default:
        return true; // find_fault has refused it
    }
}

// ORDER notify-publish: the driver has said that what came from there before is copied: puts the connection has waited
// for, rows are waited for here. The word is written behind that.
bool port_relay::take_notification(remote_process& from, std::uint32_t tag) {
    if (!copies_.is_copied(from.last_rows)) return false;
    link_.publish_notifications(memory_.counted(from.index, static_cast<int>(tag)), ++from.notifications[tag],
                                memory_.doorbell());
    return true;
}

// ORDER notify-publish: as the kernel that sends to a peer. The slot is free, as this process has told of it.
void port_relay::take_piece(remote_process& from, const message_header& head, const std::byte* payload) {
    queue_memory& queue = from.memory.own;
    const std::uint32_t slot = from.next_arrival++ % queue_memory::slots;
    if (head.bytes != 0) std::memcpy(queue.data[slot], payload, head.bytes);
    queue.send_bytes[slot] = head.place;
    store_release<order_tag::notify_publish>(scope::system, &queue.arrived[slot], from.next_arrival);
}

// ORDER reply-publish: the driver has said that the copies are complete.
void port_relay::end_get(remote_process& from) {
    from.puts.end_gets(from.gets.front().piece);
    from.gets.pop_front();
}

std::string port_relay::find_fault(int process, const message_header& head, const std::byte* payload) const {
    const remote_process& from = remotes_[place_of_[static_cast<std::size_t>(process)]];
    return find_port_fault(
        {tags_, from.next_send, from.received_there, from.next_arrival, from.told_received,
         from.gets.empty() ? nullptr : &from.gets.front()},
        [&](std::uint64_t place, std::uint64_t bytes) { return windows_.holds(place, bytes); }, head, payload);
}

} // namespace dcuda
