// SPDX-License-Identifier: BSD-3-Clause
// Himeno by short kernels: two for each step, for the upper and for the lower half of a device's planes. When a half is
// done its border plane goes to the device beside it, while the other half is computed. Who controls that is what
// differs: options.hpp has the ways, docs/guide/himeno.md explains them.
//
// Why nobody reads what is not there, or writes what is still read, in each of these ways. Take a device, the one above
// it, and step n, which reads array n % 2 and writes the other. (1) The upper half of step n reads the plane that the
// device above has sent after its lower half of step n - 1: it waits for that plane first. (2) When it is done it sends
// its first plane into the array that the lower half of the device above has read in step n - 1. That half is done: the
// plane that was waited for in (1) was sent after it. Below it is the same with upper and lower exchanged. (3) So a
// device beside is at most one step ahead, and a word for each direction is enough to count what has come. The planes
// of step 0 are there from the beginning, so the first step waits for nothing; after the last one the planes that have
// come are waited for, so that nothing is under way when the next run begins. (4) Where a device has one plane, it is
// the upper half, waits for both neighbours and sends to both.
#pragma once

#include <memory>
#include <string>

#include "common/models/kernel_energy.hpp"
#include "dcuda/host.hpp"
#include "options.hpp"
#include "slab.hpp"

namespace himeno {

class short_kernels {
public:
    virtual ~short_kernels() = default;

    // All steps. Collective; the pressure is the start's on all devices. Milliseconds that they took on this device.
    virtual double run(common::kernel_energy& energy) = 0;

    // Of the last step, on this device; of the run before.
    virtual double gosa() const = 0;

    // How devices communicate, in words.
    virtual std::string describe() const = 0;
};

// Collective. `pressure`: both arrays. Throws std::runtime_error if this build or machine cannot do it that way.
std::unique_ptr<short_kernels> make_short_kernels(dcuda::runtime& runtime, const options& chosen, const slab& work);

} // namespace himeno
