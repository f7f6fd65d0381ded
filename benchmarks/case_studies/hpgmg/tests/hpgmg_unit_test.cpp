// SPDX-License-Identifier: BSD-3-Clause
// The serial reference against published results, and each part by what defines it.
#include "decomposition.hpp"
#include "reference.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <numeric>

using namespace hpgmg;

namespace {

template <class Action>
void for_each_cell(const region& cells, const Action& action) {
    for (int i = cells.first[0]; i < cells.last[0]; ++i)
        for (int j = cells.first[1]; j < cells.last[1]; ++j)
            for (int k = cells.first[2]; k < cells.last[2]; ++k) action(i, j, k);
}

// A cube of cells with ghost cells.
struct field {
    int side;
    layout in{cube(side, ghost_layers)};
    std::vector<double> values = std::vector<double>(static_cast<std::size_t>(in.stored.cells()));

    double& at(int i, int j, int k) { return values[static_cast<std::size_t>(in.place(i, j, k))]; }
    void fill_ghosts(ghosts order) {
        for_each_cell(in.stored,
                      [&](int i, int j, int k) { at(i, j, k) = continued(values.data(), in, side, order, i, j, k); });
    }
    double image(const tables& of, int i, int j, int k) const {
        return apply(values.data(), of.low_faces(), in.place(i, j, k), in.stride(0), in.stride(1),
                     inverse_square(side));
    }
};

// The average of x^n (1 - x)^m over cell `at`: the integral's difference by its primitive.
double average(int side, int at, double (*primitive)(double)) {
    return (primitive((at + 1.0) / side) - primitive(double(at) / side)) * side;
}

TEST(Operator, IsExactForPolynomialsOfDegreeFour) {
    // u = x (1 - x) times y (1 - y), constant along z, beta = 1: -laplace u = 2 y (1 - y) + 2 x (1 - x).
    constexpr int side = 12;
    const auto bow = [](double x) { return x * x / 2.0 - x * x * x / 3.0; };
    field u{side};
    for_each_cell(cube(side),
                  [&](int i, int j, int k) { u.at(i, j, k) = average(side, i, bow) * average(side, j, bow); });
    u.fill_ghosts(ghosts::quartic);
    tables of;
    for (std::vector<double>& beta : of.beta) beta.assign(u.values.size(), 1.0);
    for_each_cell(grow(cube(side), -2), [&](int i, int j, int k) {
        EXPECT_NEAR(u.image(of, i, j, k), 2.0 * (average(side, i, bow) + average(side, j, bow)), 1e-11);
    });
    // u = x^4 - x in one dimension: -u'' = -12 x^2. Ghost cells at its ends are as exact.
    for_each_cell(cube(side), [&](int i, int j, int k) {
        u.at(i, j, k) = average(side, i, [](double x) { return x * x * x * x * x / 5.0 - x * x / 2.0; });
    });
    u.fill_ghosts(ghosts::quartic);
    for_each_cell(grow(cube(side), -2), [&](int i, int j, int k) {
        const double expected = average(side, i, [](double x) { return -4.0 * x * x * x; });
        EXPECT_NEAR(u.image(of, i, j, k), expected, 1e-10);
        EXPECT_NEAR(u.image(of, 0, j, k), average(side, 0, [](double x) { return -4.0 * x * x * x; }), 1e-10);
        EXPECT_NEAR(u.image(of, side - 1, j, k), average(side, side - 1, [](double x) { return -4.0 * x * x * x; }),
                    1e-10);
    });
}

// The definition: A applied to each colour, ghost cells included.
TEST(Diagonal, IsThatOfTheOperatorAndPositive) {
    for (const level_shape shape : {level_shape{8, 1}, {4, 2}, {2, 3}, {3, 1}, {2, 1}}) {
        const int side = shape.side(), period = std::min(4, side);
        field u{side};
        const tables of = make_tables(problem(side, 1.0), shape, 0, u.in);
        std::vector<double> diagonal(u.values.size()), others(u.values.size());
        for_each_cell(cube(period), [&](int a, int b, int c) {
            for_each_cell(cube(side), [&](int i, int j, int k) {
                u.at(i, j, k) = i % period == a && j % period == b && k % period == c ? 1.0 : 0.0;
            });
            u.fill_ghosts(order_of(shape.box_side));
            for_each_cell(cube(side), [&](int i, int j, int k) {
                const auto at = static_cast<std::size_t>(u.in.place(i, j, k));
                if (u.values[at] == 1.0)
                    diagonal[at] = u.image(of, i, j, k);
                else
                    others[at] += std::abs(u.image(of, i, j, k));
            });
        });
        double lambda = 0.0;
        for_each_cell(cube(side), [&](int i, int j, int k) {
            const auto at = static_cast<std::size_t>(u.in.place(i, j, k));
            EXPECT_GT(diagonal[at], 0.0);
            EXPECT_NEAR(of.inverse_diagonal[at] * diagonal[at], 1.0, 1e-12);
            lambda = std::max(lambda, 1.0 + others[at] / diagonal[at]);
        });
        EXPECT_NEAR(of.lambda, lambda, 1e-12);
    }
}

TEST(Interpolation, IsUndoneByRestriction) {
    constexpr int side = 6;
    field coarse{side};
    for (std::size_t i = 0; i < coarse.values.size(); ++i) coarse.values[i] = std::sin(double(i));
    for_each_cell(cube(side), [&](int i, int j, int k) {
        const double* const c = coarse.values.data();
        EXPECT_NEAR(
            restricted(i, j, k, [&](int x, int y, int z) { return interpolate<of_v_cycle>(c, coarse.in, x, y, z); }),
            coarse.at(i, j, k), 1e-14);
        EXPECT_NEAR(
            restricted(i, j, k, [&](int x, int y, int z) { return interpolate<of_f_cycle>(c, coarse.in, x, y, z); }),
            coarse.at(i, j, k), 1e-14);
    });
}

TEST(Restriction, KeepsTheSumOfTheSource) {
    constexpr int side = 16;
    const problem of(side, 1.0);
    double fine = 0.0, coarse = 0.0, size = 0.0;
    for_each_cell(cube(side), [&](int i, int j, int k) {
        fine += of.source(i, j, k) / 8.0;
        size += std::abs(of.source(i, j, k));
    });
    for_each_cell(cube(side / 2), [&](int i, int j, int k) {
        coarse += restricted(i, j, k, [&](int x, int y, int z) { return of.source(x, y, z); });
    });
    EXPECT_NEAR(coarse, fine, 1e-14 * size);
}

std::vector<std::pair<int, int>> sides_of(level_shape finest) {
    std::vector<std::pair<int, int>> sides;
    for (const level_shape& level : coarsen(finest)) sides.emplace_back(level.side(), level.box_side);
    return sides;
}

TEST(Levels, FollowTheRuleOfCoarsening) {
    using pairs = std::vector<std::pair<int, int>>;
    EXPECT_EQ(sides_of({64, 4}), (pairs{{256, 64}, {128, 32}, {64, 16}, {32, 8}, {16, 8}, {8, 8}, {4, 4}, {2, 2}}));
    EXPECT_EQ(sides_of({16, 3}), (pairs{{48, 16}, {24, 8}, {12, 4}, {6, 2}, {3, 3}}));
    EXPECT_EQ(sides_of({16, 11}), (pairs{{176, 16}, {88, 8}, {44, 4}, {22, 2}, {11, 11}}));
    EXPECT_EQ(sides_of({16, 1}), (pairs{{16, 16}, {8, 8}, {4, 4}, {2, 2}}));
    EXPECT_THROW(coarsen({16, 13}), std::runtime_error);
}

TEST(Levels, TakeTheLargestGridThatCanBeCoarsened) {
    EXPECT_EQ(choose_finest(16, 16), (level_shape{16, 2}));
    EXPECT_EQ(choose_finest(16, 64), (level_shape{16, 4}));
    EXPECT_EQ(choose_finest(16, 26), (level_shape{16, 2}));
    EXPECT_EQ(choose_finest(16, 13LL * 13 * 13), (level_shape{16, 12}));
    EXPECT_EQ(choose_finest(16, 1), (level_shape{16, 1}));
}

struct cut_case {
    level_shape finest;
    int devices, ranks;
};
constexpr cut_case cuts[] = {{{16, 2}, 1, 8}, {{16, 2}, 2, 8},  {{16, 3}, 3, 5},
                             {{16, 2}, 4, 3}, {{16, 1}, 1, 64}, {{16, 4}, 8, 8}};

TEST(Decomposition, GivesEachCellToOneRank) {
    for (const auto& [finest, devices, ranks] : cuts) {
        const decomposition cut(coarsen(finest), devices, ranks);
        for (int number = 0; number < cut.levels(); ++number) {
            const int side = cut.level(number).side();
            field owners{side};
            for (int rank = 0; rank < devices * ranks; ++rank)
                for_each_cell(cut.brick(number, rank), [&](int i, int j, int k) { ++owners.at(i, j, k); });
            for_each_cell(cube(side), [&](int i, int j, int k) { EXPECT_EQ(owners.at(i, j, k), 1.0); });
        }
    }
}

// The notifications of a route, counted at both ends.
void expect_all_are_awaited(const decomposition& cut, int ranks, int from_level, int to_level,
                            const std::vector<share>& senders, const std::vector<share>& receivers, route share::*sent,
                            route share::*awaited) {
    SCOPED_TRACE(std::to_string(from_level) + " to " + std::to_string(to_level));
    std::vector<int> arrive(static_cast<std::size_t>(ranks));
    for (const share& sender : senders)
        for (const std::vector<int>* list : {&(sender.*sent).far, &(sender.*sent).near})
            for (const int rank : *list) ++arrive[static_cast<std::size_t>(rank)];
    for (int rank = 0; rank < ranks; ++rank) {
        EXPECT_EQ(arrive[static_cast<std::size_t>(rank)],
                  (receivers[static_cast<std::size_t>(rank)].*awaited).expected);
        if (cut.brick(to_level, rank).empty()) {
            EXPECT_EQ(arrive[static_cast<std::size_t>(rank)], 0);
        }
    }
}

TEST(Decomposition, ExpectsWhatIsSent) {
    for (const auto& [finest, devices, ranks] : cuts) {
        const decomposition cut(coarsen(finest), devices, ranks);
        std::vector<std::vector<share>> shares;
        for (int number = 0; number < cut.levels(); ++number) {
            std::vector<share>& all = shares.emplace_back();
            for (int rank = 0; rank < devices * ranks; ++rank) all.push_back(cut.share_of(number, rank));
        }
        for (int number = 0; number < cut.levels(); ++number) {
            const auto& own = shares[static_cast<std::size_t>(number)];
            expect_all_are_awaited(cut, devices * ranks, number, number, own, own, &share::exchange, &share::exchange);
            if (number == 0) continue;
            const auto& finer = shares[static_cast<std::size_t>(number - 1)];
            expect_all_are_awaited(cut, devices * ranks, number - 1, number, finer, own, &share::to_coarse,
                                   &share::to_coarse);
            expect_all_are_awaited(cut, devices * ranks, number, number - 1, own, finer, &share::to_fine,
                                   &share::to_fine);
        }
    }
}

// What a device gets of a level for a sweep: each cell once, all across its faces and edges, none of its own.
TEST(Decomposition, PutsEachGhostCellOnce) {
    for (const auto& [finest, devices, ranks] : cuts) {
        const decomposition cut(coarsen(finest), devices, ranks);
        for (int device = 0; device < devices; ++device) {
            const layout in = cut.stored(0, device);
            std::vector<int> puts(static_cast<std::size_t>(in.stored.cells()));
            for (int rank = 0; rank < devices * ranks; ++rank)
                for (const parcel& one : cut.share_of(0, rank).exchange.parcels) {
                    if (one.target != device * ranks) continue;
                    for (int i = 0; i < one.extent[0]; ++i)
                        for (int j = 0; j < one.extent[1]; ++j)
                            for (int k = 0; k < one.extent[2]; ++k)
                                ++puts[static_cast<std::size_t>(one.destination + i * one.there[0] + j * one.there[1] +
                                                                k)];
                }
            const region own = cut.owned(0, device), with_boundary = cut.with_ghosts(0, own);
            for_each_cell(in.stored, [&](int i, int j, int k) {
                const int at[3] = {i, j, k};
                int beyond = 0; // dimensions in which it is another device's
                for (int d = 0; d < 3; ++d)
                    beyond += at[d] < with_boundary.first[d] || at[d] >= with_boundary.last[d] ? 1 : 0;
                EXPECT_EQ(puts[static_cast<std::size_t>(in.place(i, j, k))], beyond == 1 || beyond == 2 ? 1 : 0);
            });
        }
    }
}

// Sections have each cell of a device once, and each ghost cell of the boundary beside them. Those that A reads come
// first: the pieces of the boundary.
TEST(Decomposition, SectionsHaveEachCellAndGhostCellOnce) {
    for (const auto& [finest, devices, ranks] : cuts) {
        const decomposition cut(coarsen(finest), devices, ranks);
        for (int number = 0; number < cut.levels(); ++number)
            for (int device = 0; device < devices; ++device) {
                const region own = cut.owned(number, device);
                if (own.empty()) continue;
                const layout in = cut.stored(number, device);
                const auto cells = static_cast<std::size_t>(in.stored.cells());
                std::vector<int> found(cells), found_early(cells), all(cells), read(cells);
                const auto count = [&](std::vector<int>& counts, const region& counted) {
                    for_each_cell(counted,
                                  [&](int i, int j, int k) { ++counts[static_cast<std::size_t>(in.place(i, j, k))]; });
                };
                for (int rank = device * ranks; rank < (device + 1) * ranks; ++rank)
                    for (const section& one : cut.share_of(number, rank).sections) {
                        count(found, one.cells);
                        for (std::size_t n = 0; n < one.ghosts.size(); ++n) {
                            const auto at = static_cast<std::size_t>(one.ghosts[n].place);
                            ++found[at];
                            found_early[at] += static_cast<int>(n) < one.read_by_a ? 1 : 0;
                        }
                    }
                count(all, cut.with_ghosts(number, own));
                const int side = cut.level(number).side();
                for (int piece = 0; piece < pieces_of_boundary; ++piece)
                    count(read, piece_of_boundary(own, side, touched_faces(own, side), piece));
                EXPECT_EQ(found, all);
                EXPECT_EQ(found_early, read);
            }
    }
}

TEST(Decomposition, TellsOfTooFewCells) {
    const auto levels = coarsen({16, 1});
    EXPECT_THROW(decomposition(levels, 5, 1), std::runtime_error);
    EXPECT_THROW(decomposition(levels, 1, 65), std::runtime_error);
    EXPECT_THROW(decomposition(levels, 2, 33), std::runtime_error);
    EXPECT_EQ(decomposition(levels, 1, 9).used_ranks(), 8); // of 4 units a side
}

TEST(Decomposition, LeavesCoarseLevelsToOneRank) {
    const auto levels = coarsen({16, 2}); // 32, 16, 8, 4, 2 cells a side
    const decomposition usual(levels, 1, 16), wide(levels, 1, 16, 8);
    EXPECT_EQ(usual.ranks_with_cells(2), 4);
    EXPECT_EQ(wide.ranks_with_cells(1), 16);
    EXPECT_EQ(wide.ranks_with_cells(2), 1);
    EXPECT_EQ(wide.brick(2, 0).cells(), 8 * 8 * 8);
    EXPECT_EQ(decomposition(levels, 1, 16, 16).ranks_with_cells(1), 1);
}

TEST(Decomposition, TellsTheLargestBrick) {
    EXPECT_EQ(decomposition(coarsen({16, 2}), 1, 8).largest_brick(), 16 * 16 * 16);
    EXPECT_EQ(decomposition(coarsen({16, 2}), 3, 2).largest_brick(), 12 * 16 * 32);
    EXPECT_EQ(decomposition(coarsen({256, 8}), 1, 1).largest_brick(), std::int64_t{1} << 33); // above an int
}

struct published {
    level_shape shape;
    double norm, residual, error, order;
};

// The norm's digits are of runs on 2 to 8 GPUs.
constexpr double digits = 1e-8;
constexpr published table[] = {
    {{16, 2}, 8.412949740634e-04, 9.615951595954e-04, 2.741524561805e-05, 1.966},
    {{16, 3}, 1.981469376950e-04, 2.103418030531e-04, 7.296474457e-06, 2.327},
    {{32, 2}, 6.934041112538e-05, 7.171390380e-05, 2.889820931068e-06, 3.247},
    {{32, 3}, 2.011373303668e-05, 2.041725882390e-05, 6.892753755560e-07, 3.404},
};

// max|u_2h - restrict(u_h)| of the solutions on a level and on the next coarser one.
double error_between(const std::vector<double>& fine, const std::vector<double>& coarse, int side) {
    double result = 0.0;
    for_each_cell(cube(side / 2), [&](int i, int j, int k) {
        const double mean = restricted(
            i, j, k, [&](int x, int y, int z) { return fine[static_cast<std::size_t>((x * side + y) * side + z)]; });
        result = std::max(result, std::abs(coarse[static_cast<std::size_t>((i * side / 2 + j) * side / 2 + k)] - mean));
    });
    return result;
}

TEST(Reference, GivesThePublishedResiduals) {
    for (const published& row : table) {
        const int side = row.shape.side();
        SCOPED_TRACE(side);
        serial_solver solver(row.shape, smoother::red_black);
        const double residual = solver.solve();
        const std::vector<double> finest = solver.solution();
        EXPECT_NEAR(residual, row.residual, digits * row.residual);
        const problem of(side, 1.0);
        double source = 0.0;
        for_each_cell(cube(side),
                      [&](int i, int j, int k) { source = std::max(source, std::abs(of.source(i, j, k))); });
        EXPECT_NEAR(residual * source, row.norm, digits * row.norm);
        // Coarser problems are solved each on its own.
        solver.solve(1);
        const std::vector<double> half_side = solver.solution(1);
        solver.solve(2);
        const double error = error_between(finest, half_side, side),
                     coarser = error_between(half_side, solver.solution(2), side / 2);
        EXPECT_NEAR(error, row.error, digits * row.error);
        EXPECT_NEAR(std::log2(coarser / error), row.order, 0.0006);
    }
}

TEST(Reference, SolvesCoarserProblemsOnTheirOwn) {
    serial_solver from_32({16, 2}, smoother::red_black), from_64({32, 2}, smoother::red_black);
    EXPECT_NEAR(from_32.solve(1), 4.100446295609e-03, digits * 4e-3);
    EXPECT_NEAR(from_32.solve(2), 4.130925627080e-03, digits * 4e-3);
    EXPECT_NEAR(from_64.solve(1), 9.623268051668e-04, digits * 9e-4);
}

TEST(Reference, ImprovesByVCycles) {
    serial_solver of_64({32, 2}, smoother::red_black);
    of_64.solve();
    const std::vector<double> u = of_64.solution();
    EXPECT_NEAR(*std::max_element(u.begin(), u.end()), 2.153060748976e-03, 1e-14);
    EXPECT_NEAR(*std::min_element(u.begin(), u.end()), -3.069588121298e-03, 1e-14);
    const double sum = std::accumulate(u.begin(), u.end(), 0.0, [](double a, double b) { return a + std::abs(b); });
    EXPECT_NEAR(sum, 81.59916101710, 1e-9);
    // What is left is the difference of large numbers: the later, the fewer digits are the same.
    EXPECT_NEAR(of_64.improve(), 1.026010907e-06, 1e-8 * 1e-06);
    EXPECT_NEAR(of_64.improve(), 1.498618031e-08, 1e-6 * 1e-08);
    EXPECT_NEAR(of_64.improve(), 2.288183746e-10, 1e-4 * 2e-10);
    serial_solver of_32({16, 2}, smoother::red_black);
    of_32.solve();
    EXPECT_NEAR(of_32.improve(), 4.982358461e-06, 1e-8 * 5e-06);
    EXPECT_NEAR(of_32.improve(), 4.837129443e-08, 1e-6 * 5e-08);
}

TEST(Reference, SmoothsByChebyshevPolynomials) {
    serial_solver of_32({16, 2}, smoother::chebyshev), of_64({32, 2}, smoother::chebyshev);
    EXPECT_NEAR(of_32.solve(), 3.149857930587e-04, digits * 3e-4);
    EXPECT_NEAR(of_32.lambda(0), 2.223793917728, 1e-11);
    EXPECT_NEAR(of_64.solve(), 1.993707182872e-04, digits * 2e-4);
}

TEST(Reference, NamesTheLevelWhoseResidualIsNoNumber) {
    serial_solver sound({16, 1}, smoother::red_black), broken({16, 1}, smoother::red_black, 1e200);
    sound.solve();
    EXPECT_FALSE(sound.failed_level());
    broken.solve();
    EXPECT_EQ(broken.failed_level(), broken.bottom()); // whose dot products are too large
}

} // namespace
