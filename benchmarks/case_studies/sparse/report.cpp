// SPDX-License-Identifier: BSD-3-Clause
#include "report.hpp"

#include <algorithm>
#include <cmath>
#include <numeric>

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "common/times.hpp"
#include "common/wording.hpp"
#include "dcuda/config.hpp"

namespace sparse {

using common::counted;
using common::duration;
using common::grouped;

namespace {

std::string subject(const matrix_options& chosen) {
    return chosen.matrix.empty() ? fmt::format("a random matrix (density {}, seed {})", chosen.density, chosen.seed)
                                 : chosen.matrix;
}

bool exchanges_known(const report& about) {
    return !about.exchange_milliseconds.empty() && about.exchange_milliseconds.front() > 0.0;
}

// The devices, ranks and messages; `step` is what traffic counts.
std::string layout_in_words(const report& about, const matrix_options& chosen, const traffic& moved, const char* step) {
    const decomposition& whole = about.whole;
    if (!chosen.has_ranks())
        return fmt::format("on {} x {} devices ({} backend), kernels of {}, {} per row; {}\n", whole.devices.rows,
                           whole.devices.columns, about.backend, counted(about.threads, "thread"),
                           counted(about.team, "thread"), about.carrier);
    std::string text =
        fmt::format("on {} x {} devices ({} backend) with {} of {} each, at most {} per rank{}, {} per row\n",
                    whole.devices.rows, whole.devices.columns, about.backend, counted(whole.ranks_per_device, "rank"),
                    counted(about.threads, "thread"), counted(whole.rows_of({0, 0}, 0).count(), "row"),
                    about.on_chip ? ", kept in shared memory" : "", counted(about.team, "thread"));
    text += fmt::format("in one {} {} notified puts, {} of them between devices, {} B\n", step, grouped(moved.puts),
                        grouped(moved.puts_between_devices), grouped(moved.bytes_between_devices));
    if (!about.carrier.empty()) text += fmt::format("by {}\n", about.carrier);
    return text;
}

double products_per_second(const report& about, int steps) {
    const double seconds = common::seconds_per_run(about.milliseconds).median;
    return seconds > 0.0 ? static_cast<double>(about.entries) * steps / seconds : 0.0;
}

// A product and an addition for each entry.
std::string times_and_speed(const report& about, int steps, const char* step) {
    std::string text = common::times_in_words(about.milliseconds, steps, step) +
                       fmt::format("; {:.4g} GFLOP/s\n", 2e-9 * products_per_second(about, steps));
    if (exchanges_known(about))
        text += fmt::format("exchanges alone: {} per {}\n",
                            duration(common::seconds_per_run(about.exchange_milliseconds).median / std::max(1, steps)),
                            step);
    return text;
}

std::string verdict_in_words(const report& about, std::size_t elements) {
    const verdict& v = *about.verified;
    if (v.equal())
        return fmt::format(
            "verified: all {} elements equal the serial reference to the last bit (it took {} on one core)\n",
            grouped(elements), duration(v.reference_seconds));
    if (v.worst.equal())
        return "WRONG: the vector equals the serial reference, but eigenvalue, residual or number of iterations do "
               "not\n";
    return fmt::format("WRONG: {} of {} elements differ from the serial reference, by up to {:.3g}; the first is "
                       "number {}\n",
                       grouped(v.worst.differing), grouped(elements), v.worst.largest, v.worst.first);
}

nlohmann::ordered_json common_json(const char* program, const report& about, const matrix_options& chosen,
                                   const traffic& moved) {
    const decomposition& whole = about.whole;
    nlohmann::ordered_json json = {
        {"program", program},
        {"version", DCUDA_VERSION_STRING},
        {"backend", about.backend},
        {"model", chosen.model},
        {"matrix", chosen.matrix.empty() ? nlohmann::ordered_json() : nlohmann::ordered_json(chosen.matrix)},
        {"rows", whole.rows},
        {"columns", whole.columns},
        {"entries", about.entries},
        {"seed", chosen.seed},
        {"devices", whole.devices.devices()},
        {"grid_rows", whole.devices.rows},
        {"grid_columns", whole.devices.columns},
        {"ranks_per_device", whole.ranks_per_device},
        {"ranks", whole.devices.devices() * whole.ranks_per_device},
        {"threads_per_rank", about.threads},
        {"threads_per_row", about.team},
    };
    if (chosen.has_ranks()) {
        json["entries_in"] = about.on_chip ? "shared" : "device";
        json["puts"] = moved.puts;
        json["puts_between_devices"] = moved.puts_between_devices;
        json["bytes_between_devices"] = moved.bytes_between_devices;
    }
    if (!about.carrier.empty()) json["carrier"] = about.carrier;
    if (chosen.matrix.empty()) json["density"] = chosen.density;
    return json;
}

void add_results(nlohmann::ordered_json& json, const report& about, int steps, const char* time_name) {
    json["repeat"] = about.milliseconds.size();
    json[time_name] = common::times_as_json(about.milliseconds, steps);
    json["joules"] = about.energy.as_json();
    if (exchanges_known(about))
        json[fmt::format("exchanges_alone_{}", std::string(time_name).substr(5))] =
            1e6 * common::seconds_per_run(about.exchange_milliseconds).median / std::max(1, steps);
    json["gflop_per_second"] = 2e-9 * products_per_second(about, steps);
    json["verification"] = nullptr;
    if (about.verified)
        json["verification"] = {{"equal", about.verified->equal()},
                                {"differing_elements", about.verified->worst.differing},
                                {"largest_difference", about.verified->worst.largest},
                                {"reference_ms", about.verified->reference_seconds * 1e3}};
}

const char* name_of(outcome state) {
    switch (state) {
    case outcome::enough:
        return "all iterations";
    case outcome::converged:
        return "converged";
    case outcome::vanished:
        return "vanished";
    case outcome::overflowed:
        return "overflowed";
    default:
        return "none";
    }
}

} // namespace

traffic traffic_per_product(const decomposition& whole) {
    const grid& devices = whole.devices;
    const long down = long{devices.rows - 1} * devices.columns, along = long{devices.columns - 1} * devices.rows;
    traffic result;
    result.puts = result.puts_between_devices = (down + along) * whole.ranks_per_device;
    result.bytes_between_devices = static_cast<long long>(sizeof(double)) *
                                   ((devices.rows - 1LL) * whole.columns + (devices.columns - 1LL) * whole.rows);
    return result;
}

traffic traffic_per_iteration(const decomposition& whole) {
    const grid& devices = whole.devices;
    traffic result = traffic_per_product(whole);
    const auto add_between = [&](long puts, std::size_t bytes) {
        result.puts += puts;
        result.puts_between_devices += puts;
        result.bytes_between_devices += puts * static_cast<long long>(bytes);
    };
    // The transposition, and the sums that devices tell all others.
    const int ranks = whole.ranks_per_device;
    for (int part = 0; part < devices.rows * ranks; ++part)
        for_each_overlap(whole.of_result().of_rank(part), whole.of_vector(), [&](int owner, range overlap) {
            if (devices.device_at({part / ranks, 0}) == devices.device_at({0, owner / ranks})) return;
            add_between(1, static_cast<std::size_t>(overlap.count()) * sizeof(double));
        });
    const long others = devices.devices() - 1;
    add_between(devices.rows * others, sizeof(double));
    add_between(devices.columns * others, sizeof(check));
    return result;
}

std::string in_words(const report& about, const spmv_options& chosen) {
    const decomposition& whole = about.whole;
    std::string text =
        fmt::format("spmv: multiplied {}, {} x {} with {} entries, {}\n", subject(chosen), grouped(whole.rows),
                    grouped(whole.columns), grouped(about.entries), counted(chosen.repetitions, "time"));
    text += layout_in_words(about, chosen, traffic_per_product(whole), "repetition");
    text += times_and_speed(about, chosen.repetitions, "repetition");
    if (about.verified) text += verdict_in_words(about, static_cast<std::size_t>(whole.rows));
    return text;
}

std::string as_json(const report& about, const spmv_options& chosen) {
    nlohmann::ordered_json json = common_json("spmv", about, chosen, traffic_per_product(about.whole));
    json["repetitions"] = chosen.repetitions;
    add_results(json, about, chosen.repetitions, "time_per_repetition_us");
    return json.dump(2) + "\n";
}

std::vector<ranked> rank_rows(const std::vector<double>& vector, const std::vector<std::string>& labels, int count) {
    std::vector<int> order(vector.size());
    std::iota(order.begin(), order.end(), 0);
    const auto share = [&](int row) { return std::abs(vector[static_cast<std::size_t>(row)]); };
    const auto kept = std::min(order.begin() + std::min<std::ptrdiff_t>(count, std::ssize(order)), order.end());
    std::partial_sort(order.begin(), kept, order.end(),
                      [&](int a, int b) { return share(a) != share(b) ? share(a) > share(b) : a < b; });
    std::vector<ranked> result;
    for (auto row = order.begin(); row != kept; ++row)
        result.push_back(
            {*row, labels.empty() ? std::to_string(*row + 1) : labels[static_cast<std::size_t>(*row)], share(*row)});
    return result;
}

std::string failure_of(const discovery& seen, const power_options& chosen) {
    const findings& found = seen.found;
    switch (seen.told.state) {
    case outcome::vanished:
        return fmt::format("no dominant eigenvalue: after {} the vector is zero. Either all eigenvalues are, or the "
                           "entries are so small that their squares are",
                           counted(seen.told.iterations, "product"));
    case outcome::overflowed:
        return fmt::format("after {} the square of the vector's length is no longer a finite number: scale the matrix "
                           "down",
                           counted(seen.told.iterations, "product"));
    case outcome::enough:
        if (chosen.tolerance == 0.0) return {};
        // A vector that still approaches an eigenvector needs time; one that does not, has none to approach.
        if (found.residual > 0.5 * found.residual_halfway)
            return fmt::format("no dominant eigenvalue: after {} the residual is {:.3g} of the product's length, and "
                               "it was {:.3g} halfway. The largest eigenvalues are equally large, or nearly, such as l "
                               "and -l or a complex pair",
                               counted(seen.told.iterations, "iteration"), found.residual, found.residual_halfway);
        return fmt::format("not yet an eigenvalue: after {} the residual is {:.3g} of the product's length, and it was "
                           "{:.3g} halfway: raise --iterations or --tolerance, which is {:.3g}",
                           counted(seen.told.iterations, "iteration"), found.residual, found.residual_halfway,
                           chosen.tolerance);
    default:
        return {};
    }
}

std::string failure_of_second(const discovery& second, double apart, const power_options& chosen) {
    const std::string failure = failure_of(second, chosen);
    if (!failure.empty()) return "from a second start: " + failure;
    // Both vectors are as near to an eigenvector as the residual, over the distance to the next eigenvalue, says.
    if (apart <= std::sqrt(chosen.tolerance)) return {};
    return fmt::format("no dominant eigenvalue: two starts lead to eigenvectors of {:#.10g} that are {:.3g} "
                       "apart, so that several belong to the largest eigenvalue",
                       second.found.eigenvalue, apart);
}

std::string in_words(const report& about, const power_options& chosen, const discovery& seen) {
    const decomposition& whole = about.whole;
    const int iterations = seen.told.iterations;
    std::string text =
        fmt::format("power_iteration: iterated {}, {} x {} with {} entries, {}\n", subject(chosen), grouped(whole.rows),
                    grouped(whole.columns), grouped(about.entries), counted(iterations, "time"));
    text += layout_in_words(about, chosen, traffic_per_iteration(whole), "iteration");
    text += times_and_speed(about, iterations, "iteration");
    text += fmt::format("{}: {:#.10g}, with a residual of {:.2g} of it\n",
                        chosen.tolerance > 0.0 ? "dominant eigenvalue" : "estimate of the dominant eigenvalue",
                        seen.found.eigenvalue, seen.found.residual);
    if (about.verified) text += verdict_in_words(about, static_cast<std::size_t>(whole.rows));
    if (seen.top.empty()) return text;
    text += chosen.labels.empty() ? "rows with the largest elements of the eigenvector:\n" : "most central:\n";
    for (std::size_t i = 0; i < seen.top.size(); ++i)
        text += fmt::format("{:4} {} {:.6f}\n", i + 1, seen.top[i].label, seen.top[i].share);
    return text;
}

std::string as_json(const report& about, const power_options& chosen, const discovery& seen) {
    nlohmann::ordered_json json = common_json("power_iteration", about, chosen, traffic_per_iteration(about.whole));
    json["most_iterations"] = chosen.iterations;
    json["tolerance"] = chosen.tolerance;
    json["iterations"] = seen.told.iterations;
    json["outcome"] = name_of(seen.told.state);
    json["eigenvalue"] = seen.found.eigenvalue;
    json["residual"] = seen.found.residual;
    json["top"] = nlohmann::ordered_json::array();
    for (const ranked& r : seen.top)
        json["top"].push_back({{"row", r.row + 1}, {"label", r.label}, {"element", r.share}});
    add_results(json, about, seen.told.iterations, "time_per_iteration_us");
    return json.dump(2) + "\n";
}

} // namespace sparse
