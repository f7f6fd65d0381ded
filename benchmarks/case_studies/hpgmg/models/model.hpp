// SPDX-License-Identifier: BSD-3-Clause
// Other ways to solve, to compare dCUDA with: --model. docs/guide/hpgmg.md says what each does.
#pragma once

#include "common/models/model.hpp"
#include "findings.hpp"
#include "level_arrays.hpp"

namespace hpgmg {

// What a model works on. It solves as often as the options say, from f in the arrays.
struct setting {
    const options& chosen;
    const decomposition& cut; // one rank on each device
    const level_arrays& arrays;
    int device = 0;
    dcuda::runtime& runtime;
    const findings& found;
};

using models = common::models<setting>;

} // namespace hpgmg
