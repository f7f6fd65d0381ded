// What the latency benchmarks share on the host: options, results, and how they are shown.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include <nlohmann/json_fwd.hpp>

#include "common/mistake.hpp"
#include "common/statistics.hpp"

namespace benchmark {

struct options {
    std::vector<std::size_t> sizes{4, 64, 1024, 4096, 65536}; // payload bytes
    std::vector<int> threads{32, 128, 256};                   // of a rank
    int rounds = 0;                                           // of a batch
    int batches = 0;
    std::string json;   // file to write
    std::string rival;  // file of the rival's results
    std::string commit; // of the sources, for the record
    bool csv = false;
};

// How the options were meant: to run, or to end at once with this text and status.
struct command_line {
    std::optional<options> chosen;
    std::string text;
    int status = 0;
};
command_line parse_command_line(int argc, char** argv, const std::string& program, const std::string& description);
bool asks_for_help(int argc, char** argv);

// One measurement: one-way times, in microseconds.
struct row {
    std::string path;      // "same device" or "peer"
    std::string operation; // "notify" or "put_notify"
    std::size_t bytes = 0;
    int threads = 0;
    measure::summary us;
};

// Half of a round trip, of each batch of `rounds` round trips.
measure::summary one_way_us(const std::vector<std::uint64_t>& batch_ns, int rounds);

// Throws if a payload was wrong: `wrong` is what the kernel left of one side.
void require_right(const mistake& wrong, const row& where);

nlohmann::ordered_json to_json(const std::vector<row>& rows);
nlohmann::ordered_json to_json(const options& chosen);

// Reads the rows of a file that nvshmem_latency wrote.
std::vector<row> read_rows(const std::string& path);

// The table that people read, or the same as CSV. The rival's rows stand beside ours where there are such.
std::string format_table(const std::vector<row>& ours, const std::vector<row>& rival, const options& chosen);

// notify_latency's record: where, how, and every row, with the rival's beside it.
nlohmann::ordered_json describe(const std::vector<row>& ours, const std::vector<row>& rival);

void write_json(const std::string& path, const nlohmann::ordered_json& content);

} // namespace benchmark
