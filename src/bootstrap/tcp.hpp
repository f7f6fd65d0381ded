// SPDX-License-Identifier: BSD-3-Clause
// TCP between the hosts of a job: sockets, and which of this host's addresses the others reach.
#pragma once

#include "bootstrap/channel.hpp"

#include <chrono>

namespace dcuda::bootstrap {

std::string host_name();

// Listens at "host:port" ("[host]:port" for IPv6; port 0: any free one), at that address only. Throws
// error(bootstrap_failure).
descriptor listen_tcp(const std::string& address);

// A socket of the launcher's that listens already. Throws error(bootstrap_failure) if it does not.
descriptor take_listener(int fd);

// "10.0.0.1:4242": where this socket listens.
std::string address_of(const descriptor& listener);

// The own address that a socket uses, without its port.
std::string own_host_of(int socket);

// Empty, and `reason` set: nobody listens there now, or not until the deadline. Throws error(bootstrap_failure) if
// waiting cannot help.
descriptor try_connect_tcp(const std::string& address, std::chrono::steady_clock::time_point deadline,
                           std::string& reason);

// Small frames go at once, and the kernel asks the other side now and then whether the connection still exists.
void set_up_connection(int fd, double lost_after);

// The same for a connection on which nothing is sent: it ends with an error when the other host has not answered for
// that many seconds. The kernels do both, so that it does not matter what the processes are at. (A connection with data
// cannot have this: it would end also when a process that lives does not read.)
void set_up_keep_alive(int fd, double lost_after);

// This host's addresses but loopback; with an interface (its name or an address of it) those of this one. Throws
// error(invalid_argument) if the interface does not exist.
std::vector<std::string> own_addresses(const std::string& interface);

// The own address from which one of these addresses of another host is reached; empty: none is.
std::string address_towards(const std::vector<std::string>& others);

} // namespace dcuda::bootstrap
