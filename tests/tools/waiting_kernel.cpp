// SPDX-License-Identifier: BSD-3-Clause
// A kernel that waits for something that never comes: what a debugger shows of it is the test (see check_gdb.sh).
#include <atomic>
#include <unistd.h>

#include <cuda_runtime.h>

#include <dcuda/detail/exec/exec_cpu.hpp>

static std::atomic<bool> never{false};

__global__ void stencil(double* field, int rows) {
    const int halo_row = rows + 40 + static_cast<int>(blockIdx.x);
    if (threadIdx.x == 0) field[blockIdx.x] = halo_row;
    dcuda::detail::exec::run_then_sync(dcuda::detail::exec::whole_block{}, [&] {
        while (!never) pause();
    });
    if (threadIdx.x == 0) field[blockIdx.x] = halo_row;
}

int main() {
    static double field[2];
    alarm(60); // never left behind
    dcuda::detail::exec::launch({dim3(8), 2, 0, 17}, nullptr, [] { stencil(field, 2); });
    return cudaDeviceSynchronize();
}
