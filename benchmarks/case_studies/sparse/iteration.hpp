// SPDX-License-Identifier: BSD-3-Clause
// The power iteration's numbers, for host and device: which factor the next vector gets, and when to stop.
//
// Iteration t makes the vector x(t) one of length 1 by a factor, and multiplies: y(t) = A (factor x(t)) = x(t + 1). The
// factor of x(t + 1) is 1 / |y(t)|. How good the vector is shows later, as nobody waits for it: the check of product t
// is made in iteration t + 1 and used in iteration t + 2.
#pragma once

#include <cmath>
#include <cstddef>

#include "decomposition.hpp"

namespace sparse {

enum class outcome : int {
    none,       // goes on
    enough,     // all iterations that were asked for
    converged,  // the residual is within the tolerance
    vanished,   // a product is zero
    overflowed, // a product is not finite
};

// What every rank gets with a vector.
struct control {
    double factor = 1.0;
    double eigenvalue = 0.0; // as known then
    outcome state = outcome::none;
    int iterations = 0; // that made the vector
};

// Of a vector x of length 1 and its product y: sums over all elements. The estimate of the eigenvalue is that of the
// control that came with x, so that `off` is no smaller than with the best one.
struct check {
    double along = 0.0; // x y, which estimates the eigenvalue
    double off = 0.0;   // (y - estimate x)^2

    DCUDA_HOST_DEVICE void operator+=(const check& other) {
        along += other.along;
        off += other.off;
    }
};
DCUDA_HOST_DEVICE double off_eigenvector(double x, double y, double eigenvalue) {
    const double difference = y - eigenvalue * x;
    return difference * difference;
}

struct goal {
    int iterations = 0;
    double tolerance = 0.0; // 0: none
};

// What device 0 finds out.
struct findings {
    double eigenvalue = 0.0;
    double residual = 1.0;         // |y - eigenvalue x| / |y|
    double residual_halfway = 1.0; // after half of the iterations that were asked for
    double norm = 0.0;             // |y|

    // The check of a product whose norm is known.
    DCUDA_HOST_DEVICE void see(const check& seen, int product, const goal& wanted) {
        eigenvalue = seen.along;
        residual = std::sqrt(seen.off) / norm;
        if (product == (wanted.iterations - 1) / 2) residual_halfway = residual;
    }

    // What comes with vector `t`, which is a product with this sum of squares; all products before the last have been
    // seen.
    DCUDA_HOST_DEVICE control next(int t, double squares, const goal& wanted) {
        norm = std::sqrt(squares);
        control result{1.0, eigenvalue, outcome::none, t};
        if (!(squares - squares == 0.0)) { // infinite, or not a number
            result.state = outcome::overflowed;
        } else if (squares == 0.0) {
            result.state = outcome::vanished;
        } else {
            result.factor = 1.0 / norm;
            if (residual <= wanted.tolerance)
                result.state = outcome::converged;
            else if (t == wanted.iterations)
                result.state = outcome::enough;
        }
        return result;
    }
};

// What a device notes, at the start of its memory: in the end what came out, for the host; before, sums.
struct board {
    control told; // last
    findings found;

    // Of a product. They follow the board, those of iterations in turn.
    static constexpr int turns = 3;
    struct sums {
        double* squares;            // of each rank of the device
        check* checks;              // alike
        double* squares_of_devices; // in the first column; in the end the first is their sum
        check* checks_of_devices;   // in the first row, alike
        double* squares_to;         // each device: what it is told
        check* check_to_all;

        DCUDA_HOST_DEVICE sums(double* from, const decomposition& whole)
            : squares(from), checks(reinterpret_cast<check*>(squares + whole.ranks_per_device)),
              squares_of_devices(reinterpret_cast<double*>(checks + whole.ranks_per_device)),
              checks_of_devices(reinterpret_cast<check*>(squares_of_devices + whole.devices.rows)),
              squares_to(reinterpret_cast<double*>(checks_of_devices + whole.devices.columns)),
              check_to_all(reinterpret_cast<check*>(squares_to + whole.devices.devices())) {}
        static DCUDA_HOST_DEVICE int doubles(const decomposition& whole) {
            return 3 * whole.ranks_per_device + whole.devices.rows + 2 * whole.devices.columns +
                   whole.devices.devices() + 2;
        }
    };
    DCUDA_HOST_DEVICE sums of_product(int t, const decomposition& whole) {
        return {reinterpret_cast<double*>(this + 1) + t % turns * sums::doubles(whole), whole};
    }

    static DCUDA_HOST_DEVICE std::size_t bytes(const decomposition& whole) {
        return sizeof(board) + sizeof(double) * static_cast<std::size_t>(turns * sums::doubles(whole));
    }
};

} // namespace sparse
