// SPDX-License-Identifier: BSD-3-Clause
// Other ways to run the iterations, to compare dCUDA with: --model. docs/guide/stencil.md says what each does.
#pragma once

#include "common/models/model.hpp"
#include "dcuda/host.hpp"
#include "division.hpp"
#include "options.hpp"

namespace stencil {

// What a model works on: this device's part. It diffuses the device's rows of `in`.
struct setting {
    const options& chosen;
    grid whole;
    division ranks;
    int device = 0;
    int threads = 0; // of a block
    dcuda::runtime& runtime;
    double* in = nullptr; // the device's rows, and room for one more on either side, in device memory

    range own() const { return ranks.rows.of_device(device); }
};

using models = common::models<setting>;

} // namespace stencil
