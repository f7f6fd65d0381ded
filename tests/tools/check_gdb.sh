#!/bin/sh
# SPDX-License-Identifier: BSD-3-Clause
# usage: check_gdb.sh PROGRAM: what gdb shows of tests/tools/waiting_kernel.cpp, built with -g. Exits 77 (skip) without gdb.
program=$1
if ! command -v gdb >/dev/null 2>&1; then
    echo "skipped: gdb is not installed"
    exit 77
fi
output=$(mktemp)
trap 'rm -f "$output"; kill "$pid" 2>/dev/null; wait "$pid" 2>/dev/null' EXIT
"$program" &
pid=$!
sleep 1
timeout 60 gdb -q -batch -p "$pid" -ex "info threads" -ex "thread apply all bt full" \
    -ex "thread apply all -s print threadIdx.x" -ex "thread apply all -s print blockIdx" >"$output" 2>&1
if grep -q "ptrace: Operation not permitted\|Could not attach" "$output"; then
    echo "skipped: gdb may not attach to a process here"
    exit 77
fi

status=0
expect() {
    if ! grep -q "$1" "$output"; then
        echo "gdb does not show: $1"
        status=1
    fi
}
expect '"rank 17"'
expect '"rank 18"'
expect 'stencil (field=0x[0-9a-f]*.*, rows=2)'
expect 'halo_row = 42'
expect 'halo_row = 43'
expect ' = 7$'             # threadIdx.x: the last thread to arrive runs the collective's action
expect '{x = 1, y = 0, z = 0}' # blockIdx of rank 18
[ $status -eq 0 ] || cat "$output"
exit $status
