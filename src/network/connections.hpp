// SPDX-License-Identifier: BSD-3-Clause
// The connections of this process: over which network each other process is reached, and the ways there, which are made
// when the first message goes there.
#pragma once

#include "bootstrap/control.hpp"
#include "device/settings.hpp"
#include "network/connection.hpp"
#include "trace/host_track.hpp"

#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <vector>

namespace dcuda {

// Whether such a job's connections use MPI, which one thread at a time may use (it is asked for MPI_THREAD_SERIALIZED).
bool uses_mpi(const settings& chosen, const std::vector<bool>& is_remote, const std::vector<bool>& is_near);

// Used by one thread.
class connections {
public:
    // Collective over the processes. `is_remote[i]`: process i is reached over a network only; `is_near[i]`: it is on
    // this host. Opens the transports that are needed. The handler hears of what comes.
    connections(bootstrap::control& control, device_access& link, message_handler& handler, const settings& chosen,
                const std::vector<bool>& is_remote, const std::vector<bool>& is_near, const std::string& local_address);
    ~connections();
    connections(const connections&) = delete;
    connections& operator=(const connections&) = delete;

    // Between these two messages are taken, and their payload is placed. What the networks do is noted on the track,
    // unless it is null. end(): all processes have ended the run.
    void begin(placement& into, host_track* track = nullptr);
    void end();

    // The one to the process. It is made if there is none; messages wait until the other process has answered.
    connection& connect(int process);

    // What another process's connections have posted to this one.
    void receive(int from, const std::string& message);

    // Does what can be done. True if there was something. Throws foreign_arrival for what no process of the job sends.
    bool progress();

    // A run has failed: nobody is waited for at the end.
    void abandon();

    // By process: those that there are.
    const std::map<int, std::unique_ptr<connection>>& all() const { return all_; }

    // Nothing is on its way in any of them.
    bool is_quiet() const;
    // All that this process has sent is with the processes it was for.
    bool is_sent() const;
    // Whether the program may send more: slow receivers slow it down.
    bool has_room() const;

    std::string describe() const; // the transports in use

private:
    void open_network(const std::string& wanted);
    transport::network& network_to(int process) const {
        return *networks_[network_of_[static_cast<std::size_t>(process)]];
    }
    bool take_events(transport::network& from);
    connection& arrived(const transport::network& over, std::uint64_t number);

    bootstrap::control& control_;
    device_access& link_;
    message_handler& handler_;
    const std::size_t ring_bytes_;
    const std::string local_address_;
    std::vector<std::uint8_t> network_of_; // by process
    std::map<int, std::unique_ptr<connection>> all_;
    std::vector<connection*> by_ring_; // numbers of arrivals are those of rings, one ring after the other
    std::map<int, bool> has_connected_, has_answered_; // by process: our network to theirs; theirs to ours
    placement* placement_ = nullptr;
    host_track* track_ = nullptr;
    // Last, so closed first: what closes may still use the connections' memory.
    std::vector<std::unique_ptr<transport::network>> networks_;
};

} // namespace dcuda
