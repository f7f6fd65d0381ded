// SPDX-License-Identifier: BSD-3-Clause
// MPI between kernels: messages straight from device memory where the MPI library takes that, else through pinned
// memory.
#include <algorithm>

#include "common/device_buffer.hpp"
#include "common/models/mpi_link.hpp"
#include "support/cuda.hpp"

namespace common {

namespace {

class mpi_carrier final : public carrier {
public:
    explicit mpi_carrier(const carrier_setting& given)
        : link_(given), is_direct_(mpi_link::why_no_device_memory().empty()) {
        if (is_direct_) return;
        for (const route& one : given.routes) {
            staged& place = staged_.emplace_back();
            place.peer = one.peer;
            place.in_bytes = one.in_bytes;
            place.memory =
                dcuda::cuda::allocate_pinned<std::byte>(2 * one.in_bytes + one.out_bytes + 1, "pinning memory");
        }
    }

    std::string name() const override {
        return mpi_link::library() + (is_direct_ ? ", from device memory" : ", through pinned memory");
    }

    void bring(std::span<const message> messages, cudaStream_t stream) override {
        if (messages.empty()) return;
        if (is_direct_)
            bring_directly(messages, stream);
        else
            bring_through_host(messages, stream);
    }

    void meet(cudaStream_t stream) override {
        check(cudaStreamSynchronize(stream), "the kernels failed");
        link_.meet();
    }

private:
    // Pinned memory for a peer: all messages of a list are one.
    struct staged {
        int peer = -1;
        std::size_t in_bytes = 0; // of a place; two for what comes are followed by one for what goes
        dcuda::cuda::pinned_array<std::byte> memory;
        std::size_t coming = 0, going = 0; // bytes in this list

        std::byte* in(std::size_t turn) const { return memory.get() + turn * in_bytes; }
        std::byte* out() const { return in(2); }
    };

    void bring_directly(std::span<const message> messages, cudaStream_t stream) {
        check(cudaStreamSynchronize(stream), "the kernels failed");
        // Not before: kernels may have been reading what was there.
        for (const message& one : messages)
            if (one.in_bytes > 0) open_.push_back(link_.receive(one.in, one.in_bytes, one.peer));
        for (const message& one : messages)
            if (one.out_bytes > 0) open_.push_back(link_.send(one.out, one.out_bytes, one.peer));
        mpi_link::finish(open_);
    }

    void bring_through_host(std::span<const message> messages, cudaStream_t stream) {
        // Places for what comes take turns: the last list's are still being copied to the device.
        turn_ = 1 - turn_;
        for (staged& place : staged_) place.coming = place.going = 0;
        for (const message& one : messages) {
            staged& place = of(one.peer);
            if (one.out_bytes > 0) copy(place.out() + place.going, one.out, one.out_bytes, stream);
            place.going += one.out_bytes;
            place.coming += one.in_bytes;
        }
        for (const staged& place : staged_)
            if (place.coming > 0) open_.push_back(link_.receive(place.in(turn_), place.coming, place.peer));
        check(cudaStreamSynchronize(stream), "the kernels failed");
        for (const staged& place : staged_)
            if (place.going > 0) open_.push_back(link_.send(place.out(), place.going, place.peer));
        mpi_link::finish(open_);
        for (staged& place : staged_) place.coming = 0;
        for (const message& one : messages) {
            staged& place = of(one.peer);
            if (one.in_bytes > 0) copy(one.in, place.in(turn_) + place.coming, one.in_bytes, stream);
            place.coming += one.in_bytes;
        }
    }

    staged& of(int peer) {
        return *std::find_if(staged_.begin(), staged_.end(), [&](const staged& one) { return one.peer == peer; });
    }

    void copy(void* target, const void* source, std::size_t bytes, cudaStream_t stream) const {
        check(cudaMemcpyAsync(target, source, bytes, cudaMemcpyDefault, stream), "copying messages");
    }

    mpi_link link_;
    bool is_direct_ = false;
    std::vector<staged> staged_; // unless it is direct
    std::size_t turn_ = 0;
    std::vector<MPI_Request> open_;
};

std::unique_ptr<carrier> make_mpi(const carrier_setting& given) { return std::make_unique<mpi_carrier>(given); }

const carriers::entry mpi("mpi", make_mpi);

} // namespace

} // namespace common
