// NCCL's send and receive on the streams of the kernels, launched by the host one by one ("nccl") or replayed from CUDA
// graphs of whole iterations ("nccl-graph").
#include <cstdlib>
#include <cstring>
#include <stdexcept>

#include <nccl.h>

#include "models/two_model.hpp"

namespace stencil {

namespace {

void check(ncclResult_t status, const char* what) {
    if (status != ncclSuccess)
        throw std::runtime_error(std::string("NCCL: ") + what + ": " + ncclGetErrorString(status));
}

class nccl_carrier final : public carrier {
public:
    nccl_carrier(const device_arrays& arrays, processes& all) : arrays_(arrays) {
        setenv("NCCL_NVLS_ENABLE", "0", 0); // only neighbours talk: no multicast
        // Calls in graphs and others are never under way together here, so nothing has to keep them apart.
        setenv("NCCL_GRAPH_MIXING_SUPPORT", "0", 0);
        ncclUniqueId id{};
        if (all.index() == 0) check(ncclGetUniqueId(&id), "cannot make an id");
        id = all.gather(id, "NCCL's id").front();
        check(ncclCommInitRank(&communicator_, all.count(), id, all.index()), "cannot initialise");
        // So that it may copy from array to array, not through its own buffers.
        check(ncclCommRegister(communicator_, arrays.base(),
                               arrays.array_bytes() * static_cast<std::size_t>(arrays.count()), &registration_),
              "cannot register memory");
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

    void bring(const exchange& rows, cudaStream_t stream) override {
        if (!rows.any()) return;
        check(ncclGroupStart(), "cannot start a group");
        for (int border = 0; border < 2; ++border) {
            const crossing& what = rows.borders[border];
            const int peer = arrays_.neighbour(border);
            const std::size_t count = rows.bytes / sizeof(double);
            if (what.out) check(ncclSend(what.out, count, ncclDouble, peer, communicator_, stream), "cannot send");
            if (what.in) check(ncclRecv(what.in, count, ncclDouble, peer, communicator_, stream), "cannot receive");
        }
        check(ncclGroupEnd(), "cannot end a group");
    }

private:
    const device_arrays& arrays_;
    ncclComm_t communicator_ = nullptr;
    void* registration_ = nullptr;
};

template <launching How>
std::unique_ptr<model> make_nccl(const setting& with) {
    return make_two_model(
        with,
        [](const device_arrays& arrays, processes& all) -> std::unique_ptr<carrier> {
            return std::make_unique<nccl_carrier>(arrays, all);
        },
        How);
}

const registered_model one_by_one("nccl", make_nccl<launching::one_by_one>);
const registered_model in_graph("nccl-graph", make_nccl<launching::in_graphs>);

} // namespace

} // namespace stencil
