// SPDX-License-Identifier: BSD-3-Clause
#include "network/connections.hpp"

#include "dcuda/detail/protocol/protocol.hpp"
#include "support/wire.hpp"

#include <algorithm>
#include <bit>

namespace dcuda {

namespace {

// Of each direction of a connection: a process that talks to all others has 64 MiB of rings up to 128 processes, and no
// ring is so small that its parts are slow to send.
std::size_t ring_bytes_for(int processes) {
    constexpr std::size_t all = 32u << 20, smallest = 256u << 10, largest = 8u << 20;
    return std::clamp(std::bit_floor(all / static_cast<std::size_t>(processes)), smallest, largest);
}

// Whether some process is on another host.
bool has_far(const std::vector<bool>& is_remote, const std::vector<bool>& is_near) {
    for (std::size_t i = 0; i < is_remote.size(); ++i)
        if (is_remote[i] && !is_near[i]) return true;
    return false;
}

// Of a job of several hosts that has not chosen.
std::string usual_between_hosts() {
    const auto has = [](const char* name) { return transport::has_network(name); };
    return has("ofi") ? "ofi" : has("verbs") ? "verbs" : "mpi";
}

enum class greeting : std::uint32_t { hello, ready };

} // namespace

bool uses_mpi(const settings& chosen, const std::vector<bool>& is_remote, const std::vector<bool>& is_near) {
    if (chosen.transport != "auto") return chosen.transport == "mpi";
    return has_far(is_remote, is_near) && usual_between_hosts() == "mpi";
}

connections::connections(bootstrap::control& control, device_access& link, message_handler& handler,
                         const settings& chosen, const std::vector<bool>& is_remote, const std::vector<bool>& is_near,
                         const std::string& local_address)
    : control_(control), link_(link), handler_(handler),
      ring_bytes_(chosen.network_ring_bytes != 0 ? chosen.network_ring_bytes : ring_bytes_for(control.count())),
      local_address_(local_address), network_of_(is_remote.size()) {
    const std::string& wanted = chosen.transport;
    const bool any_far = has_far(is_remote, is_near);
    bool any_near = false; // whether or not there is peer access
    for (std::size_t i = 0; i < is_near.size(); ++i)
        any_near = any_near || (is_near[i] && static_cast<int>(i) != control.index());
    if (wanted != "auto") {
        support::require(
            !any_far || (wanted != "shm" && wanted != "ofi:shm"), error_code::no_path,
            "DCUDA_TRANSPORT={} joins processes of one host, and this job has several; leave it out, or set "
            "ofi, ofi:tcp, verbs or mpi",
            wanted);
        open_network(wanted);
    } else {
        // The same on all processes of a host; which hosts there are, all know.
        if (any_far) open_network(usual_between_hosts());
        // Who is remote to nobody takes part in the barriers of the others, peers in those of peers.
        if (any_near || networks_.empty()) open_network("shm");
        for (std::size_t i = 0; i < is_remote.size(); ++i)
            if (is_near[i]) network_of_[i] = static_cast<std::uint8_t>(networks_.size() - 1);
    }
}

connections::~connections() {
    bool all_closed = true;
    for (const auto& each : networks_) all_closed = each->close() && all_closed;
    if (all_closed) return;
    for (auto& [process, each] : all_) static_cast<void>(each.release()); // a library may still write there
}

// "ofi:tcp": the transport, and its provider.
void connections::open_network(const std::string& wanted) {
    const std::size_t colon = std::min(wanted.find(':'), wanted.size());
    const std::string provider = colon < wanted.size() ? wanted.substr(colon + 1) : "";
    networks_.push_back(transport::open_network(wanted.substr(0, colon), {control_.index(), control_.count(), provider,
                                                                          local_address_, control_.lost_after()}));
}

void connections::begin(placement& into, host_track* track) {
    placement_ = &into;
    track_ = track;
}

void connections::end() {
    for (const auto& [process, each] : all_) each->end_run();
    placement_ = nullptr;
    track_ = nullptr;
}

void connections::abandon() {
    for (const auto& each : networks_) each->abandon();
}

std::string connections::describe() const {
    std::string text;
    for (const auto& each : networks_) text += (text.empty() ? "" : " and ") + each->name();
    return text;
}

// Each of the two processes tells the other what its network and its ring need ("hello"), over the control plane; and
// when it has used what it was told ("ready").
connection& connections::connect(int process) {
    if (const auto known = all_.find(process); known != all_.end()) return *known->second;
    transport::network& over = network_to(process);
    const std::uint64_t ring_units = ring_bytes_ / transport::network::unit_bytes;
    const std::uint64_t first = by_ring_.size() * ring_units;
    support::require(first + ring_units <= std::uint64_t{1} << 31, error_code::out_of_resources,
                     "connection {} of this process has no numbers for its arrivals: rings of {} B "
                     "(DCUDA_NETWORK_RING_BYTES) serve {} connections",
                     by_ring_.size() + 1, ring_bytes_, (std::uint64_t{1} << 31) / ring_units);
    // Known only when it is complete: who serves the others meanwhile must not find a part of it.
    auto made = std::make_unique<connection>(process, over, placement_, link_, handler_, ring_bytes_,
                                             static_cast<std::uint32_t>(first));
    support::wire_writer message;
    message.put(greeting::hello);
    message.put(made->offer());
    message.put(std::string_view(over.name()));
    message.put(std::string_view(over.invite(process)));
    by_ring_.push_back(made.get());
    connection& result = *(all_[process] = std::move(made));
    control_.post(process, message.bytes());
    return result;
}

void connections::receive(int from, const std::string& bytes) {
    support::wire_reader message(bytes);
    connection& other = connect(from);
    if (message.get<greeting>() == greeting::hello) {
        const auto offer = message.get<connection::exported_ring>();
        const std::string name = message.get_text();
        transport::network& over = network_to(from);
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

// Of which connection the numbers say that a fragment has come.
connection& connections::arrived(const transport::network& over, std::uint64_t number) {
    const std::uint64_t ring = number / (ring_bytes_ / transport::network::unit_bytes);
    if (ring >= by_ring_.size() || !by_ring_[ring]->is_over(over))
        throw foreign_arrival(over.name(), fmt::format("a fragment with number {}, which no ring has", number));
    by_ring_[ring]->arrived(static_cast<std::uint32_t>(number));
    return *by_ring_[ring];
}

bool connections::take_events(transport::network& from) {
    bool any = false;
    transport::network_event event;
    for (int i = 0; i < 64 && from.poll(event); ++i) {
        any = true;
        const std::uint64_t begin_ns = track_ != nullptr ? detail::clock_ns() : 0;
        const bool is_sent = event.type == transport::network_event::kind::sent;
        connection& other = is_sent ? *all_.at(static_cast<int>(event.number >> 32)) : arrived(from, event.number);
        if (is_sent) other.sent(static_cast<std::uint32_t>(event.number));
        if (track_ != nullptr)
            track_->record(begin_ns, is_sent ? host_event_kind::fragment_sent : host_event_kind::fragment_arrived, 0,
                           static_cast<std::uint32_t>(other.peer()), detail::no_tag, 0);
    }
    return any;
}

bool connections::progress() {
    bool any = false;
    for (const auto& each : networks_) any = take_events(*each) || any;
    if (all_.empty()) return any;
    const std::uint64_t now_ns = detail::clock_ns();
    for (const auto& [process, each] : all_) any = each->progress(now_ns) || any;
    return any;
}

bool connections::is_quiet() const {
    return std::all_of(all_.begin(), all_.end(), [](const auto& each) { return each.second->is_quiet(); });
}

bool connections::is_sent() const {
    return std::all_of(all_.begin(), all_.end(), [](const auto& each) { return each.second->is_sent(); });
}

bool connections::has_room() const {
    return std::all_of(all_.begin(), all_.end(), [](const auto& each) { return each.second->has_room(); });
}

} // namespace dcuda
