// SPDX-License-Identifier: BSD-3-Clause
// What travels in a solve by kernels that the host launches, and the ghost cells that are filled with it: pieces of
// arrays, which kernels pack and unpack, and messages, which carriers bring.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "common/models/carrier.hpp"
#include "models/staging.hpp"

namespace hpgmg {

// Cells of an array that a message has, or, without one, ghost cells of the array itself.
struct piece {
    region cells{};
    double* message = nullptr;
};

DCUDA_HOST_DEVICE std::ptrdiff_t place_in(const piece& one, int i, int j, int k) {
    return layout{one.cells}.place(i, j, k);
}

// What one delivery of an array takes (staging::number_of).
struct delivery {
    std::size_t packed = 0, unpacked = 0; // the first piece of each kind, of those of all deliveries
    int packed_count = 0, unpacked_count = 0;
    std::int64_t most_packed = 0, most_unpacked = 0; // cells of the largest
    std::vector<common::message> messages;           // what goes, in the order of the packed pieces, and what comes
};

class deliveries {
public:
    // Of one device. `area`: its device memory for as many cells as `where` has.
    deliveries(const decomposition& cut, int device, const staging& where, double* area);

    const std::vector<delivery>& all() const { return all_; }
    const std::vector<piece>& pieces() const { return pieces_; }
    // What a delivery brings to a peer, and from it, is as much as this says, or less.
    std::vector<common::route> routes() const;

private:
    std::vector<delivery> all_;
    std::vector<piece> pieces_;
};

} // namespace hpgmg
