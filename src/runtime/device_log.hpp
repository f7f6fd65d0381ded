// SPDX-License-Identifier: BSD-3-Clause
// Puts the pieces of log lines that ranks send together and prints whole lines.
#pragma once

#include "dcuda/detail/protocol/protocol.hpp"

#include <string>
#include <vector>

namespace dcuda {

class device_log {
public:
    device_log(std::size_t ranks, int process) : lines_(ranks), process_(process) {}

    // Appends a log command to its rank's line; prints the line if that was its end.
    void take(const detail::command& log);

    // Prints what ranks left unfinished.
    void flush();

private:
    void print(std::string& line);

    std::vector<std::string> lines_;
    int process_;
    bool is_lossy_ = false; // a line could not be printed
};

} // namespace dcuda
