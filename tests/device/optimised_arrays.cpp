// SPDX-License-Identifier: BSD-3-Clause
// Arrays of small integers, as programs that are compiled with -O2 reduce them: GCC 12 ended with an error of its own.
// This file has to compile, no more.
#include <cstddef>
#include <cstdint>

#include <dcuda/dcuda.hpp>

template <class T>
void reduce(dcuda::rank& self, T* array, std::size_t count) {
    self.allreduce(dcuda::world, array, array, count, dcuda::sum{});
    self.reduce(dcuda::world, array, array, count, dcuda::minimum{}, 0);
    self.reduce_scatter(dcuda::device, array, array, count, dcuda::bit_xor{});
}

void reduce_arrays(dcuda::rank& self, std::uint8_t* bytes, std::uint16_t* shorts, std::int16_t* numbers,
                   std::size_t count) {
    reduce(self, bytes, count);
    reduce(self, shorts, count);
    reduce(self, numbers, count);
}
