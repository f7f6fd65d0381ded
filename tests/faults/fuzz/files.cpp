// SPDX-License-Identifier: BSD-3-Clause
// Files that users give.
#include "dcuda_run/host_list.hpp"
#include "dcuda_run/io.hpp"
#include "sparse/labels.hpp"
#include "sparse/matrix.hpp"
#include "sparse/matrix_market.hpp"
#include "stencil/pgm.hpp"
#include "target.hpp"

#include <cstdlib>
#include <numeric>
#include <stdexcept>

namespace dcuda::fuzz {

namespace {

const std::string name = "input";

} // namespace

void matrix_market(std::string_view input) {
    try {
        const sparse::entry_list read = sparse::parse_matrix_market(input, name);
        for (const auto& each : read.entries)
            if (each.row < 0 || each.row >= read.rows || each.column < 0 || each.column >= read.columns) std::abort();
        if (read.rows < 5000) read.block({0, read.rows}, {0, read.columns});
    } catch (const std::runtime_error&) { // which names the line and what is wrong there
    }
}

void labels(std::string_view input) {
    try {
        sparse::parse_labels(input, name);
    } catch (const std::runtime_error&) {
    }
}

void pgm(std::string_view input) {
    try {
        const stencil::gray_map map = stencil::parse_pgm(input, name);
        if (map.samples.size() != static_cast<std::size_t>(map.width) * static_cast<std::size_t>(map.height))
            std::abort();
        if (stencil::parse_pgm(stencil::format_pgm(map, "a comment"), name).samples != map.samples) std::abort();
    } catch (const std::runtime_error&) {
    }
}

void host_list(std::string_view input) {
    const std::string text(input);
    try {
        launch::parse_hosts(text);
    } catch (const launch::start_error&) {
    }
    try {
        const auto hosts = launch::parse_host_file(text, name);
        const int count = 1 + static_cast<int>(input.size() % 50);
        const std::vector<int> counts = launch::lay_out(hosts, count);
        if (std::accumulate(counts.begin(), counts.end(), 0) != count) std::abort();
    } catch (const launch::start_error&) {
    }
}

} // namespace dcuda::fuzz
