// SPDX-License-Identifier: BSD-3-Clause
// A device's arrays of all levels, and what its kernels need to know of them.
#pragma once

#include <cstddef>
#include <vector>

#include "bottom.hpp"
#include "common/device_buffer.hpp"
#include "decomposition.hpp"
#include "options.hpp"
#include "problem.hpp"

namespace hpgmg {

struct device_level {
    int side = 0;
    ghosts order{};
    layout in{};
    double* u[2] = {}; // before and after a sweep
    double* source = nullptr;
    const double* inverse_diagonal = nullptr;
    faces beta{};
    chebyshev_step steps[sweeps] = {};
    std::ptrdiff_t u_place[2] = {}, source_place = 0; // in the device's arrays, the same on all devices
};

// An array in the device's memory. PERF: without that the compiler takes a pointer from shared memory for one to any
// memory.
template <class Element>
DCUDA_HOST_DEVICE Element* in_device_memory(Element* array) {
#if defined(__CUDA_ARCH__)
    __builtin_assume(__isGlobal(array));
#endif
    return array;
}

// A of a level. PERF: loops over many cells keep it in registers.
struct level_operator {
    faces beta{};
    std::ptrdiff_t strides[2] = {};
    double squared = 0.0;

    DCUDA_HOST_DEVICE explicit level_operator(const device_level& on)
        : strides{on.in.stride(0), on.in.stride(1)}, squared(double(on.side) * double(on.side)) {
        for (int d = 0; d < 3; ++d) beta.beta[d] = in_device_memory(on.beta.beta[d]);
    }
    // A of an array in a cell.
    DCUDA_HOST_DEVICE double image(const double* u, std::ptrdiff_t at) const {
        return apply(u, beta, at, strides[0], strides[1], squared);
    }
};

// A of an array in a cell, and f - A u.
DCUDA_HOST_DEVICE double image(const device_level& on, const double* u, std::ptrdiff_t at) {
    return apply(u, on.beta, at, on.in.stride(0), on.in.stride(1), double(on.side) * double(on.side));
}
DCUDA_HOST_DEVICE double residual_at(const device_level& on, std::ptrdiff_t at) {
    return on.source[at] - image(on, on.u[0], at);
}

// A cell after the first sweep from u = 0, of which A u is 0. `parity` is the sum of its indices. A polynomial's next
// step also takes u from before, which is set to 0.
DCUDA_HOST_DEVICE double swept_from_zero(const device_level& on, bool is_chebyshev, int parity, std::ptrdiff_t at) {
    const double change = on.source[at] * on.inverse_diagonal[at];
    if (!is_chebyshev) return parity % 2 == 0 ? change : 0.0;
    on.u[0][at] = 0.0;
    return on.steps[0].change * change;
}

// For host arrays that kernels read.
template <class Element>
common::device_buffer<Element> on_device(const std::vector<Element>& values) {
    common::device_buffer<Element> buffer(values.size());
    buffer.upload(values.data(), values.size());
    return buffer;
}

class level_arrays {
public:
    // Collective.
    level_arrays(dcuda::runtime& runtime, const options& chosen, const decomposition& cut, int device);

    // Bytes of a device's memory that they take.
    static double bytes_for(const decomposition& cut);

    const device_level& level(int number) const { return levels_[static_cast<std::size_t>(number)]; }
    const device_level* levels_on_device() const { return level_buffer_.data(); }
    const bottom_arrays& bottom() const { return bottom_; }
    double* data() const { return arrays_.data(); }
    std::size_t bytes() const { return arrays_.bytes(); }
    double largest_source() const { return largest_source_; } // of all devices

    // The solution, on process 0; elsewhere nothing. Collective.
    std::vector<double> collect() const;

private:
    void make_arrays();
    void fill_arrays(const options& chosen);
    std::size_t place(int level, int number) const;
    double largest_of_all(double own) const;

    dcuda::runtime& runtime_;
    const decomposition& cut_;
    int device_;
    double largest_source_ = 0.0;
    std::vector<device_level> levels_;
    bottom_arrays bottom_{};
    common::device_buffer<double> arrays_;
    common::device_buffer<device_level> level_buffer_;
};

} // namespace hpgmg
