// SPDX-License-Identifier: BSD-3-Clause
// Steps that the device starts: a kernel of one thread launches the two halves of a step, and behind them the kernel of
// the next step. All are tail launches: each begins when those before it are done. Only relocatable device code can
// launch kernels, so these have a unit of their own, and all others are compiled as ever.
#pragma once

#include "half_step.hpp"

namespace himeno {

// How half of a step is launched.
struct half_launch {
    half_step part;
    sums squares;
    triggers by;
    dcuda::role_words* words;
};

// All that the device launches; in its memory.
struct tail_launches {
    slab work;
    int steps;
    half_launch of_parity[2][2]; // by the step's parity; upper and lower half
};

// Launches the first step, which launches the others. The stream's later work begins when all of them are done.
void launch_first_step(const tail_launches* all, bool is_fused, cudaStream_t stream);

} // namespace himeno
