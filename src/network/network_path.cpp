// SPDX-License-Identifier: BSD-3-Clause
#include "network/network_path.hpp"

#include <algorithm>
#include <bit>
#include <cstring>

namespace dcuda {

using namespace detail;

namespace {

constexpr std::uint64_t barrier_flushes = std::uint64_t{1} << 63; // their numbers: this and the collective
constexpr std::size_t most_gets = 4096;                           // of this device's ranks, that are not complete

// A wire tag as the program names it, or no_tag.
std::uint32_t named_tag(std::uint32_t wire_tag, const tag_numbers& tags) {
    return wire_tag == no_tag ? no_tag : tags.tag_of(wire_tag);
}

} // namespace

network_path::network_path(bootstrap::control& control, device_access& link, const settings& chosen,
                           const std::vector<bool>& is_remote, const std::vector<bool>& is_near,
                           const std::string& local_address)
    : control_(control),
      connections_(control, link, static_cast<message_handler&>(*this), chosen, is_remote, is_near, local_address) {
    const int rounds = std::bit_width(static_cast<unsigned>(control.count() - 1));
    for (process_barrier& barrier : barriers_) barrier.arrivals.resize(static_cast<std::size_t>(rounds));
}

void network_path::begin(device_state& state, delivery& into, host_track& track,
                         const std::vector<host_window>& windows) {
    state_ = &state;
    delivery_ = &into;
    check_.begin_run(static_cast<std::uint32_t>(state.ranks()), state.fields().tags.wire_count(),
                     static_cast<std::uint32_t>(barriers_.front().arrivals.size()), state.exchange_slots(),
                     state.split_entries());
    open_window(state.fields().max_windows, state.bounce_buffers()); // as one window more
    for (const host_window& each : windows)
        open_window(each.slot(),
                    std::vector<window_entry>(static_cast<std::size_t>(state.ranks()),
                                              each.entries.at(static_cast<std::size_t>(control_.index()))));
    track_ = track.is_on() ? &track : nullptr;
    connections_.begin(into, track_);
}

void network_path::end() {
    connections_.end();
    state_ = nullptr;
    delivery_ = nullptr;
    track_ = nullptr;
}

// ---- what ranks want ------------------------------------------------------------------------------------------------

bool network_path::has_room() const { return gets_.size() < most_gets && connections_.has_room(); }

void network_path::take(const command& cmd, const std::byte* payload) {
    switch (cmd.code) {
    case opcode::send:
        return send(cmd.rank, fields_of<send_fields>(cmd), payload);
    case opcode::exchange:
        return send(cmd.rank, fields_of<exchange_fields>(cmd));
    case opcode::update:
        return send(cmd.rank, fields_of<update_fields>(cmd));
    case opcode::rows:
        return send(cmd.rank, fields_of<rows_fields>(cmd), payload);
    case opcode::get:
        return send(cmd.rank, fields_of<get_fields>(cmd));
    case opcode::flush:
        return begin_flush(next_flush_++, cmd.rank, cmd.rank, fields_of<flush_fields>(cmd).number);
    case opcode::barrier: {
        const auto [number, place, unread] = fields_of<barrier_fields>(cmd);
        process_barrier& barrier = barriers_.at(place);
        barrier.is_active = true;
        barrier.number = number;
        barrier.is_unread = unread != 0;
        barrier.round = 0;
        barrier.is_drained = barrier.told = false;
        return begin_flush(barrier_flushes + place, cmd.rank, connection::all_ranks, 0);
    }
    default:
        break;
    }
}

// Of what this rank has sent and gets, or all have. Who asked is told by flushed().
void network_path::begin_flush(std::uint64_t id, std::uint32_t asks, std::uint32_t rank, std::uint32_t number) {
    pending_flush& flush = flushes_[id] = {asks, number, 1};
    for (const auto& [process, each] : connections_.all())
        if (each->flush(id, rank)) ++flush.connections;
    if (gets(rank)) {
        flush.waits_for = rank;
        ++flush.connections;
    }
    flushed(id); // this function's own part
}

void network_path::send(std::uint32_t rank, const send_fields& put, const std::byte* payload) {
    const std::uint64_t begin_ns = track_ != nullptr ? clock_ns() : 0;
    const auto ranks = static_cast<std::uint32_t>(state_->ranks());
    connection& target = connections_.connect(static_cast<int>(put.target / ranks));
    message_header head{put.address, 0, message_kind::put, put.target % ranks, put.tag};
    std::uint64_t bytes = put.bytes;
    if (put.more_bytes == in_ring) {
        head.bytes = put.bytes;
        target.send(head, payload, rank);
    } else {
        bytes |= static_cast<std::uint64_t>(put.more_bytes) << 32;
        const std::uint64_t source = put.payload[0] | static_cast<std::uint64_t>(put.payload[1]) << 32;
        target.send_from_device(head, bytes, reinterpret_cast<const std::byte*>(static_cast<std::uintptr_t>(source)),
                                rank);
    }
    if (track_ != nullptr)
        track_->record(begin_ns, host_event_kind::network_put, rank, put.target / ranks,
                       named_tag(put.tag, state_->fields().tags), bytes);
}

// A message of a rank to a world rank, which is no put, with head.bytes of payload; the timeline tells of `bytes`.
void network_path::send_small(std::uint32_t rank, std::uint32_t target, message_header head, const void* payload,
                              std::uint64_t bytes) {
    const std::uint64_t begin_ns = track_ != nullptr ? clock_ns() : 0;
    const auto ranks = static_cast<std::uint32_t>(state_->ranks());
    connections_.connect(static_cast<int>(target / ranks)).send(head, static_cast<const std::byte*>(payload), rank);
    if (track_ != nullptr) track_->record(begin_ns, host_event_kind::network_put, rank, target / ranks, no_tag, bytes);
}

void network_path::send(std::uint32_t rank, const exchange_fields& unit) {
    const auto ranks = static_cast<std::uint32_t>(state_->ranks());
    send_small(rank, unit.target, {unit.address, unit_bytes, message_kind::packets, unit.target % ranks, unit.word},
               unit.values, unit_bytes);
}

void network_path::send(std::uint32_t rank, const update_fields& update) {
    const auto ranks = static_cast<std::uint32_t>(state_->ranks());
    const update_payload asked{update.operand, update.expected, rank, update.answer};
    if (update.answer != no_answer) check_.await_answer(rank, static_cast<int>(update.target / ranks), update.answer);
    send_small(rank, update.target,
               {update.address, sizeof asked, message_kind::update, update.target % ranks, update.update}, &asked,
               size_of_element(update_of(update.update, 0, 0).type));
}

void network_path::send(std::uint32_t rank, const rows_fields& rows, const std::byte* payload) {
    const auto ranks = static_cast<std::uint32_t>(state_->ranks());
    const bool is_stored = rows.update == no_update;
    send_small(rank, rows.target,
               {rows.address, rows.bytes, is_stored ? message_kind::rows : message_kind::sums, rows.target % ranks,
                is_stored ? rows.width : rows.update, rows.distance},
               payload, rows.bytes);
}

void network_path::send(std::uint32_t rank, const get_fields& get) {
    const auto ranks = static_cast<std::uint32_t>(state_->ranks());
    const int process = static_cast<int>(get.target / ranks);
    const std::uint32_t target = get.target % ranks;
    if (get.bytes == 0) {
        if (get.tag != no_tag)
            connections_.connect(process).send({0, 0, message_kind::put, target, get.tag}, nullptr, rank);
        return;
    }
    const std::uint32_t number = next_get_++;
    gets_[number] = {rank, process, target, get.tag};
    ++gets_of_[rank];
    check_.begin_get(number, process, get.destination, get.bytes);
    const get_payload asked{get.bytes, get.destination, number};
    send_small(rank, get.target, {get.address, sizeof asked, message_kind::get, target, no_tag}, &asked, sizeof asked);
}

// Whether gets of the rank, or of any, are not complete.
bool network_path::gets(std::uint32_t rank) const {
    return rank == connection::all_ranks ? !gets_.empty() : gets_of_.contains(rank);
}

void network_path::flushed(std::uint64_t id) {
    const auto found = flushes_.find(id);
    if (--found->second.connections != 0) return;
    const pending_flush flush = found->second;
    flushes_.erase(found);
    if (id >= barrier_flushes)
        barriers_.at(static_cast<std::size_t>(id - barrier_flushes)).is_drained = true;
    else
        reply(state_->fields().network.flushed + flush.rank, flush.number);
}

// Takes our part in the barrier's next rounds, as far as the others have come.
bool network_path::advance(process_barrier& barrier, std::uint32_t index) {
    if (!barrier.is_active || !barrier.is_drained) return false;
    bool any = false;
    const int count = control_.count();
    while (barrier.round < barrier.arrivals.size()) {
        if (!std::exchange(barrier.told, true)) {
            const int next = (control_.index() + (1 << barrier.round)) % count;
            connections_.connect(next).send(
                {barrier.is_unread ? 1u : 0u, 0, message_kind::barrier, index, barrier.round}, nullptr,
                connection::all_ranks);
            any = true;
        }
        auto& arrivals = barrier.arrivals[barrier.round];
        if (arrivals.empty()) return any;
        barrier.is_unread = barrier.is_unread || arrivals.front();
        arrivals.pop_front();
        ++barrier.round;
        barrier.told = false;
    }
    barrier.is_active = false;
    reply(state_->fields().network.met + index, (barrier.number << 1) | (barrier.is_unread ? 1 : 0));
    return true;
}

void network_path::reply(std::uint32_t* word, std::uint32_t value) { replies_.emplace_back(word, value); }

// ---- what comes -----------------------------------------------------------------------------------------------------

bool network_path::take(int from, const message_header& head, const std::byte* payload) {
    switch (head.kind) {
    case message_kind::put:
    case message_kind::rows:
    case message_kind::sums:
    case message_kind::packets: {
        const std::uint64_t begin_ns = track_ != nullptr ? clock_ns() : 0;
        const bool is_taken = deliver(head, payload);
        if (is_taken && track_ != nullptr)
            track_->record(begin_ns, host_event_kind::delivery, head.target, static_cast<std::uint32_t>(from),
                           head.kind == message_kind::put ? named_tag(head.tag, state_->fields().tags) : no_tag,
                           head.bytes);
        return is_taken;
    }
    case message_kind::barrier:
        barriers_.at(head.target).arrivals.at(head.tag).push_back(head.place != 0);
        return true;
    case message_kind::get: {
        get_payload asked;
        std::memcpy(&asked, payload, sizeof asked);
        connections_.connect(from).send_from_device(
            {asked.destination, 0, message_kind::got, asked.number, 0}, asked.bytes,
            reinterpret_cast<const std::byte*>(static_cast<std::uintptr_t>(head.place)), connection::answers);
        return true;
    }
    case message_kind::got:
        return take_got(head, payload);
    case message_kind::update: {
        update_payload asked;
        std::memcpy(&asked, payload, sizeof asked);
        return take_update(from, head, asked);
    }
    case message_kind::result:
        // ORDER reply-publish: the result lies there before the rank sees that it does.
        if (!delivery_->put(reinterpret_cast<std::uintptr_t>(state_->fields().network.results + head.target), payload,
                            head.bytes, head.target, no_tag))
            return false;
        check_.await_answer(head.target, from, no_answer);
        reply(state_->fields().network.answered + head.target, head.tag);
        return true;
    case message_kind::piece:
    case message_kind::taken:
    case message_kind::answer: // the connection's own
        break;
    }
    return true;
}

// What the delivery kernel alone has to do with. False: not now.
bool network_path::deliver(const message_header& head, const std::byte* payload) {
    switch (head.kind) {
    case message_kind::put:
        return delivery_->put(head.place, payload, head.bytes, head.target, head.tag);
    case message_kind::rows:
        return delivery_->put_rows(head.place, payload, head.bytes, head.tag, head.distance);
    case message_kind::sums:
        return delivery_->combine(head.place, payload, head.bytes, head.tag);
    default:
        return delivery_->put_packets(head.place, payload, head.target, head.tag);
    }
}

// False: not now; too many results have not been sent yet, or deliveries are full.
bool network_path::take_update(int from, const message_header& head, const update_payload& asked) {
    if (results_.size() == delivery_results) return false;
    if (!delivery_->update(head.place, update_of(head.tag, asked.operand, asked.expected), next_result_)) return false;
    if (asked.number == no_answer) return true;
    results_.push_back({from, asked.rank, asked.number, delivery_->issued()});
    next_result_ = (next_result_ + 1) % delivery_results;
    return true;
}

// False: not now. `head.bytes` is 0 if a copy engine has placed them.
bool network_path::take_got(const message_header& head, const std::byte* payload) {
    pending_get& get = gets_.at(head.target);
    if (head.bytes != 0 && !delivery_->put(head.place, payload, head.bytes, get.rank, no_tag)) return false;
    if (head.tag == no_tag || get.has_come) return true;
    get.has_come = true;
    got_.emplace_back(head.target, delivery_->issued());
    return true;
}

// Tells those who wait of gets that are complete.
bool network_path::end_gets() {
    bool any = false;
    for (const std::uint64_t done = got_.empty() ? 0 : delivery_->done(); !got_.empty() && got_.front().second <= done;
         got_.pop_front()) {
        const std::uint32_t number = got_.front().first;
        const pending_get get = gets_.extract(number).mapped();
        if (const auto others = gets_of_.find(get.rank); --others->second == 0) gets_of_.erase(others);
        check_.end_get(number);
        if (get.tag != no_tag)
            connections_.connect(get.process).send({0, 0, message_kind::put, get.target, get.tag}, nullptr, get.rank);
        any = true;
    }
    if (!any) return false;
    std::vector<std::uint64_t> complete;
    for (auto& [id, flush] : flushes_)
        if (flush.waits_for && !gets(*flush.waits_for)) {
            // Their notifications have just left, and are part of it.
            for (const auto& [process, each] : connections_.all())
                if (each->flush(id, *flush.waits_for)) ++flush.connections;
            flush.waits_for.reset();
            complete.push_back(id);
        }
    for (const std::uint64_t id : complete) flushed(id);
    return true;
}

// Sends the results that are there to who waits for them.
bool network_path::send_results() {
    bool any = false;
    for (const std::uint64_t done = results_.empty() ? 0 : delivery_->done();
         !results_.empty() && results_.front().delivery <= done; results_.pop_front()) {
        const pending_result& first = results_.front();
        const auto place = (next_result_ + delivery_results - results_.size()) % delivery_results;
        const std::uint64_t before = delivery_->result(static_cast<std::uint32_t>(place));
        connections_.connect(first.process)
            .send({0, sizeof before, message_kind::result, first.rank, first.number},
                  reinterpret_cast<const std::byte*>(&before), connection::all_ranks);
        any = true;
    }
    return any;
}

bool network_path::progress() {
    bool any = connections_.progress();
    if (delivery_ == nullptr) return any;
    any = send_results() || any;
    any = end_gets() || any;
    for (std::uint32_t index = 0; index < collective::barriers; ++index) any = advance(barriers_[index], index) || any;
    while (!replies_.empty() && delivery_->reply(replies_.front().first, replies_.front().second)) {
        replies_.pop_front();
        any = true;
    }
    return any;
}

bool network_path::is_quiet() const {
    const bool all_done = delivery_ == nullptr || delivery_->done() == delivery_->issued();
    return all_done && replies_.empty() && results_.empty() && gets_.empty() && flushes_.empty() &&
           connections_.is_quiet();
}

} // namespace dcuda
