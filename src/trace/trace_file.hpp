// SPDX-License-Identifier: BSD-3-Clause
// The timeline of all processes and runs as one file that Perfetto and chrome://tracing read (the JSON trace event
// format). docs/guide/tracing.md says what is in it.
#pragma once

#include "trace/process_profile.hpp"

#include <cstdio>
#include <memory>
#include <string>
#include <vector>

namespace dcuda {

// Opens a file that `variable` names, empty, for `content` ("timeline"). Throws error(invalid_argument); never waits,
// as a pipe without a reader would make it.
std::FILE* open_output(const std::string& path, const char* content, const char* variable);

// In the process that writes it.
class trace_file {
public:
    // Opens the file, or throws error(invalid_argument). Times are counted from `origin_ns`; `clocks[i]` is added to
    // times of process i.
    trace_file(const std::string& path, std::uint64_t origin_ns, std::vector<std::int64_t> clocks);
    ~trace_file();
    trace_file(const trace_file&) = delete;
    trace_file& operator=(const trace_file&) = delete;

    // Adds a run, of which these processes have told. After each run the file is complete. Throws if it cannot be
    // written; the file then holds the runs before.
    void append(const std::vector<process_profile>& parts);

    // Events of ranks that were overwritten by later ones, over all runs.
    std::uint64_t dropped() const { return dropped_; }

    const std::string& path() const { return path_; }

private:
    struct closer {
        void operator()(std::FILE* file) const { std::fclose(file); }
    };
    class json_writer;
    void write(const std::vector<process_profile>& parts);
    void restore(long end) noexcept;

    std::string path_;
    std::unique_ptr<std::FILE, closer> file_;
    std::uint64_t origin_ns_;
    std::vector<std::int64_t> clocks_;
    long end_ = 0;               // of the events: what closes the file stands behind
    std::vector<bool> is_named_; // by process
    std::uint64_t arrows_ = 0;
    std::uint64_t dropped_ = 0;
    std::string runs_;    // JSON, of what stands behind the events
    std::string closing_; // that, as it was written last
};

} // namespace dcuda
