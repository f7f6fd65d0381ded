// SPDX-License-Identifier: BSD-3-Clause
// Observed runs, as the host sees them: where the ranks leave what they count and write down, reading it after a run,
// bringing together what all processes have seen, and the files of DCUDA_TRACE and DCUDA_STATS, which process 0 writes.
#pragma once

#include "bootstrap/control.hpp"
#include "dcuda/statistics.hpp"
#include "device/device_access.hpp"
#include "device/settings.hpp"
#include "support/cuda.hpp"
#include "trace/host_track.hpp"
#include "trace/process_profile.hpp"
#include "trace/trace_file.hpp"

#include <functional>
#include <map>
#include <memory>
#include <string>
#include <vector>

namespace dcuda {

class device_state;

// One for all runs of a runtime. Used by one thread.
class profiler {
public:
    // Collective over the processes. Process 0 opens the files; throws error(invalid_argument) on all if it cannot, or
    // if not all were asked for the same.
    profiler(bootstrap::control& control, const settings& chosen, bool several_hosts);

    // Writes the statistics.
    ~profiler();

    profiler(const profiler&) = delete;
    profiler& operator=(const profiler&) = delete;

    // Whether anything was asked for; the same on all processes.
    bool is_asked_for() const { return counts_; }

    // Where the ranks of the next run leave what they see; cleared. All null if that run is not `profiled`.
    detail::profiler_view prepare(int ranks, bool profiled);

    // Around the kernel of an profiled run. The second one reads, brings together and writes, also if the run has
    // failed (`why`); then it throws nothing, and says on standard error what could not be saved.
    void begin_run();
    void end_run(const device_state& state, device_access& link, double kernel_ms, const std::string& why = {});

    // The process is about to end itself, with the kernel still running: saves what it can, alone.
    void save_alone(const device_state& state, device_access& link, const std::string& why);

    // Takes a message of another process's profiler. False: it is none.
    bool receive(int from, const std::string& message);

    // That process is lost: nothing comes from it any more.
    void note_lost(int process) { lost_process_ = process; }

    // A clock command of the device, just taken.
    void note_device_clock(std::uint64_t device_ns);

    // So many commands were found in the ring at once.
    void note_ring(std::uint64_t commands) { ring_commands_ = std::max(ring_commands_, commands); }

    // What the run that ends has cost, and what the device has drawn meanwhile.
    void note_energy(const run_energy& joules, const std::vector<power_sample>& power);

    host_track& host() { return host_; }

    // Of this process's ranks.
    struct statistics statistics() const;

private:
    struct clock_sample {
        std::uint64_t host_ns, device_ns;
    };

    void align_hosts();
    void finish(const std::function<void()>& save);
    process_profile read(const device_state& state, device_access& link, double kernel_ms, const std::string& why);
    void read_device(process_profile& part, const device_state& state, device_access& link);
    clock_relation relate_clocks(const process_profile& part) const;
    std::vector<process_profile> gather(process_profile own);
    template <class Ready>
    bool await_messages(const Ready& ready, bool failed);
    void count(const process_profile& part);
    void write(const std::vector<process_profile>& parts);
    void write_alone(const process_profile& part);
    void write_statistics();

    bootstrap::control& control_;
    bool counts_ = false, traces_ = false;
    const std::string trace_path_, statistics_path_;
    const std::uint32_t wanted_events_;
    std::vector<std::int64_t> clocks_;     // what added to times of process i gives those of process 0
    std::uint64_t origin_ns_ = 0;          // of the timeline, on process 0's clock
    std::unique_ptr<trace_file> trace_;    // process 0
    std::FILE* statistics_file_ = nullptr; // process 0

    int allocated_ranks_ = 0;
    std::uint32_t capacity_ = 0;
    cuda::device_array<detail::rank_counters> counters_;
    cuda::device_array<detail::trace_event> events_;

    bool running_ = false;
    int run_ = 0;
    std::uint64_t begin_ns_ = 0;
    std::vector<clock_sample> clock_samples_;
    std::uint64_t ring_commands_ = 0;
    host_track host_;
    run_energy energy_;
    std::vector<power_sample> power_;

    std::map<int, struct statistics> statistics_; // by process: this one's, in process 0 all
    std::map<int, run_energy> joules_;            // the same, summed over the runs
    std::map<int, std::string> arrived_;          // process 0: by process, the part of this run
    int confirmed_ = 0;                           // the other processes: the last run that process 0 has from here
    int lost_process_ = -1;
};

} // namespace dcuda
