// The addresses where processes meet, and sockets there.
#pragma once

#include "bootstrap/channel.hpp"

namespace dcuda::bootstrap {

// Where the processes of a job meet. A process may set up control planes one after another; each has its own address.
std::string meeting_point(const std::string& job_key, int generation);
descriptor listen_at(const std::string& address);                 // throws error(bootstrap_failure)
std::unique_ptr<channel> try_connect(const std::string& address); // null: nobody listens there now

} // namespace dcuda::bootstrap
