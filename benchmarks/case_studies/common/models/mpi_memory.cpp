// SPDX-License-Identifier: BSD-3-Clause
// MPI with messages in memory of the host or of the device, in each of the ways that a program has: they lie in host
// memory, they pass through it, whole or in pieces, or MPI is given device memory. Each message is one of MPI.
#include <algorithm>
#include <array>
#include <map>
#include <stdexcept>

#include "common/device_buffer.hpp"
#include "common/models/mpi_link.hpp"
#include "support/cuda.hpp"

namespace common {

namespace {

using pinned_bytes = dcuda::cuda::pinned_array<std::byte>;
pinned_bytes pin(std::size_t bytes) {
    return dcuda::cuda::allocate_pinned<std::byte>(std::max<std::size_t>(1, bytes), "pinning memory");
}

class memory_carrier : public carrier {
public:
    explicit memory_carrier(const carrier_setting& given) : link_(given) {}
    std::string name() const override { return mpi_link::library(); }
    void meet(cudaStream_t stream) override {
        finish(stream);
        link_.meet();
    }

protected:
    static void finish(cudaStream_t stream) { check(cudaStreamSynchronize(stream), "the kernels failed"); }
    static void copy(void* target, const void* source, std::size_t bytes, cudaStream_t stream) {
        check(cudaMemcpyAsync(target, source, bytes, cudaMemcpyDefault, stream), "copying messages");
    }

    mpi_link link_;
};

// MPI reads and writes messages where they lie.
class direct_carrier final : public memory_carrier {
public:
    using memory_carrier::memory_carrier;

    void bring(std::span<const message> messages, cudaStream_t stream) override {
        finish(stream);
        for (const message& one : messages)
            if (one.in_bytes > 0) open_.push_back(link_.receive(one.in, one.in_bytes, one.peer));
        for (const message& one : messages)
            if (one.out_bytes > 0) open_.push_back(link_.send(one.out, one.out_bytes, one.peer));
        mpi_link::finish(open_);
    }

private:
    std::vector<MPI_Request> open_;
};

// Each message is copied to the host and sent before the next one is copied; and likewise on its way to the device.
class staged_carrier final : public memory_carrier {
public:
    explicit staged_carrier(const carrier_setting& given) : memory_carrier(given) {
        std::size_t in_bytes = 0;
        for (const route& one : given.routes) {
            in_bytes += one.in_bytes;
            out_bytes_ = std::max(out_bytes_, one.out_bytes);
        }
        in_ = pin(in_bytes);
        out_ = pin(out_bytes_);
    }

    void bring(std::span<const message> messages, cudaStream_t stream) override {
        finish(stream); // messages that came before are still on their way to the device
        std::size_t end = 0;
        for (const message& one : messages) {
            if (one.in_bytes == 0) continue;
            coming_.push_back({link_.receive(in_.get() + end, one.in_bytes, one.peer), one.in, end, one.in_bytes});
            end += one.in_bytes;
        }
        for (const message& one : messages) {
            if (one.out_bytes == 0) continue;
            copy(out_.get(), one.out, one.out_bytes, stream);
            finish(stream);
            going_.push_back(link_.send(out_.get(), one.out_bytes, one.peer));
            mpi_link::finish(going_);
        }
        for (arrival& one : coming_) {
            check_mpi(MPI_Wait(&one.request, MPI_STATUS_IGNORE), "MPI_Wait");
            copy(one.target, in_.get() + one.place, one.bytes, stream);
        }
        coming_.clear();
    }

private:
    struct arrival {
        MPI_Request request;
        void* target;
        std::size_t place, bytes; // in pinned memory
    };

    std::size_t out_bytes_ = 0;
    pinned_bytes in_, out_;
    std::vector<arrival> coming_;
    std::vector<MPI_Request> going_;
};

// Messages are cut into pieces. A piece is copied while the one before it is sent; there are two places each for what
// goes to a peer and for what comes from it.
class pipeline_carrier final : public memory_carrier {
public:
    explicit pipeline_carrier(const carrier_setting& given) : memory_carrier(given), piece_bytes_(given.piece_bytes) {
        for (const route& one : given.routes) lanes_[one.peer].places = pin(4 * piece_bytes_);
    }

    void bring(std::span<const message> messages, cudaStream_t stream) override {
        std::size_t turns = 0;
        for (auto& [peer, lane] : lanes_) {
            lane.out = pieces<const std::byte*>(messages, peer, &message::out, &message::out_bytes);
            lane.in = pieces<std::byte*>(messages, peer, &message::in, &message::in_bytes);
            turns = std::max({turns, lane.out.size(), lane.in.size()});
        }
        copy_to_host(0, stream);
        for (std::size_t turn = 0; turn < turns; ++turn) {
            finish(stream); // the place of the next piece to come is free, and this turn's piece has been copied
            if (turn == 0) receive(0);
            receive(turn + 1);
            for (auto& [peer, lane] : lanes_)
                if (turn < lane.out.size())
                    lane.going[turn % 2] = link_.send(place(lane, turn, out_places), lane.out[turn].bytes, peer);
            wait_for_sends(turn + 1);
            copy_to_host(turn + 1, stream);
            for (auto& [peer, lane] : lanes_) {
                if (turn >= lane.in.size()) continue;
                check_mpi(MPI_Wait(&lane.coming[turn % 2], MPI_STATUS_IGNORE), "MPI_Wait");
                copy(lane.in[turn].memory, place(lane, turn, in_places), lane.in[turn].bytes, stream);
            }
        }
        for (const std::size_t turn : {0, 1}) wait_for_sends(turn);
    }

private:
    template <class Pointer>
    struct piece {
        Pointer memory;
        std::size_t bytes;
    };
    struct peer_lane {
        std::vector<piece<const std::byte*>> out;
        std::vector<piece<std::byte*>> in;
        pinned_bytes places;
        std::array<MPI_Request, 2> going{MPI_REQUEST_NULL, MPI_REQUEST_NULL};
        std::array<MPI_Request, 2> coming{MPI_REQUEST_NULL, MPI_REQUEST_NULL};
    };
    static constexpr std::size_t out_places = 0, in_places = 2;

    template <class Pointer, class Memory>
    std::vector<piece<Pointer>> pieces(std::span<const message> messages, int peer, Memory message::*memory,
                                       std::size_t message::*bytes) const {
        std::vector<piece<Pointer>> result;
        for (const message& one : messages)
            for (std::size_t at = 0; one.peer == peer && at < one.*bytes; at += piece_bytes_)
                result.push_back({static_cast<Pointer>(one.*memory) + at, std::min(piece_bytes_, one.*bytes - at)});
        return result;
    }

    std::byte* place(const peer_lane& of, std::size_t turn, std::size_t first) const {
        return of.places.get() + (first + turn % 2) * piece_bytes_;
    }
    void copy_to_host(std::size_t turn, cudaStream_t stream) {
        for (auto& [peer, lane] : lanes_)
            if (turn < lane.out.size())
                copy(place(lane, turn, out_places), lane.out[turn].memory, lane.out[turn].bytes, stream);
    }
    void receive(std::size_t turn) {
        for (auto& [peer, lane] : lanes_)
            if (turn < lane.in.size())
                lane.coming[turn % 2] = link_.receive(place(lane, turn, in_places), lane.in[turn].bytes, peer);
    }
    // From the places of this turn.
    void wait_for_sends(std::size_t turn) {
        for (auto& [peer, lane] : lanes_) check_mpi(MPI_Wait(&lane.going[turn % 2], MPI_STATUS_IGNORE), "MPI_Wait");
    }

    std::size_t piece_bytes_;
    std::map<int, peer_lane> lanes_; // by peer
};

template <class Carrier>
std::unique_ptr<carrier> make(const carrier_setting& given) {
    return std::make_unique<Carrier>(given);
}
std::unique_ptr<carrier> make_from_device(const carrier_setting& given) {
    auto made = std::make_unique<direct_carrier>(given); // MPI has begun, and can be asked
    const std::string reason = mpi_link::why_no_device_memory();
    if (reason.empty()) return made;
    made.reset(); // in good order: MPI is still to be ended
    throw std::runtime_error(reason);
}

const std::array<carriers::entry, 4> entries{{{"mpi-host", make<direct_carrier>},
                                              {"mpi-staged", make<staged_carrier>},
                                              {"mpi-pipeline", make<pipeline_carrier>},
                                              {"mpi-device", make_from_device}}};

} // namespace

} // namespace common
