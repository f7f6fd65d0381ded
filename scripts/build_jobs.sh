#!/usr/bin/env bash
# SPDX-License-Identifier: BSD-3-Clause
# Prints how many compilers may run at a time: one for each core, and no more than memory has room for (1.5 GiB each).
set -euo pipefail
cores=$(nproc 2>/dev/null || echo 1)
available=$(awk '/^MemAvailable:/ { print int($2 / 1536 / 1024) }' /proc/meminfo 2>/dev/null || echo "$cores")
# In a container the group's limit counts.
for limit in /sys/fs/cgroup/memory.max /sys/fs/cgroup/memory/memory.limit_in_bytes; do
    [ -r "$limit" ] || continue
    bytes=$(cat "$limit")
    [[ $bytes =~ ^[0-9]{1,15}$ ]] || continue
    [ $((bytes / 1610612736)) -ge "$available" ] || available=$((bytes / 1610612736))
done
jobs=$((cores < available ? cores : available))
echo $((jobs > 1 ? jobs : 1))
