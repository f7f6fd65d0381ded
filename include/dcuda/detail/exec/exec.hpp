// SPDX-License-Identifier: BSD-3-Clause
// How a block executes: the few steps in which its threads act together. One implementation per backend.
#pragma once

#include "dcuda/config.hpp"

#if DCUDA_BACKEND_CUDA
#include "dcuda/detail/exec/exec_cuda.cuh"
#else
#include "dcuda/detail/exec/exec_cpu.hpp"
#endif
