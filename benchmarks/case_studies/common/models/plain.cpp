// SPDX-License-Identifier: BSD-3-Clause
// Nobody: one device, CUDA without a library. The program that dCUDA's costs are measured against.
#include "common/models/carrier.hpp"

namespace common {

namespace {

class nobody final : public carrier {
public:
    std::string name() const override { return "CUDA alone"; }
    void bring(std::span<const message>, cudaStream_t) override {}
    void meet(cudaStream_t) override {}
};

std::unique_ptr<carrier> make_nobody(const carrier_setting& given) {
    if (given.all.count() > 1)
        throw std::runtime_error("the model plain is for one device; over several there are mpi, nccl and others");
    return std::make_unique<nobody>();
}

const carriers::entry plain("plain", make_nobody);

} // namespace

} // namespace common
