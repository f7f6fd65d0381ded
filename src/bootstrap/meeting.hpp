// Where the processes of a job on one host meet: a local socket.
#pragma once

#include "bootstrap/channel.hpp"

namespace dcuda::bootstrap {

// Where the processes of a job meet. A process may set up control planes one after another; each has its own address.
std::string meeting_point(const std::string& job_key, int generation);
descriptor listen_at(const std::string& address);   // throws error(bootstrap_failure)
descriptor try_connect(const std::string& address); // empty: nobody listens there now

// Who is at the other end of a local socket.
struct local_peer {
    pid_t pid;
    bool is_same_user;
    uid_t user;
};
local_peer peer_of(int fd);

} // namespace dcuda::bootstrap
