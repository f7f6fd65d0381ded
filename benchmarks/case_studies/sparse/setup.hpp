// SPDX-License-Identifier: BSD-3-Clause
// How a matrix comes onto the devices.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "common/deal.hpp"
#include "common/device_buffer.hpp"
#include "common/files.hpp"
#include "common/program.hpp"
#include "common/statistics.hpp"
#include "exchange.hpp"
#include "generator.hpp"
#include "matrix_market.hpp"
#include "options.hpp"
#include "reference.hpp"

namespace sparse {

// The matrix as a process knows it: its device's block; on process 0 also a file's entries.
struct problem {
    decomposition whole; // ranks_per_device comes later
    csr block;
    entry_list file;
    std::int64_t file_entries = 0; // known to all
    random_matrix random;          // if there is no file

    // About as many as a device has, if there are as many everywhere: the same on all processes.
    double usual_entries() const {
        const double all = file_entries > 0 ? static_cast<double>(file_entries)
                                            : random.density * static_cast<double>(whole.rows) * whole.columns;
        return all / whole.devices.devices();
    }

    // On process 0.
    std::int64_t entries(const matrix_options& chosen) const {
        if (!chosen.matrix.empty()) return static_cast<std::int64_t>(file.entries.size());
        std::int64_t result = 0;
        for (int row = 0; row < whole.rows; ++row) result += random.block({row, row + 1}, {0, whole.columns}).entries();
        return result;
    }
    strips all(const matrix_options& chosen) const {
        strips result;
        for (int column = 0; column < whole.devices.columns; ++column) {
            const range columns = whole.columns_at({0, column});
            result.push_back(chosen.matrix.empty() ? random.block({0, whole.rows}, columns)
                                                   : file.block({0, whole.rows}, columns));
        }
        return result;
    }
};

// Hands process 0's part for each device to its process, which knows that it has `count` elements.
template <class Element>
std::vector<Element> deal_parts(common::session& here, const std::vector<std::vector<Element>>& parts,
                                std::size_t count) {
    if (here.job.process_count == 1) return parts[0];
    std::vector<Element> data(here.first() ? 0 : count);
    std::vector<common::piece> pieces(parts.size());
    for (std::size_t device = 0; device < parts.size(); ++device) {
        pieces[device] = {data.size() * sizeof(Element), parts[device].size() * sizeof(Element)};
        data.insert(data.end(), parts[device].begin(), parts[device].end());
    }
    common::deal_out(here.runtime, data, pieces);
    data.resize(here.first() ? parts[0].size() : count); // the first device's part comes first
    return data;
}

// Process 0 hands every device its block of the file's matrix.
inline void deal_matrix(common::session& here, problem& task) {
    const auto devices = static_cast<std::size_t>(here.job.process_count);
    std::vector<std::vector<std::int64_t>> sizes(devices), starts(devices);
    std::vector<std::vector<int>> columns(devices);
    std::vector<std::vector<double>> values(devices);
    for (std::size_t device = 0; here.first() && device < devices; ++device) {
        const place at = task.whole.devices.place_of(static_cast<int>(device));
        csr block = task.file.block(task.whole.rows_at(at), task.whole.columns_at(at));
        sizes[device] = {task.whole.rows, task.whole.columns, std::ssize(task.file.entries), block.entries()};
        starts[device] = std::move(block.starts);
        columns[device] = std::move(block.columns);
        values[device] = std::move(block.values);
    }
    const std::vector<std::int64_t> size = deal_parts(here, sizes, 4);
    task.whole.rows = static_cast<int>(size[0]);
    task.whole.columns = static_cast<int>(size[1]);
    const place at = task.whole.devices.place_of(here.job.process_index);
    task.file_entries = size[2];
    const auto entries = static_cast<std::size_t>(size[3]);
    task.block.starts = deal_parts(here, starts, static_cast<std::size_t>(task.whole.rows_at(at).count()) + 1);
    task.block.columns = deal_parts(here, columns, entries);
    task.block.values = deal_parts(here, values, entries);
}

// `columns` counts without a file. Process 0 reads the file, and calls check(problem), before the others have their
// part.
template <class Check>
problem make_problem(common::session& here, const matrix_options& chosen, int columns, const Check& check) {
    problem result;
    result.whole.devices = choose_grid(chosen.devices, here.job.process_count);
    result.whole.rows = chosen.matrix.empty() ? chosen.whole_rows(here.job.process_count) : 0;
    result.whole.columns = columns > 0 ? columns : result.whole.rows;
    common::do_on_first(here, [&] {
        if (!chosen.json.empty() && chosen.json != "-") common::check_writable(chosen.json);
        if (!chosen.matrix.empty()) {
            result.file = parse_matrix_market(common::read_file(chosen.matrix), chosen.matrix);
            result.whole.rows = result.file.rows;
            result.whole.columns = result.file.columns;
        }
        check(result);
    });
    if (!chosen.matrix.empty()) {
        deal_matrix(here, result);
        return result;
    }
    result.random = {chosen.density, chosen.seed};
    const place at = result.whole.devices.place_of(here.job.process_index);
    result.block = result.random.block(result.whole.rows_at(at), result.whole.columns_at(at));
    return result;
}

// Of a rank's shared memory, for its rows of the matrix: with the rest no more than a kernel gets without asking, and
// the cache keeps enough for the vector.
inline constexpr std::size_t most_bytes_on_chip = 40 * 1024;

// What the ranks' rows take, with room for those that have more than others. 0: they stay in device memory.
inline std::size_t choose_bytes_on_chip(const matrix_options& chosen, const problem& from, int ranks) {
    const bool is_usual = chosen.entries == residence::fitting;
    if (!chosen.has_ranks() || chosen.entries == residence::device || (is_usual && !DCUDA_BACKEND_CUDA)) return 0;
    const auto rows = static_cast<std::size_t>((from.whole.rows_at({0, 0}).count() + ranks - 1) / ranks);
    const auto usual = bytes_of_rows(rows, static_cast<std::size_t>(from.usual_entries() / ranks));
    if (is_usual && usual > most_bytes_on_chip) return 0;
    return std::min(most_bytes_on_chip, (usual + usual / 2 + 256) / 16 * 16);
}

// What suits a program on a GPU. PERF: few ranks, as all of them meet in barriers, and not too many threads, as all of
// a rank's meet in each operation.
struct gpu_shape {
    int threads;
    int ranks_per_multiprocessor;
};

// How ranks are launched; how many there are is decided here, at most one for each row of a device. Without ranks that
// is the number of parts in which sums are added up: of as many elements as there are partial sums.
template <class... Params>
dcuda::launch_config choose_launch(common::session& here, const matrix_options& chosen, problem& from,
                                   void (*kernel)(dcuda::context, Params...), gpu_shape on_gpu) {
    decomposition& whole = from.whole;
    const bool is_gpu = DCUDA_BACKEND_CUDA && chosen.has_ranks();
    const int usual = is_gpu ? on_gpu.threads : common::default_threads;
    const int threads = chosen.threads > 0 ? chosen.threads : usual;
    dcuda::launch_config config{dim3(static_cast<unsigned>(threads)), 0, chosen.ranks};
    const int rows = whole.rows_at({0, 0}).count();
    int parts = chosen.has_ranks() ? rows : (rows + bins - 1) / bins;
    if (is_gpu) parts = std::min(parts, here.multiprocessors() * on_gpu.ranks_per_multiprocessor);
    whole.ranks_per_device = config.ranks_per_device = common::choose_ranks(here, kernel, config, parts);
    config.shared_bytes = choose_bytes_on_chip(chosen, from, config.ranks_per_device);
    try {
        here.runtime.plan(kernel, config);
    } catch (const dcuda::error&) { // so many ranks have not so much
        config.shared_bytes = 0;
    }
    return config;
}

enum class gathered { vector, product };

// Every rank of the first row of devices puts its elements of the vector, or of the first column those of the product,
// to `all`, which holds the whole on process 0 and is not used elsewhere.
__global__ void __launch_bounds__(1024)
    gather(dcuda::context context, task work, gathered vector_kind, int buffer, double* all) {
    __shared__ dcuda::state state;
    dcuda::rank self(context, state);

    const decomposition& whole = work.whole;
    const place at = work.here();
    const int number = self.id(dcuda::device);
    const bool of_vector = vector_kind == gathered::vector;
    const range own = of_vector ? whole.columns_of(at, number) : whole.rows_of(at, number);
    const range of_device = of_vector ? whole.columns_at(at) : whole.rows_at(at);
    const bool has_part = (of_vector ? at.row : at.column) == 0;
    const layout memory = work.places();
    const std::byte* const source = work.memory + (of_vector ? memory.vector(buffer) : memory.product(buffer)) +
                                    bytes_of(own.first - of_device.first);

    // The source of a put lies inside the putting rank's window.
    const bool collects = self.id() == 0;
    const dcuda::window win =
        self.create_window(dcuda::world, collects ? static_cast<void*>(all) : work.memory,
                           collects ? bytes_of(of_vector ? whole.columns : whole.rows) : memory.bytes());
    if (has_part) self.put_notify(win, 0, bytes_of(own.first), bytes_of(own.count()), source, gather_tag);
    if (collects) {
        const int devices = of_vector ? whole.devices.columns : whole.devices.rows;
        self.wait_notifications(gather_tag, devices * whole.ranks_per_device);
    }
    self.free_window(win);
}

// A device's matrix and memory.
class device_part {
public:
    device_part(common::session& here, const matrix_options& chosen, const problem& from,
                const dcuda::launch_config& config, std::size_t board_bytes, int runs)
        : here_(here), config_(config) {
        work_.whole = from.whole;
        work_.device = here.job.process_index;
        work_.board_bytes = board_bytes;
        work_.team = choose_team(chosen.team, static_cast<int>(config.threads.x), DCUDA_BACKEND_CUDA ? row_lanes : 1);
        work_.runs = {runs, chosen.progress};
        work_.on_chip_bytes = config.shared_bytes;

        starts_ = upload(from.block.starts);
        columns_ = upload(from.block.columns);
        values_ = upload(from.block.values);
        work_.matrix = {starts_.data(), columns_.data(), values_.data()};
        const std::vector<std::byte> zeros(work_.places().bytes());
        memory_ = upload(zeros);
        work_.memory = memory_.data();
        if (here.first())
            all_ =
                common::device_buffer<double>(static_cast<std::size_t>(std::max(from.whole.rows, from.whole.columns)));
    }

    const task& work() const { return work_; }

    // One of its runs; the milliseconds that it took.
    template <class... Params>
    double run(void (*kernel)(dcuda::context, task, Params...), const Params&... params) {
        work_.runs.next(measure::seconds_of([&] { here_.runtime.run(kernel, config_, work_, params...); }));
        return here_.runtime.timings().at(0);
    }

    // The part of vector 0 that the device has at the start, if it is of the first row.
    void set_vector(const auto& element) {
        if (work_.here().row > 0) return;
        const range columns = work_.whole.columns_at(work_.here());
        std::vector<double> part;
        for (int column = columns.first; column < columns.last; ++column) part.push_back(element(column));
        write(work_.places().vector(0), part.data(), part.size());
    }

    template <class Element>
    void write(std::size_t offset, const Element* source, std::size_t count) {
        memory_.upload(reinterpret_cast<const std::byte*>(source), count * sizeof(Element), offset);
    }
    // What lies at the start of the memory.
    template <class Element>
    Element read() const {
        Element result;
        memory_.download(reinterpret_cast<std::byte*>(&result), sizeof(Element));
        return result;
    }

    // The whole vector or product on process 0, nothing elsewhere.
    std::vector<double> collect(gathered vector_kind, int buffer) {
        here_.runtime.run(gather, config_, work_, vector_kind, buffer, all_.data());
        std::vector<double> result(all_.count());
        all_.download(result.data(), result.size());
        if (here_.first())
            result.resize(
                static_cast<std::size_t>(vector_kind == gathered::vector ? work_.whole.columns : work_.whole.rows));
        return result;
    }

private:
    template <class Element>
    static common::device_buffer<Element> upload(const std::vector<Element>& data) {
        common::device_buffer<Element> result(data.size());
        result.upload(data.data(), data.size());
        return result;
    }

    common::session& here_;
    dcuda::launch_config config_;
    common::device_buffer<std::int64_t> starts_;
    common::device_buffer<int> columns_;
    common::device_buffer<double> values_;
    common::device_buffer<std::byte> memory_;
    common::device_buffer<double> all_;
    task work_;
};

} // namespace sparse
