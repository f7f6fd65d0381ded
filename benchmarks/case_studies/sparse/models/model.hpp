// SPDX-License-Identifier: BSD-3-Clause
// Other ways to multiply and to iterate, to compare dCUDA with: --model. docs/guide/spmv.md and
// docs/guide/power_iteration.md say what each does.
#pragma once

#include "common/models/model.hpp"
#include "iteration.hpp"
#include "layout.hpp"

namespace sparse {

// What a model works on: this device's part. It leaves in the device's memory what the ranks would leave there.
struct setting {
    task work;
    int threads = 0; // of a block
    int repetitions = 0;
    bool barrier = true; // of all devices after each repetition
    goal wanted{};
};

using models = common::models<setting>;

// What a device of the power iteration with two models tells the others in an iteration.
struct record {
    double square = 0.0; // of the product, in the first column of devices
    check seen;          // of the product before, in the first row
};

// The board at the start of the memory is followed by two records of each device, in turn.
DCUDA_HOST_DEVICE std::size_t offset_of_records(const decomposition& whole) {
    return (board::bytes(whole) + 15) / 16 * 16;
}
DCUDA_HOST_DEVICE std::size_t bytes_with_records(const decomposition& whole) {
    return offset_of_records(whole) + 2 * static_cast<std::size_t>(whole.devices.devices()) * sizeof(record);
}

} // namespace sparse
