// SPDX-License-Identifier: BSD-3-Clause
// The structure of programs with two models, one for the device and one between devices: kernels on streams, and a
// library that the host calls. What all of them share; a carrier is what differs (common/models/).
//
// Every step has its border rows computed first, on a stream of high priority, where the exchange follows, and the
// interior beside both on another stream:
//     border stream      border rows, exchange  |
//     interior stream    interior               | both meet, next step
// An exchange takes a plane of all levels as one message: the rows of a field are contiguous.
//
// As published, an iteration has three steps of a kernel and an exchange each, like that of the dCUDA program: lap,
// whose first row goes to the device before; fx and fy, whose last row goes to the device after; the field, both ways.
// With
// --fused it has one: a kernel computes all three stencils from two rows of halo, into a second array.
#pragma once

#include <vector>

#include "common/device_buffer.hpp"
#include "common/models/carrier.hpp"
#include "models/model.hpp"

namespace stencil {

// Rows that go to the neighbours and come from them.
struct exchange {
    common::message messages[2];
    int count = 0;
    bool sends[2] = {}; // to the device before, and after
};

// This device's arrays: its rows, with halo rows on either side. One allocation.
class device_arrays {
public:
    device_arrays(const setting& given, int arrays, int halo);

    int halo() const { return halo_; }
    range own() const { return mine_; }
    std::size_t plane() const { return plane_; }
    double* base() const { return memory_.data(); }
    std::size_t bytes() const { return memory_.bytes(); }
    field_view view(int array) const {
        return {memory_.data() + static_cast<std::size_t>(array) * stride_, mine_.first - halo_, nx_, plane_};
    }

    // The rows at the first border go to the device before, those at the last to the device after; the same comes.
    exchange rows_of(int array, bool to_previous, bool to_next) const;
    std::vector<common::route> routes() const;

private:
    std::size_t row_bytes() const { return static_cast<std::size_t>(halo_) * plane_ * sizeof(double); }
    std::size_t offset_at(int device, int array, int row) const;

    int halo_ = 0, nx_ = 0;
    partition devices_;
    range mine_;
    std::size_t plane_ = 0, stride_ = 0;
    int neighbours_[2] = {-1, -1}; // the devices before and after, or -1
    common::device_buffer<double> memory_;
};

} // namespace stencil
