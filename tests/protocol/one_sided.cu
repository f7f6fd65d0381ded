// SPDX-License-Identifier: BSD-3-Clause
// What gets, atomic operations, accumulates and boxes cost a kernel in registers: see operations.cu. In a file of their
// own, as what they call costs every kernel beside them.
#include <dcuda/dcuda.hpp>

#define KERNEL(name, ...) extern "C" __global__ void name(dcuda::context context __VA_OPT__(, ) __VA_ARGS__)
#define RANK                                                                                                           \
    __shared__ dcuda::state state;                                                                                     \
    dcuda::rank self(context, state)

KERNEL(get, dcuda::window win, int target, std::size_t offset, std::size_t bytes, void* destination, int tag) {
    RANK;
    self.get(win, target, offset, bytes, destination);
    self.get_notify(win, target, offset, bytes, destination, tag);
}
KERNEL(fetch_add, dcuda::window win, int target, std::size_t offset, double* value) {
    RANK;
    *value = self.fetch_add(win, target, offset, *value);
}
KERNEL(accumulate, dcuda::window win, int target, std::size_t offset, std::size_t count, const float* source, int tag) {
    RANK;
    self.accumulate(win, target, offset, count, source, dcuda::sum{});
    self.accumulate_notify(win, target, offset, count, source, dcuda::maximum{}, tag);
}
KERNEL(move_boxes, dcuda::window win, int target, std::size_t offset, dcuda::pitch at_target, dcuda::box shape,
       void* memory, dcuda::pitch here, int tag) {
    RANK;
    self.put_notify(win, target, offset, at_target, shape, memory, here, tag);
    self.get(win, target, offset, at_target, shape, memory, here);
}
