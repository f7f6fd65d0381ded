// SPDX-License-Identifier: BSD-3-Clause
// The hosts that the user names, and how many processes each gets. All throw start_error for what makes no sense.
#pragma once

#include <string>
#include <vector>

namespace launch {

constexpr int max_processes = 65536;

struct host_entry {
    std::string name; // or address of IPv4
    int slots = 0;    // processes that it takes; 0: any number
};

// HOST[:SLOTS],...
std::vector<host_entry> parse_hosts(const std::string& list);

// Lines HOST, HOST:N or HOST slots=N; `path` is for messages.
std::vector<host_entry> parse_host_file(const std::string& contents, const std::string& path);

// Numbers of processes for the hosts: as many as their slots, and the rest evenly over those that have none.
std::vector<int> lay_out(const std::vector<host_entry>& hosts, int count);

} // namespace launch
