// SPDX-License-Identifier: BSD-3-Clause
#include "listener.hpp"

#include <algorithm>
#include <arpa/inet.h>
#include <cstdlib>
#include <cstring>
#include <fmt/format.h>
#include <ifaddrs.h>
#include <memory>
#include <net/if.h>
#include <netdb.h>
#include <netinet/in.h>
#include <sstream>
#include <sys/socket.h>

namespace launch {

namespace {

struct local_address {
    std::string interface, text;
    bool loopback = false;
    sockaddr_storage address{};
    socklen_t bytes = 0;
};

std::string text_of(const sockaddr* address) {
    char text[INET6_ADDRSTRLEN] = "";
    if (address->sa_family == AF_INET)
        inet_ntop(AF_INET, &reinterpret_cast<const sockaddr_in*>(address)->sin_addr, text, sizeof text);
    else if (address->sa_family == AF_INET6)
        inet_ntop(AF_INET6, &reinterpret_cast<const sockaddr_in6*>(address)->sin6_addr, text, sizeof text);
    return text;
}

// Of interfaces that are up; without IPv6 addresses that mean something on one link only.
std::vector<local_address> local_addresses() {
    ifaddrs* first = nullptr;
    if (getifaddrs(&first) != 0) fail_errno("cannot list the network interfaces");
    const std::unique_ptr<ifaddrs, decltype(&freeifaddrs)> owner(first, freeifaddrs);
    std::vector<local_address> result;
    for (const ifaddrs* each = first; each; each = each->ifa_next) {
        if (!each->ifa_addr || !(each->ifa_flags & IFF_UP)) continue;
        const int family = each->ifa_addr->sa_family;
        if (family != AF_INET && family != AF_INET6) continue;
        if (family == AF_INET6 &&
            IN6_IS_ADDR_LINKLOCAL(&reinterpret_cast<const sockaddr_in6*>(each->ifa_addr)->sin6_addr))
            continue;
        local_address address{each->ifa_name, text_of(each->ifa_addr), (each->ifa_flags & IFF_LOOPBACK) != 0, {}, 0};
        address.bytes = family == AF_INET ? sizeof(sockaddr_in) : sizeof(sockaddr_in6);
        std::memcpy(&address.address, each->ifa_addr, address.bytes);
        result.push_back(address);
    }
    std::stable_sort(result.begin(), result.end(), [](const auto& a, const auto& b) {
        return a.address.ss_family == AF_INET && b.address.ss_family != AF_INET;
    });
    return result;
}

std::string listed(const std::vector<local_address>& addresses) {
    std::string result;
    for (const auto& each : addresses)
        result += fmt::format("{}{} {}", result.empty() ? "" : ", ", each.interface, each.text);
    return result.empty() ? "none" : result;
}

std::vector<std::string> meanings(const std::string& host) {
    addrinfo hints{}, *first = nullptr;
    hints.ai_socktype = SOCK_STREAM;
    std::vector<std::string> result;
    if (getaddrinfo(host.c_str(), nullptr, &hints, &first) != 0) return result;
    for (const addrinfo* each = first; each; each = each->ai_next) result.push_back(text_of(each->ai_addr));
    freeaddrinfo(first);
    return result;
}

std::string address_that_ssh_came_to() {
    const char* connection = std::getenv("SSH_CONNECTION"); // client's address and port, ours and port
    std::istringstream words(connection ? connection : "");
    std::string address;
    for (int i = 0; i < 3; ++i) words >> address;
    return words ? address : "";
}

local_address choose(const std::string& host, const std::string& interface) {
    auto addresses = local_addresses();
    if (!interface.empty()) {
        for (const auto& each : addresses)
            if (interface == each.interface || interface == each.text) return each;
        throw start_error(EXIT_FAILURE,
                          fmt::format("--interface {}: there is none of this name or address; there are {}", interface,
                                      listed(addresses)));
    }
    addresses.erase(std::remove_if(addresses.begin(), addresses.end(), [](const auto& each) { return each.loopback; }),
                    addresses.end());
    auto names = meanings(host);
    names.push_back(address_that_ssh_came_to());
    for (const auto& name : names)
        for (const auto& each : addresses)
            if (each.text == name) return each;
    // IPv4 comes first, and an interface may have both.
    const auto version_4 = std::count_if(addresses.begin(), addresses.end(),
                                         [](const auto& each) { return each.address.ss_family == AF_INET; });
    if (version_4 == 1 || addresses.size() == 1) return addresses[0];
    throw start_error(EXIT_FAILURE,
                      fmt::format("cannot tell by which address the other hosts reach this one, which has "
                                  "{}; say --interface NAME or --interface ADDRESS",
                                  listed(addresses)));
}

} // namespace

listener listen_for_others(const std::string& host, const std::string& interface) {
    local_address chosen = choose(host, interface);
    auto* address = reinterpret_cast<sockaddr*>(&chosen.address);
    unique_fd socket(::socket(address->sa_family, SOCK_STREAM | SOCK_CLOEXEC, 0));
    // The job may listen here again while connections that came before its first process accepts any still exist;
    // they have what the socket had then.
    const int enabled = 1;
    setsockopt(socket.get(), SOL_SOCKET, SO_REUSEADDR, &enabled, sizeof enabled);
    // No port is given, so the system chooses one.
    if (!socket || bind(socket.get(), address, chosen.bytes) != 0 || listen(socket.get(), SOMAXCONN) != 0 ||
        getsockname(socket.get(), address, &chosen.bytes) != 0)
        fail_errno(fmt::format("cannot listen on {} ({})", chosen.text, chosen.interface));
    const bool version_6 = address->sa_family == AF_INET6;
    const int port = ntohs(version_6 ? reinterpret_cast<sockaddr_in6*>(address)->sin6_port
                                     : reinterpret_cast<sockaddr_in*>(address)->sin_port);
    return {std::move(socket), fmt::format(fmt::runtime(version_6 ? "[{}]:{}" : "{}:{}"), chosen.text, port)};
}

} // namespace launch
