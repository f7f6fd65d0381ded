// SPDX-License-Identifier: BSD-3-Clause
#include "network/network_path.hpp"

#include "support/wire.hpp"

#include <algorithm>
#include <bit>
#include <cstring>

namespace dcuda {

using namespace detail;

namespace {

constexpr std::uint64_t barrier_flushes = std::uint64_t{1} << 63; // their numbers: this and the collective
constexpr std::size_t most_queued_bytes = 4u << 20;               // of messages, per connection
constexpr std::size_t most_gets = 4096;                           // of this device's ranks, that are not complete

// Of each direction of a connection: a process that talks to all others has 64 MiB of rings up to 128 processes, and no
// ring is so small that its parts are slow to send.
std::size_t ring_bytes_for(int processes) {
    constexpr std::size_t all = 32u << 20, smallest = 256u << 10, largest = 8u << 20;
    return std::clamp(std::bit_floor(all / static_cast<std::size_t>(processes)), smallest, largest);
}

enum class greeting : std::uint32_t { hello, ready };

// A wire tag as the program names it, or no_tag.
std::uint32_t named_tag(std::uint32_t wire_tag, const tag_numbers& tags) {
    return wire_tag == no_tag ? no_tag : tags.tag_of(wire_tag);
}

} // namespace

network_path::network_path(bootstrap::control& control, device_access& link, const settings& chosen,
                           const std::vector<bool>& is_remote, const std::vector<bool>& is_near,
                           const std::string& local_address)
    : control_(control), link_(link),
      ring_bytes_(chosen.network_ring_bytes != 0 ? chosen.network_ring_bytes : ring_bytes_for(control.count())),
      network_of_(is_remote.size()) {
    const std::string& wanted = chosen.transport;
    const auto open = [&](const std::string& name) {
        const std::size_t colon = std::min(name.find(':'), name.size());
        const std::string provider = colon < name.size() ? name.substr(colon + 1) : "";
        networks_.push_back(transport::open_network(
            name.substr(0, colon), {control.index(), control.count(), provider, local_address, control.lost_after()}));
    };
    bool any_near = false, any_far = false; // near: whether or not there is peer access
    for (std::size_t i = 0; i < is_remote.size(); ++i) {
        any_near = any_near || (is_near[i] && static_cast<int>(i) != control.index());
        any_far = any_far || (is_remote[i] && !is_near[i]);
    }
    if (wanted != "auto") {
        support::require(
            !any_far || (wanted != "shm" && wanted != "ofi:shm"), error_code::no_path,
            "DCUDA_TRANSPORT={} joins processes of one host, and this job has several; leave it out, or set "
            "ofi, ofi:tcp, verbs or mpi",
            wanted);
        open(wanted);
    } else {
        // The same on all processes of a host; which hosts there are, all know.
        if (any_far) {
            const auto has = [](const char* name) { return transport::has_network(name); };
            open(has("ofi") ? "ofi" : has("verbs") ? "verbs" : "mpi");
        }
        // Who is remote to nobody takes part in the barriers of the others, peers in those of peers.
        if (any_near || networks_.empty()) open("shm");
        for (std::size_t i = 0; i < is_remote.size(); ++i)
            if (is_near[i]) network_of_[i] = static_cast<std::uint8_t>(networks_.size() - 1);
    }
    const int rounds = std::bit_width(static_cast<unsigned>(control.count() - 1));
    for (process_barrier& barrier : barriers_) barrier.arrivals.resize(static_cast<std::size_t>(rounds));
}

network_path::~network_path() {
    bool all_closed = true;
    for (const auto& each : networks_) all_closed = each->close() && all_closed;
    if (all_closed) return;
    for (auto& [process, each] : connections_) static_cast<void>(each.release()); // a library may still write there
}

void network_path::abandon() {
    for (const auto& each : networks_) each->abandon();
}

std::string network_path::describe() const {
    std::string text;
    for (const auto& each : networks_) text += (text.empty() ? "" : " and ") + each->name();
    return text;
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
}

void network_path::end() {
    for (const auto& [process, each] : connections_) each->end_run();
    state_ = nullptr;
    delivery_ = nullptr;
    track_ = nullptr;
}

// ---- connections ----------------------------------------------------------------------------------------------------

// Processes connect when the first rank of one sends to a rank of the other. Each tells the other what its network and
// its ring need ("hello"), over the control plane; and when it has used what it was told ("ready").
connection& network_path::connect(int process) {
    if (const auto known = connections_.find(process); known != connections_.end()) return *known->second;
    transport::network& over = *networks_[network_of_[static_cast<std::size_t>(process)]];
    const std::uint64_t ring_units = ring_bytes_ / transport::network::unit_bytes;
    const std::uint64_t first = by_ring_.size() * ring_units;
    support::require(first + ring_units <= std::uint64_t{1} << 31, error_code::out_of_resources,
                     "connection {} of this process has no numbers for its arrivals: rings of {} B "
                     "(DCUDA_NETWORK_RING_BYTES) serve {} connections",
                     by_ring_.size() + 1, ring_bytes_, (std::uint64_t{1} << 31) / ring_units);
    const auto first_number = static_cast<std::uint32_t>(first);
    // Known only when it is complete: who serves the others meanwhile must not find a part of it.
    auto made = std::make_unique<connection>(process, over, delivery_, link_, static_cast<message_handler&>(*this),
                                             ring_bytes_, first_number);
    support::wire_writer message;
    message.put(greeting::hello);
    message.put(made->offer());
    message.put(std::string_view(over.name()));
    message.put(std::string_view(over.invite(process)));
    by_ring_.push_back(made.get());
    connection& result = *(connections_[process] = std::move(made));
    control_.post(process, message.bytes());
    return result;
}

void network_path::receive(int from, const std::string& bytes) {
    support::wire_reader message(bytes);
    connection& other = connect(from);
    if (message.get<greeting>() == greeting::hello) {
        const auto offer = message.get<connection::exported_ring>();
        const std::string name = message.get_text();
        transport::network& over = *networks_[network_of_[static_cast<std::size_t>(from)]];
        support::require(
            name == over.name(), error_code::no_path,
            "processes {} and {} use different transports: {} and {}; set DCUDA_TRANSPORT to the same for all",
            control_.index(), from, over.name(), name);
        over.connect(from, message.get_text());
        other.use(offer);
        support::wire_writer answer;
        answer.put(greeting::ready);
        control_.post(from, answer.bytes());
        has_connected_[from] = true;
    } else {
        has_answered_[from] = true;
    }
    other.is_open = has_connected_[from] && has_answered_[from];
}

// ---- what ranks want ------------------------------------------------------------------------------------------------

bool network_path::has_room() const {
    return gets_.size() < most_gets && std::all_of(connections_.begin(), connections_.end(), [](const auto& each) {
               return each.second->queued_bytes() < most_queued_bytes;
           });
}

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
    for (const auto& [process, each] : connections_)
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
    connection& target = connect(static_cast<int>(put.target / ranks));
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
    connect(static_cast<int>(target / ranks)).send(head, static_cast<const std::byte*>(payload), rank);
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
        if (get.tag != no_tag) connect(process).send({0, 0, message_kind::put, target, get.tag}, nullptr, rank);
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
            connect(next).send({barrier.is_unread ? 1u : 0u, 0, message_kind::barrier, index, barrier.round}, nullptr,
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
        connect(from).send_from_device({asked.destination, 0, message_kind::got, asked.number, 0}, asked.bytes,
                                       reinterpret_cast<const std::byte*>(static_cast<std::uintptr_t>(head.place)),
                                       connection::answers);
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
            connect(get.process).send({0, 0, message_kind::put, get.target, get.tag}, nullptr, get.rank);
        any = true;
    }
    if (!any) return false;
    std::vector<std::uint64_t> complete;
    for (auto& [id, flush] : flushes_)
        if (flush.waits_for && !gets(*flush.waits_for)) {
            // Their notifications have just left, and are part of it.
            for (const auto& [process, each] : connections_)
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
        connect(first.process)
            .send({0, sizeof before, message_kind::result, first.rank, first.number},
                  reinterpret_cast<const std::byte*>(&before), connection::all_ranks);
        any = true;
    }
    return any;
}

// Of which connection the numbers say that a fragment has come.
connection& network_path::arrived(const transport::network& over, std::uint64_t number) {
    const std::uint64_t ring = number / (ring_bytes_ / transport::network::unit_bytes);
    if (ring >= by_ring_.size() || !by_ring_[ring]->is_over(over))
        throw foreign_arrival(over.name(), fmt::format("a fragment with number {}, which no ring has", number));
    by_ring_[ring]->arrived(static_cast<std::uint32_t>(number));
    return *by_ring_[ring];
}

bool network_path::progress() {
    bool any = false;
    for (const auto& each : networks_) {
        transport::network_event event;
        for (int i = 0; i < 64 && each->poll(event); ++i) {
            any = true;
            const std::uint64_t begin_ns = track_ != nullptr ? clock_ns() : 0;
            const bool is_sent = event.type == transport::network_event::kind::sent;
            connection& other =
                is_sent ? *connections_.at(static_cast<int>(event.number >> 32)) : arrived(*each, event.number);
            if (is_sent) other.sent(static_cast<std::uint32_t>(event.number));
            if (track_ != nullptr)
                track_->record(begin_ns, is_sent ? host_event_kind::fragment_sent : host_event_kind::fragment_arrived,
                               0, static_cast<std::uint32_t>(other.peer()), no_tag, 0);
        }
    }
    if (connections_.empty() && delivery_ == nullptr) return any;
    const std::uint64_t now_ns = clock_ns();
    for (const auto& [process, each] : connections_) any = each->progress(now_ns) || any;
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
           std::all_of(connections_.begin(), connections_.end(),
                       [](const auto& each) { return each.second->is_quiet(); });
}

bool network_path::is_sent() const {
    return std::all_of(connections_.begin(), connections_.end(),
                       [](const auto& each) { return each.second->is_sent(); });
}

} // namespace dcuda
