// SPDX-License-Identifier: BSD-3-Clause
// What one process has seen of one run: read from its device and its host, sent to process 0, written there.
#pragma once

#include "dcuda/detail/protocol/protocol.hpp"
#include "energy/energy_meter.hpp"
#include "energy/run_energy.hpp"
#include "support/wire.hpp"
#include "trace/host_track.hpp"

#include <cstdint>
#include <map>
#include <string>
#include <vector>

namespace dcuda {

// The host's clock less the device's at two times.
struct clock_relation {
    std::uint64_t begin_ns = 0, end_ns = 0; // on the device's clock
    std::int64_t begin_offset = 0, end_offset = 0;

    std::int64_t host_time(std::uint64_t device_ns) const {
        double share = 0;
        if (end_ns > begin_ns)
            share = (static_cast<double>(device_ns) - static_cast<double>(begin_ns)) /
                    static_cast<double>(end_ns - begin_ns);
        return static_cast<std::int64_t>(device_ns) + begin_offset +
               static_cast<std::int64_t>(share * static_cast<double>(end_offset - begin_offset));
    }
};

struct process_profile {
    struct shape {
        std::int32_t process;
        std::int32_t run; // from 1
        std::int32_t first_rank;
        std::int32_t ranks;
        std::uint64_t begin_ns, end_ns; // of the kernel, on the host's clock
        double kernel_ms;
        std::uint64_t ring_commands; // most that the host has found at once
        std::uint64_t host_drops;
        clock_relation clocks;
    };
    shape about{};
    std::string failure;                                    // why the run ended early
    std::string missing;                                    // why the device's part is not here
    std::vector<detail::rank_counters> counters{};          // by rank
    std::vector<detail::wait_record> waits{};               // by rank; of a run that failed
    std::vector<std::vector<detail::trace_event>> events{}; // by rank, oldest first; empty if the run is only counted
    std::map<std::uint64_t, std::string> names{};           // of ranges, by their address
    std::vector<host_event> host_events{};
    run_energy energy{};
    std::vector<power_sample> power{}; // of the device

    std::string encode() const {
        support::wire_writer writer;
        writer.put(about);
        writer.put(std::string_view(failure));
        writer.put(std::string_view(missing));
        writer.put(counters);
        writer.put(waits);
        writer.put(events.size());
        for (const auto& rank : events) writer.put(rank);
        writer.put(names.size());
        for (const auto& [address, text] : names) {
            writer.put(address);
            writer.put(std::string_view(text));
        }
        writer.put(host_events);
        put_energy(writer, energy);
        writer.put(power);
        return writer.bytes();
    }

    static process_profile decode(std::string_view bytes) {
        support::wire_reader from(bytes);
        process_profile result;
        result.about = from.get<shape>();
        result.failure = from.get_text();
        result.missing = from.get_text();
        result.counters = from.get_vector<detail::rank_counters>();
        result.waits = from.get_vector<detail::wait_record>();
        result.events.resize(from.get<std::size_t>());
        for (auto& rank : result.events) rank = from.get_vector<detail::trace_event>();
        for (std::size_t left = from.get<std::size_t>(); left != 0; --left) {
            const auto address = from.get<std::uint64_t>();
            result.names[address] = from.get_text();
        }
        result.host_events = from.get_vector<host_event>();
        result.energy = get_energy(from);
        result.power = from.get_vector<power_sample>();
        return result;
    }
};

} // namespace dcuda
