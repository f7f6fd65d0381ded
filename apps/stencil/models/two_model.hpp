// The structure of programs with two models, one for the device and one between devices: kernels on streams, and a
// library that the host calls. What all of them share; a carrier is what differs.
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

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "common/device_buffer.hpp"
#include "models/model.hpp"
#include "models/processes.hpp"

namespace stencil {

// What goes across one border of a device, to the device before (0) or after (1), and what comes from there. Null:
// nothing.
struct crossing {
    double* out = nullptr;
    double* in = nullptr;
    int out_row = 0; // of the grid: the first that goes out
};
struct exchange {
    int array = 0;
    crossing borders[2];
    std::size_t bytes = 0; // of each message

    bool any() const { return borders[0].out || borders[0].in || borders[1].out || borders[1].in; }
};

// This device's arrays: its rows, with halo rows on either side. One allocation.
class device_arrays {
public:
    device_arrays() = default;
    device_arrays(const setting& with, int arrays, int halo);

    int count() const { return count_; }
    int halo() const { return halo_; }
    range mine() const { return mine_; }
    int first_stored_row() const { return mine_.first - halo_; }
    std::size_t plane() const { return plane_; }
    std::size_t array_bytes() const { return stride_ * sizeof(double); }
    double* base() const { return memory_.data(); }
    field_view view(int array) const {
        return {memory_.data() + static_cast<std::size_t>(array) * stride_, first_stored_row(), nx_, plane_};
    }

    // The devices before and after, or -1.
    int neighbour(int border) const { return neighbours_[border]; }

    // The rows at the first border go to the device before, those at the last to the device after; the same comes.
    exchange rows_of(int array, bool to_previous, bool to_next) const;

private:
    int count_ = 0, halo_ = 0, nx_ = 0;
    range mine_;
    std::size_t plane_ = 0, stride_ = 0;
    int neighbours_[2] = {-1, -1};
    common::device_buffer<double> memory_;
};

// Brings rows to the neighbours.
class carrier {
public:
    virtual ~carrier() = default;
    virtual std::string name() const = 0;

    // Begins when the stream's work is done, and what follows in the stream sees what has come. The host may wait in
    // it, or not.
    virtual void bring(const exchange& rows, cudaStream_t stream) = 0;
};
using carrier_maker = std::function<std::unique_ptr<carrier>(const device_arrays&, processes&)>;

enum class launching { one_by_one, in_graphs };

std::unique_ptr<model> make_two_model(const setting& with, const carrier_maker& make, launching how);

} // namespace stencil
