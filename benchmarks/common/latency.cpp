#include "common/latency.hpp"

#include <algorithm>
#include <fstream>
#include <sstream>
#include <stdexcept>
#include <string_view>

#include <CLI/CLI.hpp>
#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "dcuda/config.hpp"

namespace benchmark {

namespace {

using json = nlohmann::ordered_json;

constexpr int default_rounds = DCUDA_BACKEND_CUDA ? 1000 : 100;
constexpr int default_batches = DCUDA_BACKEND_CUDA ? 20 : 10;

// Returned as text: CLI11 shows it with the option's name.
std::string check_size(const std::string& text) {
    std::size_t value = 0;
    const bool fits = CLI::detail::lexical_cast(text, value) && value >= 4 && value <= (std::size_t{1} << 30);
    if (fits && value % 4 == 0) return {};
    return fmt::format("{} is not a payload: a multiple of 4 B, up to 1 GiB", text);
}

std::string check_threads(const std::string& text) {
    int value = 0;
    if (CLI::detail::lexical_cast(text, value) && value >= 32 && value <= 1024 && value % 32 == 0) return {};
    return fmt::format("{} is not a number of threads: a multiple of 32, up to 1024", text);
}

// What the project promises for NVIDIA H200 GPUs joined by NVLink, in microseconds.
struct bound {
    std::string_view path, operation;
    std::size_t bytes;
    double us;
};
constexpr bound bounds[] = {
    {"same device", "put_notify", 4, 1.3},
    {"peer", "put_notify", 4, 2.2},
    {"peer", "notify", 0, 1.6},
};

std::optional<double> bound_of(const row& of) {
    if (!DCUDA_BACKEND_CUDA) return std::nullopt;
    for (const bound& candidate : bounds)
        if (candidate.path == of.path && candidate.operation == of.operation && candidate.bytes == of.bytes)
            return candidate.us;
    return std::nullopt;
}

const row* find_like(const std::vector<row>& rows, const row& wanted) {
    const auto found = std::find_if(rows.begin(), rows.end(), [&](const row& candidate) {
        return candidate.path == wanted.path && candidate.operation == wanted.operation &&
               candidate.bytes == wanted.bytes && candidate.threads == wanted.threads;
    });
    return found == rows.end() ? nullptr : &*found;
}

json to_json(const measure::summary& us) {
    return {{"median", us.median},
            {"low", us.low},
            {"high", us.high},
            {"interval", us.confident ? "95 % confidence" : "smallest and largest"}};
}

json to_json(const row& of) {
    return {{"path", of.path},
            {"operation", of.operation},
            {"bytes", of.bytes},
            {"threads", of.threads},
            {"us", to_json(of.us)}};
}

} // namespace

bool asks_for_help(int argc, char** argv) {
    return std::any_of(argv + 1, argv + argc,
                       [](std::string_view argument) { return argument == "-h" || argument == "--help"; });
}

command_line parse_command_line(int argc, char** argv, const std::string& program, const std::string& description) {
    options chosen;
    chosen.rounds = default_rounds;
    chosen.batches = default_batches;
    CLI::App app(description, program);
    const CLI::Range at_least_one(1, 1'000'000);
    app.add_option("--sizes", chosen.sizes, "payload bytes, such as 4,64,1024")
        ->delimiter(',')
        ->check(check_size)
        ->capture_default_str();
    app.add_option("--threads", chosen.threads, "threads of a rank, such as 32,128,256")
        ->delimiter(',')
        ->check(check_threads)
        ->capture_default_str();
    app.add_option("--rounds", chosen.rounds, "round trips of a batch")->check(at_least_one)->capture_default_str();
    app.add_option("--batches", chosen.batches, "batches, after one to warm up")
        ->check(at_least_one)
        ->capture_default_str();
    app.add_option("--json", chosen.json, "write the results to this file");
    app.add_option("--commit", chosen.commit, "commit of the sources, for the record")->envname("DCUDA_COMMIT");
    app.add_flag("--csv", chosen.csv, "print comma-separated values instead of a table");
    if (program == "notify_latency")
        app.add_option("--rival", chosen.rival, "show the results that nvshmem_latency wrote to this file beside ours")
            ->check(CLI::ExistingFile);

    command_line result;
    try {
        app.parse(argc, argv);
    } catch (const CLI::ParseError& reason) {
        std::ostringstream out;
        std::ostringstream err;
        result.status = app.exit(reason, out, err);
        result.text = out.str() + err.str();
        return result;
    }
    result.chosen = chosen;
    return result;
}

measure::summary one_way_us(const std::vector<std::uint64_t>& batch_ns, int rounds) {
    std::vector<double> samples;
    for (const std::uint64_t ns : batch_ns) samples.push_back(static_cast<double>(ns) * 1e-3 / (2.0 * rounds));
    return measure::summarise(std::move(samples));
}

void require_right(const mistake& wrong, const row& where) {
    if (wrong.count == 0) return;
    throw std::runtime_error(
        fmt::format("{}, {} of {} B, {} threads: {} words of the payload were wrong; the first, word {} in round {} of "
                    "batch {}, was {:#010x} instead of {:#010x}",
                    where.path, where.operation, where.bytes, where.threads, wrong.count, wrong.word, wrong.round,
                    wrong.batch, wrong.seen, wrong.expected));
}

json to_json(const std::vector<row>& rows) {
    json list = json::array();
    for (const row& one : rows) list.push_back(to_json(one));
    return list;
}

json to_json(const options& chosen) {
    return {{"sizes", chosen.sizes},
            {"threads", chosen.threads},
            {"rounds", chosen.rounds},
            {"batches", chosen.batches},
            {"warm_up_batches", 1}};
}

std::vector<row> read_rows(const std::string& path) {
    std::ifstream file(path);
    if (!file) throw std::runtime_error("cannot read " + path);
    std::vector<row> rows;
    try {
        const json record = json::parse(file);
        for (const json& one : record.at("rows")) {
            const json& us = one.at("us");
            rows.push_back({one.at("path"),
                            one.at("operation"),
                            one.at("bytes"),
                            one.at("threads"),
                            {us.at("median"), us.at("low"), us.at("high"), us.at("interval") == "95 % confidence"}});
        }
    } catch (const json::exception& reason) {
        throw std::runtime_error(path + " is not a file of nvshmem_latency: " + reason.what());
    }
    return rows;
}

std::string format_table(const std::vector<row>& ours, const std::vector<row>& rival, const options& chosen) {
    const bool confident = std::all_of(ours.begin(), ours.end(), [](const row& one) { return one.us.confident; });
    std::string text =
        chosen.csv ? "path,operation,bytes,threads,dcuda_us,low_us,high_us,nvshmem_us,nvshmem_by_dcuda,bound_us\n"
                   : fmt::format("{:<12} {:<10} {:>6} {:>8} {:>9}  {:<18} {:>11} {:>8}  {}\n", "path", "operation",
                                 "bytes", "threads", "dCUDA us", confident ? "95 % interval" : "range", "NVSHMEM us",
                                 "ratio", "expected us");
    for (const row& one : ours) {
        const row* const theirs = find_like(rival, one);
        const std::optional<double> limit = bound_of(one);
        if (chosen.csv) {
            text += fmt::format("{},{},{},{},{:.4f},{:.4f},{:.4f},{},{},{}\n", one.path, one.operation, one.bytes,
                                one.threads, one.us.median, one.us.low, one.us.high,
                                theirs ? fmt::format("{:.4f}", theirs->us.median) : "",
                                theirs ? fmt::format("{:.3f}", theirs->us.median / one.us.median) : "",
                                limit ? fmt::format("{:.2f}", *limit) : "");
            continue;
        }
        text +=
            fmt::format("{:<12} {:<10} {:>6} {:>8} {:>9.3f}  {:<18} {:>11} {:>8}  {}\n", one.path, one.operation,
                        one.bytes, one.threads, one.us.median, fmt::format("{:.3f} to {:.3f}", one.us.low, one.us.high),
                        theirs ? fmt::format("{:.3f}", theirs->us.median) : "-",
                        theirs ? fmt::format("{:.2f}", theirs->us.median / one.us.median) : "-",
                        limit ? fmt::format("<= {:.1f}, {}", *limit, one.us.median <= *limit ? "met" : "MISSED") : "-");
    }
    return text;
}

json describe(const std::vector<row>& ours, const std::vector<row>& rival) {
    json list = json::array();
    for (const row& one : ours) {
        json entry = to_json(one);
        if (const row* const theirs = find_like(rival, one)) {
            entry["nvshmem_us"] = to_json(theirs->us);
            entry["nvshmem_by_dcuda"] = theirs->us.median / one.us.median;
        }
        if (const std::optional<double> limit = bound_of(one)) {
            entry["bound_us"] = *limit;
            entry["bound_met"] = one.us.median <= *limit;
        }
        list.push_back(entry);
    }
    return list;
}

void write_json(const std::string& path, const json& content) {
    std::ofstream file(path);
    file << content.dump(2) << '\n';
    if (!file.flush()) throw std::runtime_error("cannot write " + path);
}

} // namespace benchmark
