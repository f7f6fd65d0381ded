// SPDX-License-Identifier: BSD-3-Clause
// Short kernels that communicate, held to few registers: resources_test.py compiles them as relocatable device code,
// too, where functions that are called by their address must keep within those of the kernel.
#include <dcuda/trigger.hpp>

__global__ void __launch_bounds__(256, 5) // 48 registers
    triggers_by_warp(dcuda::put_trigger put, unsigned* data) {
    ++data[threadIdx.x];
    dcuda::trigger(put);
}

__global__ void __launch_bounds__(256, 5)
    triggers_by_block(dcuda::put_trigger put, dcuda::wait_trigger wait, unsigned* data) {
    if (threadIdx.x == 0) dcuda::await(wait);
    __syncthreads();
    ++data[threadIdx.x];
    dcuda::trigger_by_block(put);
}
