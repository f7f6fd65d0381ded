// SPDX-License-Identifier: BSD-3-Clause
// What the kernel of ranks finds in its device's memory, beside the arrays.
#pragma once

#include <algorithm>
#include <span>
#include <vector>

#include "dcuda/host.hpp"
#include "findings.hpp"
#include "level_arrays.hpp"
#include "ranks/rank_solver.hpp"

namespace hpgmg {

// A device's routes, in arrays that its ranks walk through.
class route_table {
public:
    device_route add(const route& one) {
        const device_route result{static_cast<int>(parcels_.size()), static_cast<int>(one.parcels.size()),
                                  static_cast<int>(ranks_.size()),   static_cast<int>(one.far.size()),
                                  static_cast<int>(one.near.size()), one.expected};
        parcels_.insert(parcels_.end(), one.parcels.begin(), one.parcels.end());
        ranks_.insert(ranks_.end(), one.far.begin(), one.far.end());
        ranks_.insert(ranks_.end(), one.near.begin(), one.near.end());
        return result;
    }
    const std::vector<parcel>& parcels() const { return parcels_; }
    const std::vector<int>& ranks() const { return ranks_; }

private:
    std::vector<parcel> parcels_;
    std::vector<int> ranks_;
};

class rank_memory {
public:
    // Collective.
    rank_memory(dcuda::runtime& runtime, const options& chosen, const decomposition& cut, const level_arrays& arrays,
                int device, int ranks_per_device)
        : runtime_(runtime), cut_(cut), device_(device) {
        work_.level_count = cut.levels();
        work_.v_cycles = chosen.v_cycles;
        work_.solves = chosen.solves;
        work_.is_chebyshev = chosen.smooths_by == smoother::chebyshev;
        work_.levels = arrays.levels_on_device();
        work_.bottom = arrays.bottom();
        make_shares(ranks_per_device);
        if (chosen.tells_parts) {
            parts_ = common::device_buffer<std::uint64_t>(std::size_t(ranks_per_device) * table_size());
            work_.parts = parts_.data();
        }
        work_.window = runtime_.create_window(arrays.data(), arrays.bytes(), dcuda::window_kind::direct);
    }
    // Collective, when nothing has failed. Then no other process maps the arrays any more.
    void close() { runtime_.free_window(work_.window); }
    rank_memory(const rank_memory&) = delete;
    rank_memory& operator=(const rank_memory&) = delete;

    // To begin a run with.
    task& prepare(const findings_view& found) {
        work_.found = found;
        if (work_.parts != nullptr) parts_.clear();
        return work_;
    }
    // Microseconds of all runs by level and part, the mean of the ranks with cells, on process 0. Collective.
    std::vector<double> part_times() const {
        std::vector<std::uint64_t> all(parts_.count());
        parts_.download(all.data(), all.size());
        std::vector<double> sums(table_size()), mean(table_size());
        const auto ranks = static_cast<std::size_t>(cut_.used_ranks());
        for (std::size_t n = 0; n < ranks * sums.size(); ++n) sums[n % sums.size()] += 1e-3 * double(all[n]);
        for (const std::vector<double>& of_device : runtime_.gather(std::span<const double>(sums)))
            for (std::size_t n = 0; n < mean.size(); ++n)
                mean[n] += of_device[n] / (double(ranks) * double(cut_.devices()));
        return mean;
    }

private:
    std::size_t table_size() const { return static_cast<std::size_t>(cut_.levels()) * part_count; }

    void make_shares(int ranks_per_device) {
        std::vector<device_share> shares;
        std::vector<ghost_cell> ghosts;
        route_table routes;
        for (int rank = 0; rank < ranks_per_device; ++rank)
            for (int number = 0; number < cut_.levels(); ++number) {
                const share one = cut_.share_of(number, device_ * ranks_per_device + rank);
                device_share& next = shares.emplace_back();
                next.brick = one.brick;
                for (const section& each : one.sections) {
                    next.sections[next.section_count++] = {each.cells, static_cast<int>(ghosts.size()), each.read_by_a,
                                                           static_cast<int>(each.ghosts.size())};
                    ghosts.insert(ghosts.end(), each.ghosts.begin(), each.ghosts.end());
                }
                next.exchange = routes.add(one.exchange);
                next.to_coarse = routes.add(one.to_coarse);
                next.to_fine = routes.add(one.to_fine);
            }
        shares_ = on_device(shares);
        ghosts_ = on_device(ghosts);
        parcels_ = on_device(routes.parcels());
        ranks_ = on_device(routes.ranks());
        work_.shares = shares_.data();
        work_.ghosts = ghosts_.data();
        work_.parcels = parcels_.data();
        work_.ranks = ranks_.data();
    }

    dcuda::runtime& runtime_;
    const decomposition& cut_;
    int device_;
    task work_{};
    common::device_buffer<int> ranks_;
    common::device_buffer<std::uint64_t> parts_;
    common::device_buffer<device_share> shares_;
    common::device_buffer<ghost_cell> ghosts_;
    common::device_buffer<parcel> parcels_;
};

} // namespace hpgmg
