// The program's options.
#pragma once

#include <optional>
#include <string>

namespace stencil {

// What one put carries of a border plane of x by z.
enum class message { level, plane };
const char* to_string(message kind);

struct options {
    int nx = 128;
    int ny = 320; // per device
    int nz = 0;   // 0: 26, or 1 with an input map
    std::string input;
    int iterations = 200;
    double coefficient = 0.025;
    message message_kind = message::level;
    int threads = 0; // per rank; 0: as suits the backend
    int ranks = 0;   // per device; 0: as many as are co-resident, but no more than rows
    int repeat = 1;
    double progress = 2.0; // seconds between two lines; 0: none
    bool verify = false;
    std::string output;
    std::string png;
    std::string json;

    // Whether process 0 needs the whole result.
    bool needs_result() const { return verify || !output.empty() || !png.empty(); }
};

// What the command line leads to: options, or a text to print and the status to exit with.
struct command_line {
    std::optional<options> chosen;
    std::string text;
    int status = 0;
};
command_line parse_command_line(int argc, char** argv);

// Whether the arguments ask for the help text, which needs no device and no other process.
bool asks_for_help(int argc, char** argv);

} // namespace stencil
