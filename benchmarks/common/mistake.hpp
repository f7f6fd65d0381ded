// How a kernel tells the host that data was wrong.
#pragma once

#include <cstdint>

namespace benchmark {

// Words that were not what the other side sent. Zero-initialised by the host.
struct mistake {
    unsigned count; // of wrong words; the rest describes the first
    int batch, round;
    std::uint32_t word, expected, seen;
};

} // namespace benchmark
