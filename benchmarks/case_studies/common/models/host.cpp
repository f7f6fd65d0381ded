// SPDX-License-Identifier: BSD-3-Clause
// dCUDA's own transports, called by the host between kernels: what dCUDA itself would use, in a program with two
// models.
//
// Where devices map each other's memory, the copy engine brings messages straight to their places in the peer's area
// (over NVLink), and the network of the host carries the notification alone. Elsewhere, and with DCUDA_DISABLE_PEER=1,
// messages pass through pinned memory of both hosts; over shm the copy from the device already ends in the peer's
// process.
//
// Nothing of a peer is overwritten too early: carrier::bring says what the program sees to. What a peer has sent since,
// it has sent after all copies to its device were over.
#include <algorithm>
#include <array>
#include <chrono>
#include <exception>
#include <optional>
#include <sched.h>
#include <stdexcept>

#include "common/device_buffer.hpp"
#include "common/models/carrier.hpp"
#include "support/cuda.hpp"
#include "support/env.hpp"
#include "transport/network.hpp"
#include "transport/peer.hpp"

namespace common {

namespace {

namespace support = dcuda::support;
namespace transport = dcuda::transport;
using transport::network;
using transport::network_event;

std::unique_ptr<network> open(const processes& all) {
    std::string wanted = support::env_string("DCUDA_TRANSPORT").value_or("auto");
    if (wanted == "auto") wanted = all.local_address().empty() ? "shm" : "ofi";
    const std::size_t colon = std::min(wanted.find(':'), wanted.size());
    const std::string provider = colon < wanted.size() ? wanted.substr(colon + 1) : "";
    return transport::open_network(wanted.substr(0, colon), {all.index(), all.count(), provider, all.local_address()});
}

// How others find this device's area.
struct area_card {
    int device;
    std::uint64_t offset; // in its allocation
    transport::exported_allocation memory;
};

class host_carrier final : public carrier {
public:
    explicit host_carrier(const carrier_setting& given) : all_(given.all), network_(open(given.all)) {
        // To all: a barrier sends to some that nothing else goes to.
        std::size_t end = 0;
        for (int peer = 0; peer < all_.count(); ++peer) {
            lane& made = lanes_.emplace_back();
            made.peer = peer;
            for (const route& one : given.routes) {
                if (one.peer != peer) continue;
                made.in_bytes = one.in_bytes;
                made.out_bytes = one.out_bytes;
            }
            made.in_bytes = whole_units(made.in_bytes);
            made.out_bytes = whole_units(made.out_bytes);
            made.first_in = end;
            if (peer != all_.index()) end += places * made.in_bytes;
        }
        inbound_bytes_ = whole_pages(std::max<std::size_t>(end, 1));
        connect();
        map_peers(given);
    }
    ~host_carrier() override {
        const auto deadline = std::chrono::steady_clock::now() + std::chrono::seconds(1);
        try {
            for (const lane& one : lanes_)
                for (const bool& waits : one.in_flight)
                    while (waits && std::chrono::steady_clock::now() < deadline) poll();
            // Nobody frees what a peer has mapped.
            peers_.reset();
            if (std::uncaught_exceptions() == 0) all_.gather(0, "end");
        } catch (const std::exception&) { // whoever failed has said so
        }
    }

    std::string name() const override {
        if (peers_) return "dCUDA's host side: copies between devices, notifications over " + network_->name();
        return "dCUDA's host side: " + network_->name() + ", through pinned memory";
    }

    void bring(std::span<const message> messages, cudaStream_t stream) override {
        if (messages.empty()) return;
        for (lane& one : lanes_) one.going = one.coming = 0;
        for (const message& each : messages) {
            lane& one = lane_to(each.peer);
            if (each.out_bytes > 0 && one.going == 0) begin_out(one);
            if (each.out_bytes > 0)
                copy(peers_ ? one.area + each.there : source(one) + one.going, each.out, each.out_bytes, stream);
            one.going += each.out_bytes;
        }
        common::check(cudaStreamSynchronize(stream), "the kernels failed");
        for (lane& one : lanes_)
            if (one.going > 0) write(one, peers_ ? 1 : one.going);
        for (const message& each : messages) {
            if (each.in_bytes == 0) continue;
            lane& one = lane_to(each.peer);
            if (one.coming == 0) await(one);
            if (!peers_)
                copy(each.in, inbound_.get() + one.first_in + one.in_place * one.in_bytes + one.coming, each.in_bytes,
                     stream);
            one.coming += each.in_bytes;
        }
    }

    // In rounds: everybody notifies who is 1, 2, 4, ... behind.
    void meet(cudaStream_t stream) override {
        common::check(cudaStreamSynchronize(stream), "the kernels failed");
        for (int step = 1; step < all_.count(); step *= 2) {
            lane& target = lane_to((all_.index() + step) % all_.count());
            begin_out(target);
            write(target, 1);
            await(lane_to((all_.index() + all_.count() - step) % all_.count()));
        }
    }

private:
    static constexpr std::size_t unit = network::unit_bytes;
    static constexpr std::size_t places = 4; // for lists from a peer: they take turns

    static std::size_t whole_units(std::size_t bytes) {
        return (std::max<std::size_t>(bytes, 1) + unit - 1) / unit * unit;
    }
    static std::size_t whole_pages(std::size_t bytes) { return (bytes + 4095) / 4096 * 4096; }

    // The way to a peer and back.
    struct lane {
        int peer = -1;
        std::size_t in_bytes = 0, out_bytes = 0; // of a place
        std::size_t first_in = 0;                // its places in my inbound memory
        transport::remote_memory remote{};       // the peer's inbound memory
        std::size_t first_there = 0;             // my places in it
        transport::shared_memory outbound;       // the peer's inbound memory if this process has mapped it, else own
        bool is_reached = false;
        std::byte* area = nullptr; // the peer's, if this device has mapped it

        std::size_t sent = 0, received = 0; // lists
        std::array<bool, places> in_flight{};
        std::array<int, places> arrived{};                              // more than one only of barriers
        std::size_t out_place = 0, in_place = 0, going = 0, coming = 0; // of this list; bytes
    };

    lane& lane_to(int peer) { return lanes_[static_cast<std::size_t>(peer)]; }

    void begin_out(lane& one) {
        one.out_place = one.sent++ % places;
        while (one.in_flight[one.out_place]) poll();
    }
    void await(lane& one) {
        one.in_place = one.received++ % places;
        while (one.arrived[one.in_place] == 0) poll();
        --one.arrived[one.in_place];
    }

    // Where a write comes from: its own place in the peer's memory if this process has mapped that.
    static std::byte* source(const lane& one) {
        return one.outbound.get() + (one.is_reached ? one.first_there : 0) + one.out_place * one.out_bytes;
    }

    void copy(void* target, const void* source, std::size_t bytes, cudaStream_t stream) const {
        common::check(cudaMemcpyAsync(target, source, bytes, cudaMemcpyDefault, stream), "copying messages");
    }

    // The network's own memory if it has any, else new.
    static transport::shared_memory pinned(transport::shared_memory memory, std::size_t bytes) {
        constexpr const char* subject = "pinning memory";
        if (memory != nullptr) return dcuda::cuda::pin(std::move(memory), bytes, subject);
        auto ours = dcuda::cuda::allocate_pinned<std::byte>(bytes, subject);
        auto release = ours.get_deleter();
        return {ours.release(), release};
    }

    void connect() {
        // What each process tells each other: an invitation, and where that one's places are.
        support::wire_writer own;
        own.put(static_cast<std::uint64_t>(inbound_bytes_));
        for (const lane& one : lanes_) {
            own.put(std::string_view(one.peer == all_.index() ? "" : network_->invite(one.peer)));
            own.put(static_cast<std::uint64_t>(one.first_in));
            own.put(static_cast<std::uint64_t>(one.in_bytes));
        }
        const std::vector<std::string> theirs = all_.gather_text(own.bytes(), "invitations");
        std::vector<std::size_t> bytes_there;
        for (lane& one : lanes_) {
            support::wire_reader reader(theirs[static_cast<std::size_t>(one.peer)]);
            bytes_there.push_back(reader.get<std::uint64_t>());
            std::string invitation;
            std::size_t place_bytes = 0;
            for (int process = 0; process <= all_.index(); ++process) {
                invitation = reader.get_text();
                one.first_there = reader.get<std::uint64_t>();
                place_bytes = reader.get<std::uint64_t>();
            }
            if (one.peer == all_.index()) continue;
            if (place_bytes != one.out_bytes)
                throw std::logic_error("process " + std::to_string(one.peer) + " expects other messages than process " +
                                       std::to_string(all_.index()) + " sends");
            network_->connect(one.peer, invitation);
        }
        inbound_ = pinned(network_->share(inbound_bytes_), inbound_bytes_);
        const auto memory = all_.gather(network_->expose(inbound_.get(), inbound_bytes_, 0), "memory");
        for (std::size_t i = 0; i < lanes_.size(); ++i) {
            lane& one = lanes_[i];
            if (one.peer == all_.index()) continue;
            one.remote = memory[static_cast<std::size_t>(one.peer)];
            transport::shared_memory reached = network_->reach(one.peer, one.remote);
            one.is_reached = reached != nullptr;
            const std::size_t bytes = one.is_reached ? bytes_there[i] : whole_pages(places * one.out_bytes);
            one.outbound = pinned(std::move(reached), bytes);
            network_->add_source(one.outbound.get(), bytes);
        }
    }

    // Either all peers map each other's memory, or none does.
    void map_peers(const carrier_setting& given) {
        if (support::env_flag("DCUDA_DISABLE_PEER").value_or(false) || !all_.local_address().empty()) return;
        area_card own{};
        common::check(cudaGetDevice(&own.device), "asking for the device");
        const auto memory = transport::find_allocation(given.area);
        if (!memory) throw std::runtime_error("the area is not in device memory");
        own.offset = static_cast<std::uint64_t>(static_cast<std::byte*>(given.area) - memory->base);
        own.memory = transport::export_allocation(*memory);
        const std::vector<area_card> cards = all_.gather(own, "areas");
        bool all_reached = true;
        for (const area_card& other : cards)
            all_reached &= transport::path_between(own.device, other.device) != transport::path::none;
        for (const int reached : all_.gather(all_reached ? 1 : 0, "peer access")) all_reached &= reached != 0;
        if (!all_reached) return;
        peers_.emplace();
        for (lane& one : lanes_) {
            if (one.peer == all_.index()) continue;
            const area_card& card = cards[static_cast<std::size_t>(one.peer)];
            one.area = peers_->open(one.peer, card.memory) + static_cast<std::size_t>(card.offset);
        }
    }

    void write(lane& one, std::size_t bytes) {
        const std::size_t target = one.first_there + one.out_place * one.out_bytes;
        const auto lane_number = static_cast<std::uint64_t>(&one - lanes_.data());
        one.in_flight[one.out_place] = true;
        while (!network_->write(one.peer, one.remote, target, source(one), bytes,
                                static_cast<std::uint32_t>(target / unit), lane_number * places + one.out_place))
            poll();
    }

    void poll() {
        network_event event{};
        if (!network_->poll(event)) {
#if DCUDA_BACKEND_CPU
            sched_yield();
#endif
        } else if (event.type == network_event::kind::sent) {
            lanes_[event.number / places].in_flight[event.number % places] = false;
        } else {
            const std::size_t at = event.number * unit;
            for (lane& one : lanes_)
                if (one.peer != all_.index() && at >= one.first_in && at < one.first_in + places * one.in_bytes)
                    ++one.arrived[(at - one.first_in) / one.in_bytes];
        }
    }

    processes& all_;
    std::unique_ptr<network> network_;
    std::vector<lane> lanes_;
    std::size_t inbound_bytes_ = 0;
    transport::shared_memory inbound_;
    std::optional<transport::peer_mappings> peers_;
};

std::unique_ptr<carrier> make_host(const carrier_setting& given) { return std::make_unique<host_carrier>(given); }

const carriers::entry host("host", make_host);

} // namespace

} // namespace common
