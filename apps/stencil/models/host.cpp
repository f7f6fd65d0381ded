// dCUDA's own transports, called by the host between kernels: what dCUDA itself would use, in a program with two
// models.
//
// Where devices map each other's memory, the copy engine brings rows straight into the neighbour's halo (over NVLink),
// and the network of the host carries the notification alone. Elsewhere, and with DCUDA_DISABLE_PEER=1, rows pass
// through pinned memory of both hosts; over shm the copy from the device already ends in the neighbour's process.
//
// Nothing of a neighbour is overwritten too early, as in kernels.hpp: whoever writes a halo row again has received what
// its owner sent after use. The places in pinned memory are used again after two exchanges in that direction, and the
// neighbour has sent something in between, after all copies to its device were over.
#include <array>
#include <chrono>
#include <exception>
#include <optional>
#include <sched.h>
#include <stdexcept>

#include "models/two_model.hpp"
#include "support/cuda.hpp"
#include "support/env.hpp"
#include "transport/network.hpp"
#include "transport/peer.hpp"

namespace stencil {

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

// How others find this device's arrays.
struct arrays_card {
    int device;
    int first_stored_row;
    std::uint64_t array_bytes, offset; // of the first array in its allocation
    transport::exported_allocation memory;
};

class host_carrier final : public carrier {
public:
    host_carrier(const device_arrays& arrays, processes& all)
        : arrays_(arrays), all_(all), network_(open(all)),
          place_bytes_((arrays.rows_of(0, true, true).bytes + unit - 1) / unit * unit) {
        connect(all);
        map_neighbours(all);
    }
    ~host_carrier() override {
        const auto deadline = std::chrono::steady_clock::now() + std::chrono::seconds(1);
        try {
            for (const bool& waits : in_flight_)
                while (waits && std::chrono::steady_clock::now() < deadline) poll();
            // Nobody frees what a neighbour has mapped.
            peers_.reset();
            if (std::uncaught_exceptions() == 0) all_.gather(0, "end");
        } catch (const std::exception&) { // whoever failed has said so
        }
    }

    std::string name() const override {
        if (peers_) return "dCUDA's host side: copies between devices, notifications over " + network_->name();
        return "dCUDA's host side: " + network_->name() + ", through pinned memory";
    }

    void bring(const exchange& rows, cudaStream_t stream) override {
        std::array<int, 2> places{-1, -1}; // that this exchange writes to
        for (int border = 0; border < 2; ++border) {
            const crossing& what = rows.borders[border];
            if (what.out == nullptr) continue;
            const int place = places[at(border)] = next_place(sent_[at(border)], border);
            while (in_flight_[at(place)]) poll();
            if (peers_)
                copy(row_there(border, rows.array, what.out_row), what.out, rows.bytes, stream);
            else
                copy(source(border, place), what.out, rows.bytes, stream);
        }
        common::check(cudaStreamSynchronize(stream), "the kernels failed");
        for (int border = 0; border < 2; ++border)
            if (places[at(border)] >= 0) write(border, places[at(border)], peers_ ? 1 : rows.bytes);
        for (int border = 0; border < 2; ++border) {
            const crossing& what = rows.borders[border];
            if (what.in == nullptr) continue;
            const int place = next_place(received_[at(border)], border);
            while (!arrived_[at(place)]) poll();
            arrived_[at(place)] = false;
            if (!peers_) copy(what.in, inbound_.get() + offset(place), rows.bytes, stream);
        }
    }

private:
    static constexpr std::size_t unit = network::unit_bytes;
    static constexpr int places_per_border = 2, place_count = 2 * places_per_border;

    static std::size_t at(int index) { return static_cast<std::size_t>(index); }
    // Places of a border take turns.
    static int next_place(int& used, int border) { return border * places_per_border + used++ % places_per_border; }
    // What I send over a border, the neighbour receives over its other one.
    static int there(int place) { return (place + places_per_border) % place_count; }

    std::size_t offset(int place) const { return at(place) * place_bytes_; }
    std::size_t all_bytes() const { return (place_count * place_bytes_ + 4095) / 4096 * 4096; }

    void copy(void* target, const void* source, std::size_t bytes, cudaStream_t stream) const {
        common::check(cudaMemcpyAsync(target, source, bytes, cudaMemcpyDefault, stream), "copying border rows");
    }

    // The network's own memory if it has any, else new.
    transport::shared_memory pinned(transport::shared_memory memory) const {
        constexpr const char* what = "pinning memory";
        if (memory != nullptr) return dcuda::cuda::pin(std::move(memory), all_bytes(), what);
        auto ours = dcuda::cuda::allocate_pinned<std::byte>(all_bytes(), what);
        auto release = ours.get_deleter();
        return {ours.release(), release};
    }

    void connect(processes& all) {
        support::wire_writer invitations;
        for (int border = 0; border < 2; ++border) {
            const int peer = arrays_.neighbour(border);
            invitations.put(std::string_view(peer < 0 ? "" : network_->invite(peer)));
        }
        const std::vector<std::string> theirs = all.gather_text(invitations.bytes(), "invitations");
        for (int border = 0; border < 2; ++border) {
            const int peer = arrays_.neighbour(border);
            if (peer < 0) continue;
            support::wire_reader reader(theirs[at(peer)]);
            const std::string for_before = reader.get_text(), for_after = reader.get_text();
            network_->connect(peer, border == 0 ? for_after : for_before);
        }
        inbound_ = pinned(network_->share(all_bytes()));
        const auto memory = all.gather(network_->expose(inbound_.get(), all_bytes(), 0), "memory");
        for (int border = 0; border < 2; ++border) {
            const int peer = arrays_.neighbour(border);
            if (peer < 0) continue;
            remote_[at(border)] = memory[at(peer)];
            transport::shared_memory reached = network_->reach(peer, remote_[at(border)]);
            is_reached_[at(border)] = reached != nullptr;
            outbound_[at(border)] = pinned(std::move(reached));
            network_->add_source(outbound_[at(border)].get(), all_bytes());
        }
    }

    // Either all neighbours map each other's memory, or none does.
    void map_neighbours(processes& all) {
        if (support::env_flag("DCUDA_DISABLE_PEER").value_or(false) || !all.local_address().empty()) return;
        arrays_card mine{};
        common::check(cudaGetDevice(&mine.device), "asking for the device");
        mine.first_stored_row = arrays_.first_stored_row();
        mine.array_bytes = arrays_.array_bytes();
        const auto memory = transport::find_allocation(arrays_.base());
        if (!memory) throw std::runtime_error("the arrays are not in device memory");
        mine.offset = static_cast<std::uint64_t>(reinterpret_cast<std::byte*>(arrays_.base()) - memory->base);
        mine.memory = transport::export_allocation(*memory);
        const std::vector<arrays_card> cards = all.gather(mine, "arrays");
        bool all_reached = true;
        for (const arrays_card& other : cards)
            all_reached &= transport::path_between(mine.device, other.device) != transport::path::none;
        for (const int reached : all.gather(all_reached ? 1 : 0, "peer access")) all_reached &= reached != 0;
        if (!all_reached) return;
        peers_.emplace();
        for (int border = 0; border < 2; ++border) {
            const int peer = arrays_.neighbour(border);
            if (peer < 0) continue;
            cards_[at(border)] = cards[at(peer)];
            arrays_there_[at(border)] =
                peers_->open(peer, cards[at(peer)].memory) + static_cast<std::size_t>(cards[at(peer)].offset);
        }
    }

    std::byte* row_there(int border, int array, int row) const {
        const arrays_card& card = cards_[at(border)];
        return arrays_there_[at(border)] + at(array) * static_cast<std::size_t>(card.array_bytes) +
               at(row - card.first_stored_row) * arrays_.plane() * sizeof(double);
    }

    // Where a write comes from: its own place in the neighbour's memory if this process has mapped that.
    std::byte* source(int border, int place) const {
        return outbound_[at(border)].get() + offset(is_reached_[at(border)] ? there(place) : place);
    }

    void write(int border, int place, std::size_t bytes) {
        const std::size_t target = offset(there(place));
        in_flight_[at(place)] = true;
        while (!network_->write(arrays_.neighbour(border), remote_[at(border)], target, source(border, place), bytes,
                                static_cast<std::uint32_t>(target / unit), static_cast<std::uint64_t>(place)))
            poll();
    }

    void poll() {
        network_event event{};
        if (!network_->poll(event)) {
#if DCUDA_BACKEND_CPU
            sched_yield();
#endif
        } else if (event.what == network_event::kind::sent) {
            in_flight_[event.number] = false;
        } else {
            arrived_[event.number * unit / place_bytes_] = true;
        }
    }

    const device_arrays& arrays_;
    processes& all_;
    std::unique_ptr<network> network_;
    std::size_t place_bytes_; // of a message's place
    transport::shared_memory inbound_;
    std::array<transport::shared_memory, 2> outbound_; // by border, as the following
    std::array<bool, 2> is_reached_{};
    std::array<transport::remote_memory, 2> remote_{};
    std::array<int, 2> sent_{}, received_{};
    std::array<bool, place_count> in_flight_{}, arrived_{}; // by place
    std::optional<transport::peer_mappings> peers_;
    std::array<arrays_card, 2> cards_{};
    std::array<std::byte*, 2> arrays_there_{};
};

std::unique_ptr<model> make_host(const setting& with) {
    return make_two_model(
        with,
        [](const device_arrays& arrays, processes& all) -> std::unique_ptr<carrier> {
            return std::make_unique<host_carrier>(arrays, all);
        },
        launching::one_by_one);
}

const registered_model host("host", make_host);

} // namespace

} // namespace stencil
