// SPDX-License-Identifier: BSD-3-Clause
// A rank of which sixteen share a multiprocessor: resources_test.py compiles it as relocatable device code.
#include <dcuda/device.hpp>

__global__ void __launch_bounds__(64, 16) exchanges(dcuda::context context, unsigned char* memory, std::size_t bytes) {
    __shared__ dcuda::state state;
    dcuda::rank self(context, state);
    const dcuda::window win = self.create_window(dcuda::world, memory, bytes);
    self.put_notify(win, (self.id() + 1) % self.size(), 0, bytes, memory, 1);
    self.wait_notifications(1, 1);
    self.get(win, 0, 0, bytes, memory);
    self.flush(win);
    self.barrier(dcuda::world);
    self.free_window(win);
}
