// SPDX-License-Identifier: BSD-3-Clause
#include "bootstrap/local_socket.hpp"

#include "bootstrap/handshake.hpp"
#include "support/check.hpp"

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstddef>
#include <cstring>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

namespace dcuda::bootstrap {

namespace {

using support::check_errno;
using support::fail;

sockaddr_un socket_address_of(const std::string& address, socklen_t& length) {
    sockaddr_un result{};
    result.sun_family = AF_UNIX;
    // A leading zero byte: an abstract name, which vanishes with its socket and leaves no file behind.
    std::memcpy(result.sun_path + 1, address.data(), std::min(address.size(), sizeof result.sun_path - 1));
    length = static_cast<socklen_t>(offsetof(sockaddr_un, sun_path) + 1 + address.size());
    return result;
}

descriptor open_socket() {
    return descriptor(check_errno(socket(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0),
                                  "cannot open a local socket", error_code::bootstrap_failure));
}

} // namespace

void check_holder(const std::string& address, const local_peer& holder) {
    if (holder.is_same_user) return;
    fail(error_code::bootstrap_failure,
         "the local socket of this job (@{}) is held by pid {} of user {}: its name can be guessed from what the "
         "launcher says; give all processes the same DCUDA_JOB, 32 random hexadecimal digits (openssl rand -hex 16), "
         "and it cannot",
         address, holder.pid, holder.user);
}

std::string local_socket_name(const std::string& job_key, int generation) {
    // A digest: the key can be long, and every user can list the names of the sockets, but shall not guess the next
    // one.
    return fmt::format("dcuda-{}-{}", geteuid(), digest(fmt::format("{} {}", job_key, generation)));
}

descriptor listen_local(const std::string& address) {
    descriptor listener = open_socket();
    socklen_t length = 0;
    const sockaddr_un target = socket_address_of(address, length);
    if (bind(listener.get(), reinterpret_cast<const sockaddr*>(&target), length) != 0) {
        const int problem = errno;
        if (const descriptor other = problem == EADDRINUSE ? try_connect_local(address) : descriptor();
            other.get() >= 0)
            check_holder(address, peer_of(other.get()));
        if (problem == EADDRINUSE)
            fail(error_code::bootstrap_failure,
                 "the local socket of this job (@{}) is in use by a live process: two processes claim index 0, or "
                 "another job runs with the same job key; start each job with its own launcher call, or give it a "
                 "DCUDA_JOB of its own",
                 address);
        support::fail_errno(problem, "cannot name a local socket", error_code::bootstrap_failure);
    }
    check_errno(listen(listener.get(), SOMAXCONN), "cannot listen on a local socket", error_code::bootstrap_failure);
    return listener;
}

descriptor try_connect_local(const std::string& address) {
    descriptor socket = open_socket();
    socklen_t length = 0;
    const sockaddr_un target = socket_address_of(address, length);
    if (connect(socket.get(), reinterpret_cast<const sockaddr*>(&target), length) != 0) {
        // EAGAIN: so many processes connect now that the queue is full.
        if (errno == ECONNREFUSED || errno == ENOENT || errno == EAGAIN || errno == EINTR) return descriptor();
        support::fail_errno(errno, "cannot connect to process 0", error_code::bootstrap_failure);
    }
    return socket;
}

int accept_some(const descriptor& listener, const std::function<bool(descriptor)>& take) {
    for (int tried = 0; tried < most_accepted; ++tried) {
        descriptor socket(accept4(listener.get(), nullptr, nullptr, SOCK_NONBLOCK | SOCK_CLOEXEC));
        if (socket.get() >= 0) {
            if (!take(std::move(socket))) return 0;
            continue;
        }
        if (errno == EAGAIN) return 0;
        // Over TCP, accept4 reports errors of a connection that has not come yet, too.
        constexpr std::array passing{EINTR,       ECONNABORTED, EPROTO,       ENETDOWN,
                                     ENETUNREACH, EHOSTDOWN,    EHOSTUNREACH, ETIMEDOUT};
        if (std::ranges::find(passing, errno) == passing.end()) return errno;
    }
    return 0;
}

local_peer peer_of(int fd) {
    ucred peer{};
    socklen_t length = sizeof peer;
    check_errno(getsockopt(fd, SOL_SOCKET, SO_PEERCRED, &peer, &length), "cannot identify the peer of a local socket",
                error_code::bootstrap_failure);
    return {peer.pid, peer.uid == geteuid(), peer.uid};
}

} // namespace dcuda::bootstrap
