// SPDX-License-Identifier: BSD-3-Clause
#include "host_list.hpp"

#include "io.hpp"

#include <algorithm>
#include <fmt/format.h>
#include <sstream>

namespace launch {

namespace {

int parse_slots(const std::string& text, const std::string& location) {
    int slots = 0;
    if (text.empty() || text.size() > 5 || text.find_first_not_of("0123456789") != text.npos ||
        (slots = std::stoi(text)) < 1 || slots > max_processes)
        throw start_error(exit_wrong_use, fmt::format("{}: expected a number of slots from 1 to {}, not '{}'", location,
                                                      max_processes, text));
    return slots;
}

// host or host:slots
host_entry parse_host(const std::string& text, const std::string& location) {
    const auto colon = text.find(':');
    host_entry result{text.substr(0, colon), 0};
    // Launchers would take a dash for an option, and have meanings of their own for other characters.
    constexpr const char* allowed = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789-_.";
    if (result.name.empty() || result.name[0] == '-' || result.name.find_first_not_of(allowed) != text.npos)
        throw start_error(
            exit_wrong_use,
            fmt::format("{}: '{}' is no host[:slots], where a host is a name or an address of IPv4", location, text));
    if (colon != text.npos) result.slots = parse_slots(text.substr(colon + 1), location);
    return result;
}

// A host that is named again has more slots; each name without a number stands for one.
void add_host(std::vector<host_entry>& hosts, const host_entry& more) {
    for (auto& each : hosts) {
        if (each.name != more.name) continue;
        each.slots = std::min(std::max(each.slots, 1) + std::max(more.slots, 1), max_processes);
        return;
    }
    hosts.push_back(more);
}

} // namespace

std::vector<host_entry> parse_hosts(const std::string& list) {
    std::vector<host_entry> hosts;
    std::istringstream text(list);
    for (std::string each; std::getline(text, each, ',');) add_host(hosts, parse_host(each, "--hosts"));
    return hosts;
}

std::vector<host_entry> parse_host_file(const std::string& contents, const std::string& path) {
    std::istringstream file(contents);
    std::vector<host_entry> hosts;
    int number = 0;
    for (std::string line; std::getline(file, line);) {
        const std::string location = fmt::format("{}:{}", path, ++number);
        std::istringstream words(line.substr(0, line.find('#')));
        std::string name, word;
        if (!(words >> name)) continue;
        host_entry entry = parse_host(name, location);
        while (words >> word) {
            if (!word.starts_with("slots="))
                throw start_error(exit_wrong_use,
                                  fmt::format("{}: expected host[:N] or host slots=N, not '{}'", location, word));
            entry.slots = parse_slots(word.substr(6), location);
        }
        add_host(hosts, entry);
    }
    if (hosts.empty()) throw start_error(exit_wrong_use, fmt::format("--hostfile {}: there is no host in it", path));
    return hosts;
}

std::vector<int> lay_out(const std::vector<host_entry>& hosts, int count) {
    std::vector<int> counts;
    int left = count, without_slots = 0;
    for (const auto& each : hosts) {
        counts.push_back(std::min(left, each.slots));
        left -= counts.back();
        without_slots += each.slots == 0;
    }
    if (left > 0 && without_slots == 0)
        throw start_error(exit_wrong_use,
                          fmt::format("{} processes, but the hosts have {} slots; give them more, as in {}:{}", count,
                                      count - left, hosts[0].name, hosts[0].slots + left));
    for (std::size_t i = 0; i < hosts.size(); ++i) {
        if (hosts[i].slots > 0) continue;
        counts[i] = (left + without_slots - 1) / without_slots; // the first get one more
        left -= counts[i];
        --without_slots;
    }
    return counts;
}

} // namespace launch
