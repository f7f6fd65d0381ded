// One device, no library between devices: the program that dCUDA's costs are measured against. Kernels one by one on a
// stream, or in CUDA graphs.
#include <stdexcept>

#include "models/two_model.hpp"

namespace stencil {

namespace {

class nobody final : public carrier {
public:
    std::string name() const override { return "CUDA alone"; }
    void bring(const exchange&, cudaStream_t) override {}
};

template <launching How>
std::unique_ptr<model> make_plain(const setting& with) {
    if (with.ranks.rows.devices > 1)
        throw std::runtime_error("the model plain is for one device; over several there are mpi, nccl and others");
    return make_two_model(
        with, [](const device_arrays&, processes&) { return std::make_unique<nobody>(); }, How);
}

const registered_model plain("plain", make_plain<launching::one_by_one>);
#if DCUDA_BACKEND_CUDA
const registered_model in_graph("plain-graph", make_plain<launching::in_graphs>);
#endif

} // namespace

} // namespace stencil
