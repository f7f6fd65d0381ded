// SPDX-License-Identifier: BSD-3-Clause
#include "bootstrap/tcp.hpp"

#include "support/check.hpp"

#include <algorithm>
#include <arpa/inet.h>
#include <cerrno>
#include <cstring>
#include <fcntl.h>
#include <ifaddrs.h>
#include <memory>
#include <net/if.h>
#include <netdb.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <sys/socket.h>
#include <sys/utsname.h>

namespace dcuda::bootstrap {

namespace {

using support::check_errno;
using support::fail;
using support::require;
using clock = std::chrono::steady_clock;

constexpr std::chrono::seconds attempt_time{5}; // a lost packet must not cost the whole time there is

struct socket_address {
    sockaddr_storage bytes{};
    socklen_t length = sizeof bytes;
    sockaddr* get() { return reinterpret_cast<sockaddr*>(&bytes); }
    const sockaddr* get() const { return reinterpret_cast<const sockaddr*>(&bytes); }
    int family() const { return bytes.ss_family; }
    // The address itself, without port.
    std::string_view raw() const {
        return family() == AF_INET
                   ? std::string_view(
                         reinterpret_cast<const char*>(&reinterpret_cast<const sockaddr_in*>(&bytes)->sin_addr), 4)
                   : std::string_view(
                         reinterpret_cast<const char*>(&reinterpret_cast<const sockaddr_in6*>(&bytes)->sin6_addr), 16);
    }
};

socket_address copy_of(const sockaddr* source, socklen_t length) {
    socket_address result;
    std::memcpy(&result.bytes, source, length);
    result.length = length;
    return result;
}

std::string host_text(const socket_address& address) {
    char text[NI_MAXHOST] = "";
    getnameinfo(address.get(), address.length, text, sizeof text, nullptr, 0, NI_NUMERICHOST);
    return text;
}

bool is_loopback(const socket_address& address) {
    if (address.family() == AF_INET) return address.raw()[0] == 127;
    return IN6_IS_ADDR_LOOPBACK(&reinterpret_cast<const sockaddr_in6*>(&address.bytes)->sin6_addr);
}

bool is_any(const socket_address& address) {
    return std::ranges::all_of(address.raw(), [](char byte) { return byte == 0; });
}

// "host:port" or "[host]:port"
struct endpoint {
    std::string host, port;
};

endpoint split(const std::string& address) {
    const std::size_t colon = address.rfind(':');
    endpoint result;
    if (colon != std::string::npos) result = {address.substr(0, colon), address.substr(colon + 1)};
    if (result.host.starts_with('[') && result.host.ends_with(']'))
        result.host = result.host.substr(1, result.host.size() - 2);
    const bool is_port = !result.port.empty() && result.port.size() <= 5 &&
                         result.port.find_first_not_of("0123456789") == std::string::npos &&
                         std::stoi(result.port) <= 65535;
    require(!result.host.empty() && is_port, error_code::invalid_argument,
            "{}: expected host:port, such as 10.0.0.1:29555 or [fd00::1]:29555", address);
    return result;
}

// What the name stands for. `later` is set if the name service may know it later.
std::vector<socket_address> resolve(const endpoint& target, int flags, std::string& problem, bool& later) {
    addrinfo hints{};
    hints.ai_socktype = SOCK_STREAM;
    hints.ai_flags = AI_NUMERICSERV | flags;
    addrinfo* found = nullptr;
    const int error = getaddrinfo(target.host.c_str(), target.port.c_str(), &hints, &found);
    later = error == EAI_AGAIN;
    if (error != 0) {
        problem = fmt::format("the name of host {} cannot be resolved: {}", target.host, gai_strerror(error));
        return {};
    }
    const std::unique_ptr<addrinfo, decltype(&freeaddrinfo)> owner(found, &freeaddrinfo);
    std::vector<socket_address> result;
    for (const addrinfo* each = found; each; each = each->ai_next)
        result.push_back(copy_of(each->ai_addr, each->ai_addrlen));
    return result;
}

descriptor open_tcp(int family) {
    return descriptor(check_errno(socket(family, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0),
                                  "cannot open a TCP socket", error_code::bootstrap_failure));
}

void set_option(int fd, int level, int option, int value, const char* name) {
    check_errno(setsockopt(fd, level, option, &value, sizeof value), name, error_code::bootstrap_failure);
}

// A port of this host that nobody listens at may be given to the very socket that connects to it.
bool is_connected_to_itself(int fd) {
    socket_address own, peer;
    return getsockname(fd, own.get(), &own.length) == 0 && getpeername(fd, peer.get(), &peer.length) == 0 &&
           own.length == peer.length && std::memcmp(&own.bytes, &peer.bytes, own.length) == 0;
}

// 0, or the errno of the failure.
int connect_within(int fd, const socket_address& address, clock::time_point deadline) {
    if (connect(fd, address.get(), address.length) == 0) return 0;
    if (errno != EINPROGRESS) return errno;
    for (;;) {
        const auto left = std::chrono::ceil<std::chrono::milliseconds>(deadline - clock::now()).count();
        if (left <= 0) return ETIMEDOUT;
        pollfd one{fd, POLLOUT, 0};
        const int ready = ::poll(&one, 1, static_cast<int>(std::min<long>(left, 60'000)));
        if (ready < 0 && errno != EINTR) return errno;
        if (ready > 0) break;
    }
    int error = 0;
    socklen_t length = sizeof error;
    getsockopt(fd, SOL_SOCKET, SO_ERROR, &error, &length);
    return error;
}

struct interface_address {
    std::string interface;
    socket_address address, mask;
    bool is_same_net(const socket_address& other) const {
        if (other.family() != address.family()) return false;
        const auto own = address.raw(), others = other.raw(), bits = mask.raw();
        for (std::size_t i = 0; i < own.size(); ++i)
            if (((own[i] ^ others[i]) & bits[i]) != 0) return false;
        return true;
    }
};

// IPv4 first. Without link-local addresses of IPv6, which mean nothing elsewhere.
std::vector<interface_address> interfaces() {
    ifaddrs* found = nullptr;
    check_errno(getifaddrs(&found), "cannot list the network interfaces", error_code::bootstrap_failure);
    const std::unique_ptr<ifaddrs, decltype(&freeifaddrs)> owner(found, &freeifaddrs);
    std::vector<interface_address> result;
    for (int family : {AF_INET, AF_INET6})
        for (const ifaddrs* each = found; each; each = each->ifa_next) {
            if (!each->ifa_addr || !each->ifa_netmask || each->ifa_addr->sa_family != family) continue;
            if (!(each->ifa_flags & IFF_UP)) continue;
            const socklen_t length = family == AF_INET ? sizeof(sockaddr_in) : sizeof(sockaddr_in6);
            interface_address one{each->ifa_name, copy_of(each->ifa_addr, length), copy_of(each->ifa_netmask, length)};
            one.mask.bytes.ss_family = each->ifa_addr->sa_family;
            if (family == AF_INET6 &&
                IN6_IS_ADDR_LINKLOCAL(&reinterpret_cast<const sockaddr_in6*>(each->ifa_addr)->sin6_addr))
                continue;
            result.push_back(one);
        }
    return result;
}

} // namespace

std::string host_name() {
    utsname name{};
    return uname(&name) == 0 ? name.nodename : "?";
}

descriptor listen_tcp(const std::string& address) {
    const endpoint target = split(address);
    std::string problem;
    bool later = false;
    const auto found = resolve(target, 0, problem, later);
    require(!found.empty(), error_code::bootstrap_failure, "process 0 cannot listen at {}: {}", address, problem);

    // A host's own name often stands for a loopback address in its /etc/hosts, where no other host comes.
    bool is_numeric = false;
    for (const auto& each : found) is_numeric = is_numeric || host_text(each) == target.host;
    for (const auto& each : found) {
        require(
            !is_any(each), error_code::invalid_argument,
            "process 0 does not listen at {}, which is every interface: name the address that the other hosts reach",
            address);
        if (is_loopback(each) && !is_numeric) {
            problem = fmt::format("{} is the loopback address {} here; name the address that the other hosts reach",
                                  target.host, host_text(each));
            continue;
        }
        descriptor listener = open_tcp(each.family());
        set_option(listener.get(), SOL_SOCKET, SO_REUSEADDR, 1, "SO_REUSEADDR");
        if (bind(listener.get(), each.get(), each.length) == 0 && listen(listener.get(), SOMAXCONN) == 0)
            return listener;
        problem = std::strerror(errno);
        if (errno == EADDRINUSE)
            problem += ": two processes claim index 0, or something else listens there; choose another port";
        if (errno == EADDRNOTAVAIL) problem += ": it is no address of host " + host_name() + ", where process 0 runs";
    }
    fail(error_code::bootstrap_failure, "process 0 cannot listen at {}: {}", address, problem);
}

descriptor take_listener(int fd) {
    int is_listening = 0;
    socklen_t length = sizeof is_listening;
    socket_address address;
    require(getsockopt(fd, SOL_SOCKET, SO_ACCEPTCONN, &is_listening, &length) == 0 && is_listening &&
                getsockname(fd, address.get(), &address.length) == 0 &&
                (address.family() == AF_INET || address.family() == AF_INET6),
            error_code::bootstrap_failure, "DCUDA_LISTEN_FD={}: this is no TCP socket that listens", fd);
    descriptor result(fd);
    check_errno(fcntl(fd, F_SETFD, FD_CLOEXEC), "FD_CLOEXEC", error_code::bootstrap_failure);
    check_errno(fcntl(fd, F_SETFL, O_NONBLOCK), "O_NONBLOCK", error_code::bootstrap_failure);
    // So that the job's next control plane can listen here while connections of this one exist.
    set_option(fd, SOL_SOCKET, SO_REUSEADDR, 1, "SO_REUSEADDR");
    return result;
}

std::string address_of(const descriptor& listener) {
    socket_address address;
    check_errno(getsockname(listener.get(), address.get(), &address.length), "getsockname",
                error_code::bootstrap_failure);
    char port[NI_MAXSERV] = "";
    getnameinfo(address.get(), address.length, nullptr, 0, port, sizeof port, NI_NUMERICSERV);
    return address.family() == AF_INET6 ? fmt::format("[{}]:{}", host_text(address), port)
                                        : fmt::format("{}:{}", host_text(address), port);
}

std::string own_host_of(int socket) {
    socket_address address;
    check_errno(getsockname(socket, address.get(), &address.length), "getsockname", error_code::bootstrap_failure);
    return host_text(address);
}

descriptor try_connect_tcp(const std::string& address, clock::time_point deadline, std::string& reason) {
    const endpoint target = split(address);
    bool later = false;
    const auto found = resolve(target, 0, reason, later);
    require(!found.empty() || later, error_code::bootstrap_failure, "{} ({})", reason, address);
    for (const auto& each : found) {
        descriptor socket = open_tcp(each.family());
        const int error = connect_within(socket.get(), each, std::min(deadline, clock::now() + attempt_time));
        if (error == 0 && !is_connected_to_itself(socket.get())) return socket;
        reason = std::strerror(error == 0 ? ECONNREFUSED : error);
    }
    return descriptor();
}

void set_up_connection(int fd, double lost_after) {
    const int interval = static_cast<int>(std::clamp(lost_after / 4, 1.0, 32767.0));
    set_option(fd, IPPROTO_TCP, TCP_NODELAY, 1, "TCP_NODELAY");
    set_option(fd, SOL_SOCKET, SO_KEEPALIVE, 1, "SO_KEEPALIVE");
    set_option(fd, IPPROTO_TCP, TCP_KEEPIDLE, interval, "TCP_KEEPIDLE");
    set_option(fd, IPPROTO_TCP, TCP_KEEPINTVL, interval, "TCP_KEEPINTVL");
    set_option(fd, IPPROTO_TCP, TCP_KEEPCNT, 127, "TCP_KEEPCNT");
}

void set_up_keep_alive(int fd, double lost_after) {
    set_up_connection(fd, lost_after);
    set_option(fd, IPPROTO_TCP, TCP_USER_TIMEOUT, static_cast<int>(lost_after * 1000), "TCP_USER_TIMEOUT");
}

std::vector<std::string> own_addresses(const std::string& interface) {
    std::vector<std::string> result;
    std::string known;
    for (const auto& each : interfaces()) {
        const std::string text = host_text(each.address);
        if (interface.empty() ? !is_loopback(each.address) : interface == each.interface || interface == text)
            result.push_back(text);
        known += fmt::format("{}{} {}", known.empty() ? "" : ", ", each.interface, text);
    }
    require(!result.empty() || interface.empty(), error_code::invalid_argument,
            "DCUDA_INTERFACE={}: no interface of host {} has this name or address; it has {}", interface, host_name(),
            known);
    return result;
}

std::string address_towards(const std::vector<std::string>& others) {
    const auto own_interfaces = interfaces();
    std::string by_a_router;
    for (const std::string& other : others) {
        // An address that this host has, too, such as that of a bridge for containers, leads to itself.
        if (std::ranges::any_of(own_interfaces, [&](const auto& each) { return host_text(each.address) == other; }))
            continue;
        std::string problem;
        bool later = false;
        const auto found = resolve({other, "9"}, AI_NUMERICHOST, problem, later); // the port does not matter
        if (found.empty()) continue;
        // Connecting a datagram socket sends nothing, but asks the kernel for the way.
        const descriptor probe(socket(found[0].family(), SOCK_DGRAM | SOCK_CLOEXEC, 0));
        socket_address source;
        if (probe.get() < 0 || connect(probe.get(), found[0].get(), found[0].length) != 0 ||
            getsockname(probe.get(), source.get(), &source.length) != 0 || is_loopback(source))
            continue;
        const std::string text = host_text(source);
        for (const auto& each : own_interfaces)
            if (host_text(each.address) == text && each.is_same_net(found[0])) return text;
        if (by_a_router.empty()) by_a_router = text;
    }
    return by_a_router;
}

} // namespace dcuda::bootstrap
