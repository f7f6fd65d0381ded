// SPDX-License-Identifier: BSD-3-Clause
// Kernels with collective operations, whose resources resources_test.py bounds. PART chooses some of them: functions
// that are called by address give their registers to every kernel of a file.
#include <dcuda/dcuda.hpp>

#define KERNEL(name, ...) extern "C" __global__ void name(dcuda::context context __VA_OPT__(, ) __VA_ARGS__)
#define RANK                                                                                                           \
    __shared__ dcuda::state state;                                                                                     \
    dcuda::rank self(context, state)

#if PART == 1
KERNEL(split, int* result) {
    RANK;
    const dcuda::communicator made = self.split(dcuda::world, self.id() % 2, 0);
    self.barrier(made);
    *result = self.size(made);
    self.free_communicator(made);
}
KERNEL(allreduce_value, dcuda::communicator comm, double* value) {
    RANK;
    *value = self.allreduce(comm, *value, dcuda::sum{});
}
KERNEL(start_and_finish, dcuda::communicator comm, double* value) {
    RANK;
    const auto started = self.start_allreduce(comm, *value, dcuda::sum{});
    *value = self.finish_allreduce(started);
}
KERNEL(broadcast_value, dcuda::communicator comm, double* value, int root) {
    RANK;
    *value = self.broadcast(comm, *value, root);
}
#elif PART == 2
KERNEL(scan_value, dcuda::communicator comm, double* value) {
    RANK;
    *value = self.scan(comm, *value, dcuda::sum{});
}
KERNEL(move_data, dcuda::communicator comm, double* out, const double* in, std::size_t count, std::size_t* numbers) {
    RANK;
    self.all_gather(comm, out, in, count);
    self.all_to_all_v(comm, out, numbers, in, numbers, numbers, numbers);
}
#elif PART == 3
KERNEL(start_and_finish_array, dcuda::communicator comm, double* out, const double* in, std::size_t count) {
    RANK;
    const auto started = self.start_allreduce(comm, out, in, count, dcuda::sum{});
    self.finish_allreduce(started);
}
#else
KERNEL(allreduce_array, dcuda::communicator comm, double* out, const double* in, std::size_t count) {
    RANK;
    self.allreduce(comm, out, in, count, dcuda::sum{});
}
#endif
