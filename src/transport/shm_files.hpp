// SPDX-License-Identifier: BSD-3-Clause
// Files in /dev/shm that libfabric makes for this process. It removes them when the process ends in order; those of a
// process that was killed stay.
#pragma once

#include <string>

namespace dcuda::transport {

// A name that no other file has, and that tells whose it is.
std::string choose_shm_name();

// Removes such files of this user whose process does not live any more.
void remove_shm_leftovers();

} // namespace dcuda::transport
