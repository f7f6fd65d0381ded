// Puts the pieces of log lines that ranks send together and prints whole lines.
#pragma once

#include "dcuda/detail/protocol.hpp"

#include <string>
#include <vector>

namespace dcuda {

class device_log {
public:
    explicit device_log(std::size_t ranks) : lines_(ranks) {}

    // Appends a log command to its rank's line; prints the line if that was its end.
    void take(const detail::command& log);

    // Prints what ranks left unfinished.
    void flush();

private:
    std::vector<std::string> lines_;
};

} // namespace dcuda
