// SPDX-License-Identifier: BSD-3-Clause
// NCCL's send and receive on the streams of the kernels; they can be captured in CUDA graphs.
#include <cstdlib>
#include <cstring>
#include <stdexcept>

#include <nccl.h>

#include "common/device_buffer.hpp"
#include "common/models/carrier.hpp"

namespace common {

namespace {

void check(ncclResult_t status, const char* subject) {
    if (status != ncclSuccess)
        throw std::runtime_error(std::string("NCCL: ") + subject + ": " + ncclGetErrorString(status));
}

class nccl_carrier final : public carrier {
public:
    explicit nccl_carrier(const carrier_setting& given) {
        processes& all = given.all;
        setenv("NCCL_NVLS_ENABLE", "0", 0); // messages alone: no multicast
        // Calls in graphs and others are never under way together here, so nothing has to keep them apart.
        setenv("NCCL_GRAPH_MIXING_SUPPORT", "0", 0);
        ncclUniqueId id{};
        if (all.index() == 0) check(ncclGetUniqueId(&id), "cannot make an id");
        id = all.gather(id, "NCCL's id").front();
        check(ncclCommInitRank(&communicator_, all.count(), id, all.index()), "cannot initialise");
        common::check(cudaMemset(nothing_.data(), 0, nothing_.bytes()), "clearing memory");
        // So that it may copy from array to array, not through its own buffers.
        check(ncclCommRegister(communicator_, given.area, given.area_bytes, &registration_), "cannot register memory");
    }
    ~nccl_carrier() override {
        ncclCommDeregister(communicator_, registration_);
        ncclCommDestroy(communicator_);
    }

    std::string name() const override {
        int version = 0;
        ncclGetVersion(&version);
        return "NCCL " + std::to_string(version / 10000) + "." + std::to_string(version / 100 % 100) + "." +
               std::to_string(version % 100);
    }

    void bring(std::span<const message> messages, cudaStream_t stream) override {
        if (messages.empty()) return;
        check(ncclGroupStart(), "cannot start a group");
        for (const message& one : messages) {
            if (one.out_bytes > 0)
                check(ncclSend(one.out, one.out_bytes, ncclChar, one.peer, communicator_, stream), "cannot send");
            if (one.in_bytes > 0)
                check(ncclRecv(one.in, one.in_bytes, ncclChar, one.peer, communicator_, stream), "cannot receive");
        }
        check(ncclGroupEnd(), "cannot end a group");
    }

    void meet(cudaStream_t stream) override {
        check(ncclAllReduce(nothing_.data(), nothing_.data(), 1, ncclInt, ncclSum, communicator_, stream),
              "cannot meet");
    }

private:
    ncclComm_t communicator_ = nullptr;
    void* registration_ = nullptr;
    device_buffer<int> nothing_{1}; // that is summed by a barrier
};

std::unique_ptr<carrier> make_nccl(const carrier_setting& given) { return std::make_unique<nccl_carrier>(given); }

const carriers::entry nccl("nccl", make_nccl);

} // namespace

} // namespace common
