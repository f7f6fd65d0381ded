// SPDX-License-Identifier: BSD-3-Clause
// The solver on one core.
#pragma once

#include <optional>
#include <vector>

#include "bottom.hpp"
#include "problem.hpp"

namespace hpgmg {

enum class smoother { red_black, chebyshev };

class serial_solver {
public:
    // Without the levels that are finer than `first`, nothing but solve_coarse and correct_coarse can be done.
    serial_solver(level_shape finest, smoother chosen, double amplitude = 1.0, int first = 0);

    // An F-cycle for the problem on this level, with f restricted to it. Returns max|f - A u| / max|f|.
    double solve(int level = 0);
    // One more V-cycle on the finest level; returns the same.
    double improve();

    // The coarse part of others' solves: u on the first level here from f there, in an F-cycle, or as a V-cycle's
    // correction. Both are arrays of a cube with two layers of ghost cells, which are left as they come.
    void solve_coarse();
    void correct_coarse();
    std::vector<double>& source_of_first() { return levels_.front().source; }
    const std::vector<double>& u_of_first() const { return levels_.front().u; }

    // The solution on a level, without ghost cells.
    std::vector<double> solution(int level = 0) const;
    const level_shape& shape(int level) const { return at(level).shape; }
    double lambda(int level) const { return at(level).constant.lambda; }
    int bottom() const { return first_ + static_cast<int>(levels_.size()) - 1; }
    // The first level whose residual was no number.
    std::optional<int> failed_level() const { return failed_; }

private:
    struct grid_level {
        level_shape shape;
        layout in;
        tables constant;
        std::vector<double> u, twin, source;
        std::vector<chebyshev_step> steps; // none: red and black
    };

    const grid_level& at(int number) const { return levels_[static_cast<std::size_t>(number - first_)]; }
    grid_level& at(int number) { return levels_[static_cast<std::size_t>(number - first_)]; }
    static double image(const grid_level& on, std::ptrdiff_t at);
    void fill_ghosts(grid_level& on, ghosts order);
    void fill_ghosts(grid_level& on) { fill_ghosts(on, order_of(on.shape.box_side)); }
    void smooth(grid_level& on);
    void restrict_sources();
    void restrict_residual(int fine);
    template <class Cycle>
    void interpolate_to(int fine, bool adds);
    void solve_bottom();
    void v_cycle(int finest);
    void f_cycle(int finest);
    double relative_residual(int number);

    int first_;
    std::vector<grid_level> levels_;
    std::vector<double> work_[bottom_work_arrays];
    std::optional<int> failed_;
};

} // namespace hpgmg
