// SPDX-License-Identifier: BSD-3-Clause
// The problem: -div(beta grad u) = f on the unit cube, u = 0 on its boundary, averages over cells and faces; and the
// tables that the levels need of it.
#pragma once

#include <vector>

#include "arithmetic.hpp"
#include "levels.hpp"

namespace hpgmg {

class problem {
public:
    // `amplitude`: what f is multiplied by.
    problem(int side, double amplitude);

    // f in a cell of the finest level.
    double source(int i, int j, int k) const;
    // beta at the low face of a cell in that dimension: the mean of four fine faces, down to the finest level.
    double beta(int level, int dimension, int i, int j, int k) const;

private:
    double face(int dimension, int i, int j, int k) const;

    int side_;
    double amplitude_;
    std::vector<double> sines_[2];  // at cell centres and at faces
    std::vector<double> powers_[2]; // sin^7 at cell centres, and its second derivative
};

// What does not change on a level. beta[d] lies at the cell above the face, and reaches one layer of ghost cells in the
// two dimensions along the face.
struct tables {
    std::vector<double> beta[3], inverse_diagonal;
    double lambda = 0.0; // at most this are the eigenvalues of A / D in the cells of these tables

    faces low_faces() const { return {{beta[0].data(), beta[1].data(), beta[2].data()}}; }
};

// Of the cells in the array of that layout but its outer layers.
tables make_tables(const problem& of, const level_shape& shape, int level, const layout& in);

// 1 / h^2.
inline double inverse_square(int side) { return double(side) * double(side); }

// A polynomial's steps: u + before (u - u_old) + change (f - A u) / D.
struct chebyshev_step {
    double before, change;
};
inline constexpr int sweeps = 6; // of both smoothers
std::vector<chebyshev_step> chebyshev_steps(double lambda);

} // namespace hpgmg
