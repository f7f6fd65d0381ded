// SPDX-License-Identifier: BSD-3-Clause
// The CPU backend's stand-in for <cuda_runtime.h>: the CUDA names that a dCUDA program uses, for any C++20 compiler.
// A kernel's blocks are OS threads and its CUDA threads are fibers on them. What differs from nvcc:
//   - `kernel<<<...>>>` is not C++: kernels are launched through the library (dcuda::runtime), or by CUDA's
//     cudaLaunchKernelEx;
//   - `__shared__` is thread_local, so each block has its own instance; `extern __shared__` cannot work, dynamic shared
//     memory comes from a function (dcuda::detail::exec::dynamic_shared());
//   - threads of one block take turns: one that spins on a plain load until a sibling writes spins forever. Atomic
//     operations that change nothing, __nanosleep and every barrier let the siblings run.
#pragma once

#include "cuda_runtime_api.h"
#include "device_atomics.h"
#include "device_builtins.h"
#include "vector_types.h"
