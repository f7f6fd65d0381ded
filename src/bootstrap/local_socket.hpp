// SPDX-License-Identifier: BSD-3-Clause
// Local sockets, by which the processes of one host reach each other.
#pragma once

#include "bootstrap/channel.hpp"

#include <functional>

namespace dcuda::bootstrap {

// The name of the socket at which the control server of a job on one host listens. A process may set up control planes
// one after another; each has its own name.
std::string local_socket_name(const std::string& job_key, int generation);
descriptor listen_local(const std::string& address);      // throws error(bootstrap_failure)
descriptor try_connect_local(const std::string& address); // empty: nobody listens there now

// Accepts the connections that wait at a socket, in their order, and gives each to `take`, until that returns false;
// but only a few at a time: a peer that connects again and again must not keep a thread from its work.
// Returns 0, or the errno of what went wrong with the socket itself.
inline constexpr int most_accepted = 16;
int accept_some(const descriptor& listener, const std::function<bool(descriptor)>& take);

// The process at the other end of a local socket.
struct local_peer {
    pid_t pid;
    bool is_same_user;
    uid_t user;
};
local_peer peer_of(int fd);

// Throws error(bootstrap_failure) if another user holds the address.
void check_holder(const std::string& address, const local_peer& holder);

} // namespace dcuda::bootstrap
