// SPDX-License-Identifier: BSD-3-Clause
// Who owns which cells of which level, and what travels between ranks. A rank owns a brick of cells of each level, or
// none. Fine levels are cut over the devices and then over each device's ranks; coarse ones are one device's, of a few
// ranks or of one.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "arithmetic.hpp"
#include "common/partition.hpp"
#include "levels.hpp"

namespace hpgmg {

inline constexpr int least_brick = 4; // cells a side where a level is cut: a boundary's ghost cells are made of so many
inline constexpr int side_of_one_device = 16; // levels of no more cells a side are the first device's
inline constexpr int most_threads = 512;      // of a rank: the kernel's launch bounds

// Some cells of an array, put into the array of the same kind on another device.
struct parcel {
    int target = 0;                             // a rank of that device
    std::ptrdiff_t source = 0, destination = 0; // the first cell's place here and there
    int extent[3] = {};                         // cells
    std::ptrdiff_t here[2] = {}, there[2] = {}; // from slice to slice, from row to row
};

// To whom a rank sends, and how many ranks send to it.
struct route {
    std::vector<parcel> parcels;
    std::vector<int> far, near; // world ranks to notify: of other devices, and of this one
    int expected = 0;
};

// Why cells travel: neighbours on a level read them, or the level is restricted, or interpolated.
enum class way { exchange, to_coarse, to_fine };

// Cells of a brick that are computed together, and the ghost cells of the grid's boundary beside them: first those
// that A reads, then those that interpolation alone reads.
struct section {
    region cells{};
    std::vector<ghost_cell> ghosts;
    int read_by_a = 0; // of the ghost cells
};
inline constexpr int most_sections = 7;

// What a rank does on a level.
struct share {
    region brick{};                // empty: nothing
    std::vector<section> sections; // of it, in turn: outer layers beside another device's cells, and what is left
    route exchange;                // with neighbours across faces and edges
    route to_coarse,
        to_fine; // from this level; `expected` counts who sends to this level from the finer, the coarser one
};

class decomposition {
public:
    // Throws std::runtime_error if there are fewer cells than devices or ranks need. Some ranks may get none: bricks
    // are cut so that sweeps cost least. Coarse levels of no more than `one_rank_side` cells a side are one rank's.
    decomposition(const std::vector<level_shape>& levels, int devices, int ranks_per_device,
                  int one_rank_side = least_brick);

    int levels() const { return static_cast<int>(levels_.size()); }
    const level_shape& level(int number) const { return levels_[static_cast<std::size_t>(number)]; }
    int devices() const { return devices_; }
    bool is_shared(int number) const { return devices_ > 1 && is_divided(number); } // several devices have cells of it
    int used_ranks() const { return ranks_[0] * ranks_[1] * ranks_[2]; } // of each device, on the finest level
    // Cells that a device owns, and the array it has: two layers more, and all of a level that is one device's.
    region owned(int number, int device) const;
    layout stored(int number, int device) const;
    region brick(int number, int rank) const; // of a rank of the world
    std::int64_t largest_brick() const;       // in cells
    int ranks_with_cells(int number) const;   // of a level, on all devices
    // The brick and its share of the boundary's ghost cells.
    region with_ghosts(int number, const region& cells) const;

    share share_of(int number, int rank) const;
    // The cells that a rank sends to another device from a level, with ghost cells of the grid's boundary that are read
    // there. Those that go to_coarse are cells of the next level. Empty: none.
    region sent(way why, int number, int rank, int device) const;

private:
    int device_of(int rank) const { return rank / ranks_per_device_; }
    bool is_divided(int number) const { return number < divided_; }
    common::range owned_along(int number, int dimension, int part) const;
    int parts_of_ranks(int number, int dimension) const;
    std::vector<section> sections_of(int number, int rank) const;
    void add_ghosts(section& one, int number, int device) const;
    void choose_devices();
    void choose_ranks();
    parcel make_parcel(int number, int rank, int device, const region& cells) const;
    void connect(route& by, int rank, int other) const;

    std::vector<level_shape> levels_;
    int devices_, ranks_per_device_, one_rank_side_;
    int grid_[3] = {1, 1, 1};  // of devices
    int ranks_[3] = {1, 1, 1}; // of each
    int divided_ = 1;          // the finest levels, which all devices have a part of
};

} // namespace hpgmg
