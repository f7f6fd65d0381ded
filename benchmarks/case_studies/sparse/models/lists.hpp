// SPDX-License-Identifier: BSD-3-Clause
// What goes between a device and others in programs with two models, and comes from them, as lists of messages: the
// same data, between the same devices, as with ranks.
#pragma once

#include <algorithm>
#include <initializer_list>
#include <vector>

#include "common/models/carrier.hpp"
#include "layout.hpp"

namespace sparse {

using messages = std::vector<common::message>;

class lists {
public:
    explicit lists(const task& work) : work_(work), at_(work.here()), memory_(work.places()) {}

    std::byte* at(std::size_t offset) const { return work_.memory + offset; }
    double* vector(int buffer) const { return reinterpret_cast<double*>(at(memory_.vector(buffer))); }
    double* product(int buffer) const { return reinterpret_cast<double*>(at(memory_.product(buffer))); }
    // Those of further children follow at the same distance, in doubles.
    double* received() const { return reinterpret_cast<double*>(at(memory_.received(0))); }
    std::size_t received_distance() const { return memory_.product_bytes / sizeof(double); }
    int children_along_row() const { return tree{work_.whole.devices.columns}.levels(at_.column); }

    // The vector, from the parent in the column of devices.
    messages from_above(int buffer) const {
        if (at_.row == 0) return {};
        const tree down{work_.whole.devices.rows};
        return {incoming({down.parent(at_.row), at_.column}, vector(buffer), columns())};
    }
    // The vector, to the children; the one with the largest subtree first.
    messages to_below(int buffer) const {
        messages result;
        for (int level = tree{work_.whole.devices.rows}.levels(at_.row) - 1; level >= 0; --level) {
            const place child{at_.row + (1 << level), at_.column};
            result.push_back(outgoing(child, vector(buffer), columns(), memory_.vector(buffer)));
        }
        return result;
    }

    // Products, from all children in the row of devices.
    messages from_behind() const {
        messages result;
        for (int level = 0; level < children_along_row(); ++level)
            result.push_back(
                incoming({at_.row, at_.column + (1 << level)}, at(memory_.received(level)), work_.whole.rows_at(at_)));
        return result;
    }
    // The product, to the parent.
    messages to_front(int buffer) const {
        if (at_.column == 0) return {};
        const tree along{work_.whole.devices.columns};
        const place parent{at_.row, along.parent(at_.column)};
        return {outgoing(parent, product(buffer), work_.whole.rows_at(at_), memory_.received(along.level(at_.column)))};
    }

    // A product in the first column of devices, to where it is the vector in the first row.
    messages transposition(int from, int target) const {
        messages result;
        const decomposition& whole = work_.whole;
        if (at_.column == 0)
            for (int column = at_.row == 0 ? 1 : 0; column < whole.devices.columns; ++column) {
                const place there{0, column};
                const range theirs = whole.columns_at(there), own = whole.rows_at(at_);
                const range common = intersection(own, theirs);
                if (common.empty()) continue;
                result.push_back(outgoing(there, product(from) + (common.first - own.first), common,
                                          memory_.vector(target) + bytes_of(common.first - theirs.first)));
            }
        if (at_.row == 0)
            for (int row = at_.column == 0 ? 1 : 0; row < whole.devices.rows; ++row) {
                const place there{row, 0};
                const range common = intersection(whole.rows_at(there), columns());
                if (common.empty()) continue;
                result.push_back(incoming(there, vector(target) + (common.first - columns().first), common));
            }
        return result;
    }

    // Bytes at the same place of all devices' memory: every device has its own after those of the devices before.
    messages to_all(std::size_t offset, std::size_t bytes) const {
        messages result;
        for (int device = 0; device < work_.whole.devices.devices(); ++device) {
            if (device == work_.device) continue;
            const std::size_t own = offset + static_cast<std::size_t>(work_.device) * bytes;
            result.push_back(
                {device, at(own), bytes, own, at(offset + static_cast<std::size_t>(device) * bytes), bytes});
        }
        return result;
    }

    // A carrier's routes for such lists.
    static std::vector<common::route> routes(std::initializer_list<messages> all) {
        std::vector<common::route> result;
        for (const messages& list : all) {
            std::vector<common::route> sums;
            for (const common::message& one : list) {
                common::route& sum = of(sums, one.peer);
                sum.out_bytes += one.out_bytes;
                sum.in_bytes += one.in_bytes;
            }
            for (const common::route& sum : sums) {
                common::route& largest = of(result, sum.peer);
                largest.out_bytes = std::max(largest.out_bytes, sum.out_bytes);
                largest.in_bytes = std::max(largest.in_bytes, sum.in_bytes);
            }
        }
        return result;
    }

private:
    static common::route& of(std::vector<common::route>& routes, int peer) {
        const auto found =
            std::find_if(routes.begin(), routes.end(), [&](const common::route& one) { return one.peer == peer; });
        return found != routes.end() ? *found : routes.emplace_back(common::route{peer, 0, 0});
    }

    range columns() const { return work_.whole.columns_at(at_); }
    common::message incoming(place from, void* in, range elements) const {
        common::message result{work_.whole.devices.device_at(from)};
        result.in = in;
        result.in_bytes = bytes_of(elements.count());
        return result;
    }
    common::message outgoing(place target, const void* out, range elements, std::size_t there) const {
        common::message result{work_.whole.devices.device_at(target)};
        result.out = out;
        result.out_bytes = bytes_of(elements.count());
        result.there = there;
        return result;
    }

    task work_;
    place at_;
    layout memory_;
};

inline messages operator+(messages first, const messages& second) {
    first.insert(first.end(), second.begin(), second.end());
    return first;
}

} // namespace sparse
