// SPDX-License-Identifier: BSD-3-Clause
#include "common/record.hpp"

#include <algorithm>
#include <fstream>
#include <stdexcept>

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "common/goals.hpp"
#include "common/machine.hpp"

namespace benchmark {
namespace {

using json = nlohmann::ordered_json;

constexpr const char* interval_name = "95 % confidence";

// Above 1, dCUDA is better.
double ratio(const row& ours, double theirs) {
    const double own = ours.value.median;
    return ours.more_is_better() ? own / theirs : theirs / own;
}

std::optional<goal> goal_of(const row& one, const record& results) {
    if (!has_goals() || !one.library.empty() || !one.measured()) return std::nullopt;
    return find_goal(one, results.processes);
}

json to_json(const row& of, const record& results) {
    json entry = {{"benchmark", of.benchmark}, {"path", of.path},   {"operation", of.operation}, {"bytes", of.bytes},
                  {"threads", of.threads},     {"ranks", of.ranks}, {"beside", of.beside},       {"unit", of.unit}};
    if (!of.library.empty()) entry["library"] = of.library;
    if (!of.measured()) {
        entry["missing"] = of.missing;
        return entry;
    }
    entry["value"] = of.value.median;
    entry["low"] = of.value.low;
    entry["high"] = of.value.high;
    entry["interval"] = of.value.confident ? interval_name : "smallest and largest";
    if (of.host_cores > 0) entry["host_cores"] = of.host_cores;
    for (const rival& other : of.rivals)
        entry["rivals"].push_back({{"name", other.name}, {"value", other.value}, {"ratio", ratio(of, other.value)}});
    if (const auto wanted = goal_of(of, results)) {
        entry["goal"] = {{wanted->at_least ? "at_least" : "at_most", wanted->limit}};
        entry["met"] = wanted->met(of.value.median);
    }
    return entry;
}

row from_json(const json& entry) {
    row result{entry.at("benchmark"), entry.at("path"),  entry.at("operation"), entry.at("bytes"),
               entry.at("threads"),   entry.at("ranks"), entry.at("beside"),    entry.at("unit")};
    result.library = entry.value("library", "");
    result.missing = entry.value("missing", "");
    result.host_cores = entry.value("host_cores", 0.0);
    if (result.measured())
        result.value = {entry.at("value"), entry.at("low"), entry.at("high"), entry.at("interval") == interval_name};
    return result;
}

json parameters_of(const record& results, const options& chosen) {
    json parameters = {{"subcommand", chosen.subcommand}, {"warm_up_batches", 1}};
    if (chosen.rounds > 0) parameters["rounds"] = chosen.rounds;
    if (chosen.batches > 0) parameters["batches"] = chosen.batches;
    for (const auto& [name, value] : results.parameters) parameters[name] = value;
    if (!results.parameters.empty()) return parameters;
    parameters["overlap"] = {{"copy_bytes", chosen.overlap.copy_bytes},
                             {"stream_bytes", chosen.overlap.stream_bytes},
                             {"newton", chosen.overlap.newton},
                             {"fma", chosen.overlap.multiply_add}};
    return parameters;
}

bool same_measurement(const row& a, const row& b) {
    return a.benchmark == b.benchmark && a.path == b.path && a.operation == b.operation && a.bytes == b.bytes &&
           a.beside == b.beside && a.unit == b.unit;
}

std::string goal_in_words(const row& one, const record& results) {
    const auto wanted = goal_of(one, results);
    if (!wanted) return "-";
    return fmt::format("{} {:g}, {}", wanted->at_least ? ">=" : "<=", wanted->limit,
                       wanted->met(one.value.median) ? "met" : "MISSED");
}

// A number of something, or a dash where it says nothing.
std::string count(std::size_t value) { return value == 0 ? "-" : std::to_string(value); }
std::string count(int value) { return count(static_cast<std::size_t>(value)); }

std::string rivals_in_words(const row& one) {
    std::string text;
    for (const rival& other : one.rivals)
        text += fmt::format("{}{} {:.4g} ({:.2f}x)", text.empty() ? "" : "; ", other.name, other.value,
                            ratio(one, other.value));
    return text;
}

// A row of a table: its cells, and what stands in a line of its own if it does not fit beside them.
struct lines_of_row {
    std::vector<std::string> cells;
    std::string rivals;
};

struct column {
    const char* name; // null: the benchmark's
    bool is_number;
};
constexpr column columns[] = {{nullptr, false},    {"operation", false}, {"bytes", true}, {"threads", true},
                              {"ranks", true},     {"waiting", true},    {"value", true}, {"unit", false},
                              {"interval", false}, {"goal", false},      {"cores", true}};
constexpr std::size_t most_columns_of_text = 120; // of a terminal, and of a page

// A line as several if a terminal is not wide enough for it: it breaks between words, and what follows is indented.
std::string folded(std::string line) {
    const std::string indent(8, ' ');
    std::string text;
    while (line.size() > most_columns_of_text) {
        const std::size_t gap = line.find_last_of(' ', most_columns_of_text);
        if (gap == std::string::npos || gap < indent.size()) break;
        text += line.substr(0, gap) + "\n";
        line = indent + line.substr(gap + 1);
    }
    return text + line + "\n";
}

std::string without_blanks_at_end(std::string line) {
    line.erase(line.find_last_not_of(' ') + 1);
    return line;
}

lines_of_row in_cells(const row& one, const record& results) {
    return {{one.path, one.library.empty() ? one.operation : fmt::format("{} ({})", one.operation, one.library),
             count(one.bytes), count(one.threads), count(one.ranks), count(one.beside),
             fmt::format("{:.3f}", one.value.median), one.unit,
             fmt::format("{:.3f} to {:.3f}", one.value.low, one.value.high), goal_in_words(one, results),
             one.host_cores > 0 ? fmt::format("{:.2f}", one.host_cores) : "-"},
            rivals_in_words(one)};
}

// As wide as what is in them; columns in which no row says anything are left out.
std::string in_columns(const std::string& benchmark, const std::vector<lines_of_row>& rows) {
    std::vector<std::string> lines(rows.size());
    std::string title;
    for (std::size_t i = 0; i < std::size(columns); ++i) {
        const auto says_nothing = [&](const lines_of_row& each) { return each.cells[i] == "-"; };
        if (std::all_of(rows.begin(), rows.end(), says_nothing)) continue;
        const std::string name = columns[i].name != nullptr ? columns[i].name : benchmark;
        std::size_t width = name.size();
        for (const lines_of_row& each : rows) width = std::max(width, each.cells[i].size());
        const auto add = [&](std::string& line, const std::string& cell) {
            line += fmt::format(fmt::runtime(columns[i].is_number ? "{}{:>{}}" : "{}{:<{}}"), line.empty() ? "" : " ",
                                cell, width);
        };
        add(title, name);
        for (std::size_t line = 0; line < rows.size(); ++line) add(lines[line], rows[line].cells[i]);
    }
    std::size_t longest = 0;
    for (const lines_of_row& each : rows) longest = std::max(longest, each.rivals.size());
    const bool fits = title.size() + 1 + longest <= most_columns_of_text;
    std::string text = without_blanks_at_end(title + (longest > 0 && fits ? " rivals" : "")) + "\n";
    for (std::size_t i = 0; i < rows.size(); ++i) {
        text += without_blanks_at_end(fits ? lines[i] + " " + rows[i].rivals : lines[i]) + "\n";
        if (!fits && !rows[i].rivals.empty()) text += folded("    rivals: " + rows[i].rivals);
    }
    return text;
}

// As CSV wants a text that may hold commas or quotes.
std::string quoted(const std::string& text) {
    std::string result(1, '"');
    for (const char c : text) {
        if (c == '"') result.push_back(c);
        result.push_back(c);
    }
    result.push_back('"');
    return result;
}

} // namespace

std::vector<row> read_rows(const std::string& path) {
    std::ifstream file(path);
    if (!file) throw std::runtime_error("cannot read " + path);
    std::vector<row> rows;
    try {
        const json content = json::parse(file);
        for (const json& entry : content.at("rows")) rows.push_back(from_json(entry));
    } catch (const json::exception& reason) {
        throw std::runtime_error(path + " is no record of a benchmark: " + reason.what());
    }
    return rows;
}

void place_rivals(std::vector<row>& ours, const std::vector<row>& theirs) {
    std::vector<row> alone;
    for (const row& other : theirs) {
        if (!other.measured()) continue;
        bool placed = false;
        for (row& own : ours) {
            const bool fits = same_measurement(own, other) && own.measured() && own.library.empty() &&
                              (other.threads == 0 || other.threads == own.threads) &&
                              (other.ranks == 0 || other.ranks == own.ranks);
            if (fits) own.rivals.push_back({other.library, other.value.median});
            placed = placed || fits;
        }
        const bool same_benchmark = std::any_of(ours.begin(), ours.end(), [&](const row& own) {
            return own.benchmark == other.benchmark && own.path == other.path && own.measured();
        });
        if (!placed && same_benchmark) alone.push_back(other);
    }
    ours.insert(ours.end(), alone.begin(), alone.end());
}

void add_cost_of_checks(std::vector<row>& ours, const std::vector<row>& unchecked) {
    std::vector<row> costs;
    for (const row& own : ours) {
        const bool is_ours = own.measured() && own.library.empty() && !own.operation.starts_with("raw") &&
                             own.operation != "copy engine";
        if (!is_ours || (own.unit != "us" && own.unit != "GB/s")) continue;
        if (own.benchmark == "host" || own.benchmark == "waiters") continue;
        for (const row& other : unchecked) {
            if (!same_measurement(own, other) || own.threads != other.threads || own.ranks != other.ranks ||
                !other.measured())
                continue;
            const auto percent = [&](double checked, double bare) {
                return 100.0 * ((own.more_is_better() ? bare / checked : checked / bare) - 1.0);
            };
            row cost = own;
            cost.operation += ", cost of checks";
            cost.unit.assign(1, '%');
            cost.rivals.clear();
            const double one = percent(own.value.low, other.value.high), two = percent(own.value.high, other.value.low);
            cost.value = {percent(own.value.median, other.value.median), std::min(one, two), std::max(one, two),
                          own.value.confident && other.value.confident};
            costs.push_back(cost);
        }
    }
    ours.insert(ours.end(), costs.begin(), costs.end());
}

std::string format_table(const record& results, const options& chosen) {
    std::string text = folded(machine_in_words(describe_machine(chosen.commit)));
    text += fmt::format("{} process{}; median of the batches with its 95 % interval (fewer than six: range)\n",
                        results.processes, results.processes == 1 ? "" : "es");
    if (std::any_of(results.rows.begin(), results.rows.end(), [](const row& one) { return !one.rivals.empty(); }))
        text += "rivals with ratio: above 1 dCUDA is better\n";
    std::vector<std::string> missing;
    std::vector<lines_of_row> lines;
    for (std::size_t i = 0; i < results.rows.size(); ++i) {
        const row& one = results.rows[i];
        if (!one.measured()) {
            missing.push_back(
                folded(fmt::format("{}, {}, {}{}{}: not measured: {}", one.benchmark, one.path, one.operation,
                                   one.bytes != 0 ? fmt::format(", {} B", one.bytes) : "",
                                   one.ranks != 0 ? fmt::format(", {} ranks", one.ranks) : "", one.missing)));
            continue;
        }
        lines.push_back(in_cells(one, results));
        const auto next = std::find_if(results.rows.begin() + static_cast<std::ptrdiff_t>(i) + 1, results.rows.end(),
                                       [](const row& later) { return later.measured(); });
        if (next != results.rows.end() && next->benchmark == one.benchmark) continue;
        text += '\n';
        text += in_columns(one.benchmark, lines);
        lines.clear();
    }
    if (!missing.empty()) text += "\n";
    for (const std::string& line : missing) text += line;
    return text;
}

std::string format_csv(const record& results) {
    std::string text =
        "benchmark,path,operation,bytes,threads,ranks,waiting,value,low,high,unit,goal,met,library,host_cores,rivals,"
        "missing\n";
    for (const row& one : results.rows) {
        const auto wanted = goal_of(one, results);
        const auto number = [&](double value) { return one.measured() ? fmt::format("{:.6g}", value) : ""; };
        text += fmt::format("{},{},{},{},{},{},{},{},{},{},{},{},{},{},{},{},{}\n", one.benchmark, quoted(one.path),
                            quoted(one.operation), one.bytes, one.threads, one.ranks, one.beside,
                            number(one.value.median), number(one.value.low), number(one.value.high), one.unit,
                            wanted ? fmt::format("{:g}", wanted->limit) : "",
                            wanted ? (wanted->met(one.value.median) ? "met" : "MISSED") : "", quoted(one.library),
                            one.host_cores > 0 ? fmt::format("{:.3g}", one.host_cores) : "",
                            quoted(rivals_in_words(one)), quoted(one.missing));
    }
    return text;
}

void write_record(const std::string& path, const record& results, const options& chosen) {
    json content = {{"program", results.program}};
    if (!results.version.empty()) content["library"] = results.version;
    content["machine"] = describe_machine(chosen.commit);
    for (const auto& [name, clock] : results.clocks_mhz) content["machine"]["clock_mhz"][name] = clock;
    content["processes"] = results.processes;
    content["parameters"] = parameters_of(results, chosen);
    content["rows"] = json::array();
    for (const row& one : results.rows) content["rows"].push_back(to_json(one, results));
    std::ofstream file(path);
    file << content.dump(2) << '\n';
    if (!file.flush()) throw std::runtime_error("cannot write " + path);
}

} // namespace benchmark
