// SPDX-License-Identifier: BSD-3-Clause
// A solver on a plate, with each way to exchange borders. All must come to the same bits.
#include <algorithm>
#include <array>
#include <chrono>
#include <cstdio>
#include <stdexcept>

#include "mpi/plate.hpp"
#include "mpi/ways.hpp"

namespace benchmark {

namespace {

// Rows of parts, and as close to a square as the number of processes allows.
std::vector<decomposition> decompositions_of(int processes) {
    std::vector<decomposition> result{{1, processes}};
    for (int across = 2; across * across <= processes; ++across)
        if (processes % across == 0) {
            result.resize(1);
            result.push_back({across, processes / across});
        }
    return result;
}

std::string in_words(const decomposition& parts) {
    return "jacobi " + std::to_string(parts.across) + " x " + std::to_string(parts.down);
}

class solver {
public:
    solver(comparison& of, const decomposition& parts)
        : of_(of), parts_(parts), until_{of.chosen.steps}, plate_(parts, of.all.index(), of.chosen.points) {}

    row measure(const way& one) {
        const std::size_t border_bytes = static_cast<std::size_t>(of_.chosen.points) * sizeof(double);
        row result = of_.row_of(one, in_words(parts_), border_bytes);
        const std::size_t bytes = plate::border_bytes(of_.chosen.points);
        if (one.is_by_ranks()) {
            const auto borders = allocate<double>(bytes / sizeof(double));
            result.ranks = std::min(of_.chosen.points, of_.chosen.ranks > 0 ? of_.chosen.ranks : usual_ranks());
            repeat(one, result, borders.get(), [&] { return plate_.run_by_ranks(of_.runtime, until_, result.ranks); });
            return result;
        }
        std::vector<common::route> routes;
        for (const edge over : all_edges)
            if (const int peer = neighbour(over); peer >= 0) routes.push_back({peer, border_bytes, border_bytes});
        line exchanges(of_, one, bytes, routes);
        result.library = exchanges.library();
        repeat(one, result, reinterpret_cast<double*>(exchanges.memory()), [&] { return run(exchanges); });
        return result;
    }

    // Throws if the ways differ.
    std::string checksum() const {
        for (const auto& [name, sum] : checksums_)
            if (sum != checksums_.front().second)
                throw std::runtime_error(in_words(parts_) + ": results differ: " + checksums_.front().first + " " +
                                         checksums_.front().second + ", " + name + " " + sum);
        return checksums_.empty() ? std::string() : checksums_.front().second;
    }

private:
    static constexpr std::array<edge, edges> all_edges{above, below, left, right};

    int neighbour(edge over) const { return parts_.neighbour(of_.all.index(), over); }
    // Enough threads to keep the memory busy.
    int usual_ranks() const { return by_backend(4 * of_.multiprocessors, 4); }

    // What goes over the edges after a step that has written the arrays of this parity.
    std::vector<common::message> borders(int parity) const {
        const part_of_plate& part = plate_.part();
        const std::size_t bytes = part.length() * sizeof(double);
        std::vector<common::message> result;
        for (const edge over : all_edges) {
            const int peer = neighbour(over);
            if (peer < 0) continue;
            const auto there = static_cast<std::size_t>(part.in(parity, opposite(over)) - part.borders[0]);
            result.push_back(
                {peer, part.out(parity, over), bytes, there * sizeof(double), part.in(parity, over), bytes});
        }
        return result;
    }

    outcome run(line& exchanges) {
        const std::array<std::vector<common::message>, 2> messages{borders(0), borders(1)};
        exchanges.meet();
        const auto start = std::chrono::steady_clock::now();
        outcome result;
        for (bool goes_on = true; goes_on && result.steps < until_.steps; ++result.steps) {
            const bool looks = until_.looks_after(result.steps);
            plate_.step(result.steps, looks, exchanges.stream());
            exchanges.bring(messages[static_cast<std::size_t>(1 - result.steps % 2)]);
            if (looks) goes_on = of_.all.largest(plate_.change(exchanges.stream())) > until_.change;
        }
        exchanges.finish();
        result.microseconds =
            std::chrono::duration<double, std::micro>(std::chrono::steady_clock::now() - start).count();
        return result;
    }

    template <class Run>
    void repeat(const way& one, row& result, double* borders, const Run& run_once) {
        const int batches = of_.chosen.common.batches > 0 ? of_.chosen.common.batches : by_backend(5, 2);
        std::vector<double> samples;
        for (int batch = -1; batch < batches; ++batch) {
            plate_.begin(borders);
            of_.runtime.barrier();
            const outcome seen = run_once();
            std::uint64_t sum = 0;
            for (const std::uint64_t each : of_.all.gather(plate_.checksum(seen.steps), "checksums")) sum += each;
            std::array<char, 64> text{};
            std::snprintf(text.data(), text.size(), "%016llx after %d steps", static_cast<unsigned long long>(sum),
                          seen.steps);
            checksums_.emplace_back(one.name, text.data());
            if (batch >= 0) samples.push_back(seen.microseconds / seen.steps);
        }
        result.value = measure::summarise(samples);
    }

    comparison& of_;
    decomposition parts_;
    stop_rule until_;
    plate plate_;
    std::vector<std::pair<std::string, std::string>> checksums_; // by way
};

} // namespace

void measure_jacobi(comparison& of) {
    for (const decomposition& parts : decompositions_of(of.all.count())) {
        solver plate_solver(of, parts);
        for (const way& one : of.ways()) {
            row result = of.row_of(one, in_words(parts), 0);
            try {
                if (of.all.count() < 2) throw no_way("takes two processes or more: mpirun -n 2 dcuda-bench mpi");
                result = plate_solver.measure(one);
            } catch (const no_way& reason) {
                result.missing = reason.what();
            }
            of.rows.push_back(result);
        }
        if (const std::string sum = plate_solver.checksum(); !sum.empty())
            of.checksums.emplace_back(in_words(parts), sum);
    }
}

} // namespace benchmark
