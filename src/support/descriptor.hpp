// SPDX-License-Identifier: BSD-3-Clause
// A file descriptor with an owner, and how many there may be.
#pragma once

#include <algorithm>
#include <cstddef>
#include <sys/resource.h>
#include <unistd.h>
#include <utility>

namespace dcuda::support {

class descriptor {
public:
    explicit descriptor(int fd = -1) noexcept : fd_(fd) {}
    descriptor(descriptor&& other) noexcept : fd_(other.release()) {}
    descriptor& operator=(descriptor&& other) noexcept {
        std::swap(fd_, other.fd_);
        return *this;
    }
    ~descriptor() {
        if (fd_ >= 0) close(fd_);
    }
    int get() const noexcept { return fd_; }
    int release() noexcept { return std::exchange(fd_, -1); }

private:
    int fd_;
};

// Lets this process have as many descriptors as it needs, if the system allows that many; returns how many it may have.
// No more than needed: programs with select() cannot use high numbers, and some close all that there may be.
inline std::size_t allow_descriptors(std::size_t needed) {
    rlimit limit{};
    if (getrlimit(RLIMIT_NOFILE, &limit) != 0) return needed;
    if (limit.rlim_cur < needed) {
        limit.rlim_cur = std::min<rlim_t>(limit.rlim_max, needed);
        setrlimit(RLIMIT_NOFILE, &limit);
    }
    return static_cast<std::size_t>(limit.rlim_cur);
}

} // namespace dcuda::support
